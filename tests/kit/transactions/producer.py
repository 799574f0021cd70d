"""A transactional producer that sends the requests of Kafka's protocol itself, in version 1 or 2 of transactions.

It sends one batch at a time, retries as Kafka's clients do, and notes each event in a `History`.

Source: TransactionManager.java and Sender.java of Apache Kafka; KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode, KafkaTimeoutError
from kafkalite.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkalite.protocol.messages.end_txn import EndTxnRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.kit.server import batch, outcomes, produce_request
from tests.kit.transactions.history import History, Outcome, Partition, Source, Transaction
from tests.kit.transactions.wire import GROUP, MOVED, NO_CONNECTION, TRANSACTION, Retries, Wire

Error = KafkaErrorCode


class AbortableError(Exception):
    """The transaction must be aborted; the next one may work."""


class FencedError(Exception):
    """Another producer has this transactional id: this one must end."""


class Versions(NamedTuple):
    """The versions of requests that a client of a version of transactions sends."""

    produce: int
    add_partitions: int
    add_offsets: int
    offset_commit: int
    end: int
    init: int


VERSIONS = {1: Versions(11, 3, 3, 4, 4, 4), 2: Versions(12, 3, 4, 5, 5, 5)}
FENCED = frozenset((Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_EPOCH))
RETRIED = MOVED | {
    Error.CONCURRENT_TRANSACTIONS,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.LEADER_NOT_AVAILABLE,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.NOT_ENOUGH_REPLICAS,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Error.REQUEST_TIMED_OUT,
    Error.KAFKA_STORAGE_ERROR,
    Error.NETWORK_EXCEPTION,
    Error.UNKNOWN_LEADER_EPOCH,
    Error.FENCED_LEADER_EPOCH,
}


def real_wall_ms() -> int:
    """The wall time in ms."""
    return time.time_ns() // 1_000_000


class Settings(NamedTuple):
    """Times of a producer in seconds, of the transaction in ms; `wall_ms` returns the timestamps of its records."""

    timeout_ms: int = 5_000
    delivery_s: float = 6.0
    backoff_s: float = 0.05
    produce_ms: int = 2_000
    wall_ms: Callable[[], int] = real_wall_ms


class RawProducer:
    """A producer with a transactional id.

    Arguments:
        wire: its connections.
        transactional_id: of the producer.
        version: of transactions, 1 or 2.
        history: notes the events.
        now: returns the time in seconds.
        settings: its times.

    Attributes:
        transaction: the open one, None between two.
        versions: of the requests.
    """

    def __init__(
        self,
        wire: Wire,
        transactional_id: str,
        version: int,
        history: History,
        now: Callable[[], float],
        settings: Settings | None = None,
    ) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.versions = VERSIONS[version]
        self.settings = settings or Settings()
        self.history = history
        self.transaction: Transaction | None = None
        self.producer_id = self.epoch = -1
        self._adds = version == 1
        self._now = now
        self._sequences: dict[Partition, int] = {}
        self._added: set[Partition | str] = set()

    # The life cycle.

    async def initialize(self, *, bump: bool = False) -> None:
        """Get a producer id and an epoch; a transaction of an earlier incarnation is aborted.

        Arguments:
            bump: name the id and epoch, as a client does after an error (KIP-360).

        Raises:
            FencedError, KafkaTimeoutError.
        """
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.settings.timeout_ms
        )
        if bump:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        found = await self._ask(request, self.versions.init, lambda answer: answer.error_code)
        if found.error_code in FENCED:
            raise FencedError(f"{self.transactional_id}: InitProducerId: error {found.error_code}")
        if found.error_code:
            raise KafkaTimeoutError(f"{self.transactional_id}: InitProducerId: error {found.error_code}")
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        self._sequences.clear()
        self._end_local()

    def begin(self) -> Transaction:
        """Begin a transaction; no request is sent."""
        assert self.transaction is None, "a transaction is open"
        self.transaction = self.history.begin(self.transactional_id)
        return self.transaction

    async def send(
        self, partition: Partition, sources: Sequence[Source | None] = (None,), *, size: int = 0
    ) -> list[int]:
        """Send a batch of one value for each source; returns their numbers once they are acknowledged.

        Arguments:
            partition: where the values go.
            sources: the input record of each value.
            size: bytes that each value has beside its number.

        Raises:
            AbortableError, FencedError.
        """
        assert self.transaction is not None
        numbers = [self.history.sent(self.transaction, partition, source) for source in sources]
        if self._adds and partition not in self._added:
            await self._add(partition)
        sequence = self._sequences.get(partition, 0)
        records = batch(
            *(b"%d " % number + b"v" * size for number in numbers),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
            timestamp=self.settings.wall_ms(),
        )
        offset = await self._produce(partition, records)
        self._sequences[partition] = sequence + len(numbers)
        for position, number in enumerate(numbers):
            if offset >= 0:
                self.history.acknowledged(number, offset + position)
        return numbers

    async def send_offsets(
        self, group: str, offsets: Mapping[Partition, int], *, generation: int = -1, member: str = ""
    ) -> None:
        """Commit offsets of a group in the transaction. Raises AbortableError, FencedError."""
        if self._adds and group not in self._added:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            found = await self._ask(request, self.versions.add_offsets, lambda answer: answer.error_code)
            self._check("AddOffsetsToTxn", found.error_code)
            self._added.add(group)
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=generation,
            member_id=member,
            topics=_offsets_by_topic(offsets),
        )
        found = await self._ask(commit, self.versions.offset_commit, _code_of_offsets, GROUP, group)
        self._check("TxnOffsetCommit", _code_of_offsets(found))

    async def commit(self) -> None:
        """Commit. Raises FencedError, AbortableError, KafkaTimeoutError (the outcome is not known)."""
        assert self.transaction is not None
        transaction = self.transaction
        self.history.commit_requested(transaction)
        await self._end(transaction, committed=True)

    async def abort(self) -> None:
        """Abort. Raises FencedError, AbortableError, KafkaTimeoutError."""
        assert self.transaction is not None
        await self._end(self.transaction, committed=False)

    async def recover(self, *, by_request: bool) -> None:
        """Continue after an error: abort where no commit was requested, then get another epoch.

        Arguments:
            by_request: abort by EndTxn; otherwise InitProducerId aborts.

        Raises:
            FencedError, KafkaTimeoutError.
        """
        transaction = self.transaction
        if transaction is not None and transaction.outcome is Outcome.OPEN and transaction.numbers and by_request:
            try:
                await self.abort()
            except AbortableError:
                self._end_local()
        await self.initialize(bump=self.producer_id >= 0)

    # Requests.

    async def _add(self, partition: Partition) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )
        found = await self._ask(request, self.versions.add_partitions, _code_of_added)
        self._check("AddPartitionsToTxn", _code_of_added(found))
        self._added.add(partition)

    async def _produce(self, partition: Partition, records: bytes) -> int:
        """Send a batch until it is acknowledged; returns its offset, -1 where a repeated one has none."""
        request = produce_request(partition[0], (partition[1], records), transactional_id=self.transactional_id)
        request.timeout_ms = self.settings.produce_ms
        retries = Retries(self._now, self.settings.delivery_s, self.settings.backoff_s)
        while True:
            try:
                address = await self.wire.leader(partition)
                (part,) = outcomes(await self.wire.call(address, request, self.versions.produce))
                code, offset = part.error_code, part.base_offset
            except NO_CONNECTION as error:
                code, offset = error, -1
            if code == Error.DUPLICATE_SEQUENCE_NUMBER:
                return -1
            if code == 0:
                return int(offset)
            if isinstance(code, int) and code not in RETRIED:
                self._check("Produce", code)
            self.wire.forget_leaders([partition])
            await self._wait(retries, code)

    async def _end(self, transaction: Transaction, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        found = await self._ask(request, self.versions.end, lambda answer: answer.error_code)
        self._check("EndTxn", found.error_code)
        self.history.ended(transaction, committed=committed)
        if found.producer_id >= 0 and not self._adds:
            self.producer_id, self.epoch = found.producer_id, found.producer_epoch
            self._sequences.clear()
        self._end_local()

    def _end_local(self) -> None:
        self.transaction = None
        self._added.clear()

    async def _ask(
        self,
        request: Any,
        version: int,
        code_of: Callable[[Any], int],
        kind: int = TRANSACTION,
        key: str | None = None,
    ) -> Any:
        """The response of a coordinator, after retries. Raises KafkaTimeoutError."""
        key = self.transactional_id if key is None else key
        retries = Retries(self._now, self.settings.delivery_s, self.settings.backoff_s)
        while True:
            try:
                found = await self.wire.coordinated(kind, key, request, version)
                code: Any = code_of(found)
                if code not in RETRIED:
                    return found
            except NO_CONNECTION as error:
                code = error
            if code in MOVED or not isinstance(code, int):
                self.wire.forget_coordinator(kind, key)
            await retries.wait(code)

    async def _wait(self, retries: Retries, cause: object) -> None:
        try:
            await retries.wait(cause)
        except KafkaTimeoutError as error:
            raise AbortableError(f"{self.transactional_id}: {error}") from error

    def _check(self, api: str, code: int) -> None:
        if not code:
            return
        text = f"{self.transactional_id}: {api} with epoch {self.epoch}: {code} {Error(code).name}"
        if code in FENCED and not (api == "Produce" and code == Error.INVALID_PRODUCER_EPOCH):
            raise FencedError(text)
        raise AbortableError(text)


def _offsets_by_topic(offsets: Mapping[Partition, int]) -> list[Any]:
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    topics: dict[str, list[Any]] = {}
    for (name, index), offset in offsets.items():
        part = kind.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=None
        )
        topics.setdefault(name, []).append(part)
    return [kind(name=name, partitions=parts) for name, parts in topics.items()]


def _code_of_offsets(answer: Any) -> int:
    codes = {part.error_code for topic in answer.topics for part in topic.partitions}
    return max(codes)


def _code_of_added(answer: Any) -> int:
    topics = answer.results_by_topic_v3_and_below
    return max(part.partition_error_code for topic in topics for part in topic.results_by_partition)
