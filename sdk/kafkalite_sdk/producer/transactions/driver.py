"""Sends the requests of the transaction machine, and waits for it on behalf of the application.

Invariants:
1. The machine continues without a waiter: a cancelled or late call of the application stops no abort and no commit
   whose EndTxn has left. `begin` and `close` wait for what still runs.
2. Records are accepted only while the phase is OPEN; otherwise `send` raises what the phase means.
3. From the begin of an abort on, the consumers of the transaction continue at their committed offsets.
4. There is no task; the producer's driver calls `work`.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kafkalite.backoff import Backoff
from kafkalite.errors import (
    ClientUseError,
    KafkaError,
    KafkaTimeoutError,
    OutcomeUnknownError,
    TransactionAbortedError,
)
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.coordinators import GROUP, TRANSACTION
from kafkalite_sdk.producer.settings import ProducerSettings
from kafkalite_sdk.producer.transactions.machine import TransactionMachine
from kafkalite_sdk.producer.transactions.participants import (
    Offsets,
    Participants,
    TransactionalConsumer,
    member_of,
    offsets_by_partition,
)
from kafkalite_sdk.producer.transactions.records import TransactionRecords
from kafkalite_sdk.producer.transactions.state import V1, V2, OffsetsToSend, Phase, TransactionCall

CONCURRENT_BACKOFF_S = 0.02  # TransactionManager.java: ADD_PARTITIONS_RETRY_BACKOFF_MS
FEATURE = "transaction.version"
NO_TRANSACTION = 'no transaction is open; send inside "async with producer.transaction()", or call begin_transaction()'


class Transactions:
    """The transactions of one producer.

    Arguments:
        client: a started client.
        settings: of the producer, with a transactional id.
        records: of the producer.

    Attributes:
        machine: decides.
        closing: no transaction begins any more.
    """

    def __init__(self, client: ClusterClient, settings: ProducerSettings, records: TransactionRecords) -> None:
        assert settings.transactional_id is not None
        random, maximum_s = client.environment.random.random, settings.retry_backoff_max_s
        self.machine = TransactionMachine(
            settings.transactional_id,
            settings.transaction_timeout_ms,
            Backoff(settings.retry_backoff_s, maximum_s, random),
            Backoff(CONCURRENT_BACKOFF_S, maximum_s, random),
        )
        self.closing = False
        self._client = client
        self._request_timeout_s = settings.request_timeout_s
        self._records = records
        self._participants = Participants()
        records.on_failure(self.batch_failed)
        self._phase = Phase.STARTING  # the one that the records know
        self._broker = "the coordinator"  # that the open request was sent to, for error texts
        self._timeout_s = client.settings.default_api_timeout_s

    # work

    def work(self, now: float) -> float:
        """Send what is due; return when the next pause ends, in seconds of the loop's clock."""
        machine, records = self.machine, self._records
        self._follow()
        machine.add(records.unconfirmed_partitions())
        call = machine.request(now, records_open=records.records_open())
        if call is not None:
            self._send(call)
        self._follow()
        return machine.wake_at(now)

    def batch_failed(self, cause: BaseException) -> BaseException:
        """The records of a batch have failed; return the error that their users see."""
        machine = self.machine
        machine.batch_failed(cause)
        self._records.schedule()
        if machine.phase is Phase.CLOSED:
            return machine.error or cause
        return cause if isinstance(cause, TransactionAbortedError) else machine.abort_error()

    def sequences_lost(self) -> None:
        """The broker has lost the sequences of a partition, or the topic was created again."""
        self.machine.batch_failed(KafkaError("a broker has lost the sequences of a partition"))
        self._follow()

    def forget_sequences(self) -> bool:
        """Whether the producer may forget the sequences of an unused topic: not within a transaction."""
        if self.machine.phase not in (Phase.READY, Phase.STARTING, Phase.CLOSED):
            return False
        self.machine.forget_sequences()
        return True

    def _follow(self) -> None:
        """Apply to the records and the consumers what the machine has decided."""
        machine, records = self.machine, self._records
        records.confirm(machine.transaction.partitions)
        if machine.phase is self._phase:
            return
        self._phase = machine.phase
        if machine.phase is Phase.FAILED:
            records.reject_records(machine.abort_error())
        elif machine.phase is Phase.ABORTING:
            records.reject_records(machine.abort_error())
            records.abort_records(machine.abort_error())
            self._participants.return_to_committed()
        elif machine.phase in (Phase.READY, Phase.STARTING):
            records.reject_records(ClientUseError(NO_TRANSACTION))
        elif machine.phase is Phase.COMMITTING:
            records.reject_records(ClientUseError("the transaction is being committed; begin another one first"))
        elif machine.phase is Phase.CLOSED and machine.error is not None:
            self._participants.return_to_committed()
            records.give_up(machine.error)
        records.schedule()

    # requests

    def _send(self, call: TransactionCall) -> None:
        key, key_type = self._key(call.group)
        node = self._client.coordinator(key, key_type)
        if node is not None:
            self._submit(call, node)
            return
        self._broker = "any broker"
        found, failed = partial(self._found, call), partial(self._lost, call)
        guard = self._client.owner.guard
        self._client.find_coordinator(key, key_type, guard(found), guard(failed), timeout_s=self._request_timeout_s)

    def _key(self, group: str | None) -> tuple[str, int]:
        return (self.machine.transactional_id, TRANSACTION) if group is None else (group, GROUP)

    def _found(self, call: TransactionCall, node: int) -> None:
        self._submit(call, node)

    def _submit(self, call: TransactionCall, node: int) -> None:
        address = self._client.view.brokers.get(node)
        self._broker = f"broker {node}" if address is None else f"broker {node} ({address.host}:{address.port})"
        guard = self._client.owner.guard
        answered, lost = partial(self._answered, call, node), partial(self._lost, call)
        timeout_s, version_max = self._request_timeout_s, call.version_max
        self._client.submit(
            node, call.request, guard(answered), guard(lost), timeout_s=timeout_s, version_max=version_max
        )

    def _answered(self, call: TransactionCall, node: int, response: Any) -> None:
        if call.group is None:
            level = self._client.feature(node, FEATURE)
            self.machine.version = V2 if level is not None and level >= V2 else V1
        self.machine.answered(call, response, self._client.loop.time(), self._broker)
        self._ended()

    def _lost(self, call: TransactionCall, error: KafkaError) -> None:
        if isinstance(error, ClientUseError):
            return  # the client is being closed: each further request would fail at once
        self.machine.lost(call, error, self._client.loop.time(), self._broker)
        self._ended()

    def _ended(self) -> None:
        lost = self.machine.lost_coordinators
        while lost:
            self._client.forget_coordinator(*self._key(lost.pop()))
        self._follow()
        self._records.schedule()

    # calls of the application

    @property
    def open(self) -> bool:
        """Whether the application has begun a transaction and not ended it."""
        return self.machine.phase in (Phase.OPEN, Phase.FAILED)

    @property
    def count(self) -> int:
        """Number of transactions that have ended."""
        return self.machine.ended

    def raise_error(self) -> None:
        """Raise the error of a closed producer, or of a transaction that must be aborted."""
        if self.machine.phase is Phase.CLOSED and self.machine.error is not None:
            raise self.machine.error.with_traceback(None)
        if self.machine.phase is Phase.FAILED:
            raise self.machine.abort_error()

    async def start(self) -> None:
        """Get the producer id; every other producer of this transactional id is fenced.

        Raises:
            KafkaTimeoutError: no coordinator has assigned it in time. KafkaError: the coordinator has rejected it.
        """
        await self._wait(lambda: self.machine.phase is not Phase.STARTING, None, "no producer id was assigned")
        self.raise_error()

    async def begin(self, consumers: Iterable[object], timeout_s: float | None) -> None:
        """Open a transaction; wait for the end of the last one.

        Arguments:
            consumers: that return to their committed offsets if the transaction is aborted.
            timeout_s: in seconds, None = `default_api_timeout_s`.

        Raises:
            ClientUseError: a transaction is open. KafkaTimeoutError: the last one has not ended in time.
            ProducerFencedError, KafkaError: the producer cannot continue.
        """
        machine = self.machine
        if self.open:
            raise ClientUseError(f"{self._id()}: a transaction is open; commit or abort it first")
        self._participants.add(consumers)
        await self._wait(
            lambda: machine.phase in (Phase.READY, Phase.CLOSED, Phase.OPEN, Phase.FAILED),
            timeout_s,
            "the last transaction has not ended",
        )
        self.raise_error()
        if self.closing:
            raise ClientUseError("this Producer is being closed")
        if machine.phase is not Phase.READY:
            raise ClientUseError(f"{self._id()}: another task has begun a transaction; one producer has one at a time")
        machine.begin()
        self._phase = Phase.OPEN
        self._records.begin_transaction(machine.identity, machine.version)

    async def send_offsets(self, source: TransactionalConsumer | Offsets, group: Any, timeout_s: float | None) -> None:
        """Commit offsets with the transaction.

        Arguments:
            source: a consumer, or offsets by partition.
            group: metadata or name of the group; None with a consumer.
            timeout_s: in seconds, None = `default_api_timeout_s`.

        Raises:
            TransactionAbortedError: the transaction must be aborted. ClientUseError: none is open.
        """
        machine = self.machine
        self.raise_error()
        if machine.phase is not Phase.OPEN:
            raise ClientUseError(f"{self._id()}: {NO_TRANSACTION}")
        if isinstance(source, TransactionalConsumer):
            self._participants.add([source])
            offsets, member = source.offsets_to_send(), source.group_metadata()
        else:
            if group is None:
                raise ClientUseError("send_offsets: pass the group of the offsets, consumer.group_metadata() or its id")
            offsets, member = offsets_by_partition(source), member_of(group)
        outcome: list[KafkaError | None] = []
        machine.send_offsets(OffsetsToSend(offsets, member, outcome.append))
        self._records.schedule()
        try:
            await self._wait(lambda: bool(outcome), timeout_s, f"the offsets of group {member.group} were not sent")
        except KafkaTimeoutError as error:
            machine.fail(error)
            self._follow()
        except asyncio.CancelledError:
            machine.fail(KafkaError("send_offsets was cancelled"))
            self._follow()
            raise
        if outcome[0] is not None:
            raise outcome[0]

    async def commit(self, timeout_s: float | None) -> None:
        """Commit the open transaction, and wait until the coordinator has decided; a failed one is aborted.

        Arguments:
            timeout_s: in seconds; None = until all records have their outcomes, then `default_api_timeout_s`.

        Raises:
            TransactionAbortedError: it is aborted. OutcomeUnknownError: the coordinator has not answered in time; a
            second call waits again. ClientUseError: no transaction is open.
        """
        machine = self.machine
        if machine.phase is Phase.CLOSED:
            self.raise_error()
        if not self.open and machine.phase is not Phase.COMMITTING:
            raise ClientUseError(f"{self._id()}: {NO_TRANSACTION}")
        number, transaction = machine.ended + 1, machine.transaction
        machine.commit()
        self._follow()
        self._records.schedule()
        try:
            await self._wait_committed(number, timeout_s)
        except KafkaTimeoutError as error:
            if transaction.end_sent:
                raise OutcomeUnknownError(f"{error}; commit_transaction() waits again for the outcome") from error
            machine.fail(error)
            self._follow()
            await self._wait(lambda: machine.ended >= number, None, "the transaction was not aborted")
        except asyncio.CancelledError:
            machine.abort()
            self._follow()
            raise
        self.raise_error()
        if transaction.error is not None:
            raise machine.abort_error()

    async def _wait_committed(self, number: int, timeout_s: float | None) -> None:
        machine = self.machine
        until = None if timeout_s is None else self._client.loop.time() + timeout_s
        if until is None:  # the deadline of each record bounds this wait
            await self._records.wait_until(
                lambda: machine.ended >= number or not self._records.records_open(), None, ""
            )
        left_s = None if until is None else max(0.0, until - self._client.loop.time())
        await self._wait(lambda: machine.ended >= number, left_s, "the transaction was not committed")

    async def abort(self, timeout_s: float | None) -> None:
        """Abort the open transaction. One that has failed by itself and is aborted needs no call, but may have one.

        Arguments:
            timeout_s: in seconds, None = `default_api_timeout_s`.

        Raises:
            KafkaTimeoutError: the coordinator has not answered in time; the abort continues. ClientUseError: no
            transaction is open.
        """
        machine = self.machine
        if machine.phase in (Phase.READY, Phase.STARTING) and machine.transaction.error is not None:
            return
        number = machine.ended + 1
        self.begin_abort()
        if machine.phase in (Phase.READY, Phase.STARTING):
            raise ClientUseError(f"{self._id()}: {NO_TRANSACTION}")
        if machine.phase is not Phase.CLOSED:
            await self._wait(lambda: machine.ended >= number, timeout_s, "the transaction was not aborted")
        if machine.phase is Phase.CLOSED:
            self.raise_error()

    def begin_abort(self) -> None:
        """Begin to abort the open transaction, without a wait."""
        self.machine.abort()
        self._follow()
        self._records.schedule()

    async def close(self, timeout_s: float | None) -> None:
        """Abort the open transaction, or wait for the end of the last one.

        Arguments:
            timeout_s: in seconds; then the coordinator aborts it after `transaction_timeout_ms`.
        """
        machine = self.machine
        self.begin_abort()
        ended = (Phase.READY, Phase.CLOSED, Phase.STARTING)
        await self._wait(lambda: machine.phase in ended, timeout_s, "the transaction has not ended")

    def _id(self) -> str:
        return f"transactional id {self.machine.transactional_id}"

    async def _wait(self, condition: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        """Wait for the machine. Raises KafkaTimeoutError, which names the cause."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            await self._records.wait_until(condition, timeout_s, "")
        except KafkaTimeoutError:
            machine = self.machine
            cause = machine.last_error or self._client.unreachable() or f"{self._broker} has not answered"
            text = f"{self._id()}: {what} within {timeout_s:g} s: {cause}; is the coordinator reachable?"
            raise KafkaTimeoutError(text) from machine.last_error
