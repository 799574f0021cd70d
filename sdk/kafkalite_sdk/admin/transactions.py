"""Transactions: list, describe, find those that hang (KIP-664), abort, terminate (KIP-588, KIP-1092)."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from kafkalite.errors import KafkaError, KafkaErrorCode, UnsupportedVersionError, error_for
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafkalite.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, check_result, is_address, require
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.admin.transaction_types import (
    OpenTransaction,
    ProducerEpoch,
    TransactionDescription,
    TransactionListing,
)
from kafkalite_sdk.client.coordinators import TRANSACTION
from kafkalite_sdk.values import DetachedTransaction

if TYPE_CHECKING:
    from kafkalite.protocol.messages.init_producer_id import InitProducerIdResponse
    from kafkalite.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
    from kafkalite_sdk.admin.topic_types import ProducerState

DURATION_VERSION, PATTERN_VERSION = 1, 2  # of ListTransactions, KIP-994 and KIP-1152
LONGEST_TIMEOUT_MS = 900_000  # `transaction.max.timeout.ms` by default


class Transactions:
    """The transactions of a cluster.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> tuple[TransactionListing, ...]:
        """List the transactions of all coordinators, sorted.

        Arguments:
            states: only transactions in these states; none = all.
            producer_ids: only transactions of these producers; none = all.
            running_longer_than_ms: only transactions that began before this time; -1 = all (KIP-994).
            pattern: only transactional ids that match this regular expression (RE2) as a whole; None = all (KIP-1152).
            timeout: deadline in seconds; None = `default_api_timeout_ms`.

        Raises:
            KafkaError: a broker does not answer: its transactions would be missing.
        """
        found = await self.list_by_broker(
            states=states,
            producer_ids=producer_ids,
            running_longer_than_ms=running_longer_than_ms,
            pattern=pattern,
            timeout=timeout,
        )
        return tuple(sorted(each for listed in found.check().values() for each in listed))

    async def list_by_broker(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> Outcomes[int, tuple[TransactionListing, ...]]:
        """List the transactions that each broker coordinates, or why it does not answer.

        A broker that does not serve patterns (Apache Kafka below 4.1) lists all transactions, and the client applies
        the pattern with `re`. One that does not serve durations (below 3.8) fails with UnsupportedVersionError.

        Arguments: as of `list`.
        """
        request = ListTransactionsRequest(
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=running_longer_than_ms,
            transactional_id_pattern=pattern or None,
        )
        operation: Operation[int, tuple[TransactionListing, ...]] = Operation(
            ListTransactionsRequest, lambda _: request, _listed, is_address, single=True
        )
        left_s = self._driver.countdown(timeout)
        found = await self._driver.run(operation, await self._driver.brokers(left_s()), left_s())
        if running_longer_than_ms < 0 and not pattern:
            return found
        found.ignore_errors()  # those of the result count
        return Outcomes({broker: self._filtered(broker, ended, request) for broker, ended in found.ended.items()})

    def _filtered(
        self, broker: int, ended: tuple[TransactionListing, ...] | KafkaError, request: ListTransactionsRequest
    ) -> tuple[TransactionListing, ...] | KafkaError:
        """Apply the filters that the version of a broker does not have."""
        if isinstance(ended, KafkaError):
            return ended
        version = self._driver.client.version(broker, ListTransactionsRequest) or 0
        if version < DURATION_VERSION and request.duration_filter >= 0:
            needed = f"running_longer_than_ms needs version {DURATION_VERSION}"
            return UnsupportedVersionError(f"broker {broker} serves ListTransactions up to version {version}; {needed}")
        pattern = request.transactional_id_pattern
        if version >= PATTERN_VERSION or pattern is None:
            return ended
        try:
            matches = re.compile(pattern).fullmatch
        except re.error as error:
            return error_for(KafkaErrorCode.INVALID_REGULAR_EXPRESSION, f"pattern {pattern!r}: {error}")
        return tuple(each for each in ended if matches(each.transactional_id))

    async def describe(
        self, *transactional_ids: str, timeout: float | None = None
    ) -> Outcomes[str, TransactionDescription]:
        """Describe transactions. TransactionalIdNotFoundError: no producer has used the id.

        Arguments:
            transactional_ids: of their producers.
        """

        def read(
            response: DescribeTransactionsResponse, _: object
        ) -> Iterator[tuple[str, TransactionDescription | KafkaError]]:
            for each in response.transaction_states:
                coordinator = self._driver.client.coordinator(each.transactional_id, TRANSACTION)
                described = _described(each, -1 if coordinator is None else coordinator)
                yield each.transactional_id, check_result(each.error_code, None, described)

        operation: Operation[str, TransactionDescription] = Operation(
            DescribeTransactionsRequest,
            lambda ids: DescribeTransactionsRequest(transactional_ids=ids),
            read,
            is_address,
        )
        return await self._driver.run(operation, dict.fromkeys(transactional_ids), timeout)

    async def describe_producers(
        self, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> "Outcomes[TopicPartition, tuple[ProducerState, ...]]":
        """Describe the active producers of partitions, as `admin.partitions.producers` (KIP-664).

        Arguments:
            partitions: to describe.
        """
        from kafkalite_sdk.admin.partitions import Partitions

        return await Partitions(self._driver).producers(partitions, timeout=timeout)

    async def find_open(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        older_than_ms: int = -1,
        timeout: float | None = None,
    ) -> Outcomes[TopicPartition, tuple[OpenTransaction, ...]]:
        """Find the open transactions of partitions, by start offset; the first one holds the last stable offset.

        Arguments:
            partitions: to search; None = all of the cluster, those of internal topics included.
            older_than_ms: only transactions whose last batch is older; -1 = all.

        Raises:
            KafkaError: a coordinator does not answer, or the topics cannot be listed.
        """
        from kafkalite_sdk.admin.open_transactions import find_open

        left_s = self._driver.countdown(timeout)
        before_ms = None if older_than_ms < 0 else self._driver.client.environment.now_ms() - older_than_ms
        searched = await self._every_partition(left_s()) if partitions is None else partitions
        return await find_open(self, [TopicPartition(*each) for each in searched], before_ms, left_s)

    async def find_hanging(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        older_than_ms: int = LONGEST_TIMEOUT_MS,
        timeout: float | None = None,
    ) -> Outcomes[TopicPartition, tuple[OpenTransaction, ...]]:
        """Find the transactions of partitions that no coordinator will end; `abort` ends one (KIP-664).

        Only partitions with such a transaction, and those whose leader does not answer, are in the result.

        Arguments:
            partitions: to search; None = all of the cluster, those of internal topics included.
            older_than_ms: only transactions whose last batch is older; default: `transaction.max.timeout.ms` of Kafka.

        Raises:
            KafkaError: a coordinator does not answer, or the topics cannot be listed.
        """
        found = await self.find_open(partitions, older_than_ms=older_than_ms, timeout=timeout)
        found.ignore_errors()  # those of the result count
        hanging = {
            partition: ended if isinstance(ended, KafkaError) else tuple(each for each in ended if each.is_hanging)
            for partition, ended in found.ended.items()
        }
        return Outcomes({partition: ended for partition, ended in hanging.items() if ended != ()})

    async def _every_partition(self, timeout_s: float) -> Collection[TopicPartition]:
        from kafkalite_sdk.admin.topics import Topics

        topics = await Topics(self._driver).list(internal=True, timeout=timeout_s)
        return [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]

    async def abort(self, transaction: OpenTransaction, *, timeout: float | None = None) -> None:
        """Write an abort marker into the partition of a transaction that hangs, and into no other one (KIP-664).

        The transaction ends in this partition only. If its coordinator has not forgotten it, use `terminate`: an abort
        would tear a transaction that is committed elsewhere.

        Arguments:
            transaction: of `find_open` or `find_hanging`; its producer id, producer epoch and coordinator epoch count.

        Raises:
            InvalidProducerEpochError: the producer has a newer epoch. TransactionCoordinatorFencedError: a newer
            coordinator has written a marker. OutcomeUnknownError: the response was lost; read the producers again.
        """
        from kafkalite.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

        operation: Operation[TopicPartition, None] = Operation(
            WriteTxnMarkersRequest, lambda _: _abort_marker(transaction), _written, is_address
        )
        (await self._driver.run(operation, [transaction.partition], timeout))[transaction.partition]

    async def terminate(self, transactional_id: str, *, timeout: float | None = None) -> ProducerEpoch:
        """Fence the producer of a transactional id, which aborts its open transaction in all partitions.

        Arguments:
            transactional_id: of the producer; it is not created if it does not exist.

        Returns:
            the producer id and epoch that fence the producer.

        Raises:
            TransactionalIdNotFoundError: no producer has used the id. OutcomeUnknownError: the response was lost.
        """
        left_s = self._driver.countdown(timeout)
        described = (await self.describe(transactional_id, timeout=left_s()))[transactional_id]
        fenced = await self._fence({transactional_id: described.timeout_ms}, left_s())
        return fenced[transactional_id]

    async def end(
        self, *detached: DetachedTransaction, committed: bool, timeout: float | None = None
    ) -> Outcomes[DetachedTransaction, None]:
        """Commit or abort transactions that their producers have detached. A repeated call has the same outcome.

        Arguments:
            detached: results of `Producer.detach_transaction`.
            committed: commit, else abort.

        Errors of a transaction: ProducerFencedError, InvalidProducerEpochError, InvalidTxnStateError and
        InvalidProducerIdMappingError mean that it has ended otherwise: its timeout has passed, or another producer has
        the transactional id.
        """
        from kafkalite_sdk.admin.detached import end_detached

        return await end_detached(self._driver, detached, committed, timeout)

    async def fence_producers(
        self, *transactional_ids: str, timeout: float | None = None
    ) -> Outcomes[str, ProducerEpoch]:
        """Fence the producers of transactional ids, and abort their open transactions (KIP-588, as Kafka's Admin).

        An id that does not exist is created, so that a producer that begins with it later is not affected.

        Arguments:
            transactional_ids: of the producers.
        """
        timeout_ms = self._driver.request_timeout_ms
        return await self._fence(dict.fromkeys(transactional_ids, timeout_ms), timeout)

    async def _fence(self, timeouts_ms: Mapping[str, int], timeout_s: float | None) -> Outcomes[str, ProducerEpoch]:
        """Send InitProducerId without an epoch; the values are the transaction timeouts of the ids."""
        from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest

        def build(keys: Collection[str]) -> InitProducerIdRequest:
            (key,) = keys
            return InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=timeouts_ms[key])

        def read(
            response: "InitProducerIdResponse", keys: Collection[str]
        ) -> Iterator[tuple[str, ProducerEpoch | KafkaError]]:
            (key,) = keys
            fenced = ProducerEpoch(response.producer_id, response.producer_epoch)
            yield key, check_result(response.error_code, None, fenced)

        operation: Operation[str, ProducerEpoch] = Operation(
            InitProducerIdRequest, build, read, is_address, single=True
        )
        return await self._driver.run(operation, timeouts_ms, timeout_s)


def _listed(
    response: ListTransactionsResponse, keys: "Collection[int]"
) -> Iterator[tuple[int, tuple[TransactionListing, ...] | KafkaError]]:
    require(response.error_code)
    (broker,) = keys
    if response.unknown_state_filters:
        unknown = ", ".join(map(repr, response.unknown_state_filters))
        yield broker, error_for(KafkaErrorCode.INVALID_REQUEST, f"broker {broker} does not know the states {unknown}")
        return
    listed = (
        TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, broker)
        for each in response.transaction_states
    )
    yield broker, tuple(listed)


def _described(each: DescribeTransactionsResponse.TransactionState, coordinator: int) -> TransactionDescription:
    partitions = sorted(TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions)
    return TransactionDescription(
        each.transactional_id,
        each.producer_id,
        each.producer_epoch,
        each.transaction_state,
        each.transaction_timeout_ms,
        each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
        tuple(partitions),
        coordinator,
    )


def _abort_marker(transaction: OpenTransaction) -> "WriteTxnMarkersRequest":
    """As AbortTransactionHandler.java: version 0 of the transaction, so that the epoch of the batches is accepted."""
    from kafkalite.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(
        name=transaction.partition.topic, partition_indexes=[transaction.partition.partition]
    )
    return WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                transaction_result=False,
                topics=[topic],
                coordinator_epoch=max(transaction.coordinator_epoch, 0),
            )
        ]
    )


def _written(response: "WriteTxnMarkersResponse", _: object) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
    for marker in response.markers:
        for topic in marker.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                yield partition, check_result(each.error_code, None, None)
