"""The calls of the application: begin, send offsets, commit, abort, and their waits.

Invariants:
1. The machine continues without a waiter: a cancelled or late call stops no abort and no commit whose EndTxn was sent.
   `begin` and `close` wait for what still runs.
2. A deadline passes into an abort, unless EndTxn was sent: then the outcome is unknown, and the next `commit`
   returns it, also if the coordinator has answered meanwhile.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from kafkalite.errors import ClientUseError, KafkaError, KafkaTimeoutError, OutcomeUnknownError
from kafkalite_sdk.producer.transactions.driver import NO_TRANSACTION, TransactionDriver
from kafkalite_sdk.producer.transactions.participants import (
    Offsets,
    TransactionalConsumer,
    member_of,
    offsets_by_partition,
)
from kafkalite_sdk.producer.transactions.state import OffsetsToSend, OpenTransaction, Phase
from kafkalite_sdk.values import DetachedTransaction

COMMIT_LEFT = "its commit was sent, so it cannot be aborted; commit_transaction() waits for the outcome"


class Transactions:
    """The transactions of one producer.

    Arguments:
        driver: sends the requests.

    Attributes:
        driver: the argument.
        machine: decides.
        closing: no transaction begins any more.
    """

    def __init__(self, driver: TransactionDriver) -> None:
        self.machine = driver.machine
        self.closing = False
        self.driver = driver
        self._in_doubt: tuple[int, OpenTransaction] | None = None  # number and transaction of a commit without outcome

    @property
    def open(self) -> bool:
        """Whether the application has begun a transaction and not ended it."""
        return self.machine.phase in (Phase.OPEN, Phase.FAILED)

    @property
    def count(self) -> int:
        """Number of transactions that have ended."""
        return self.machine.ended

    @property
    def in_doubt(self) -> bool:
        """Whether a commit has ended without its outcome, and none has followed."""
        return self._in_doubt is not None

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
        await self.driver.wait(lambda: self.machine.phase is not Phase.STARTING, None, "no producer id was assigned")
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
            raise ClientUseError(f"{self.driver.name}: a transaction is open; commit or abort it first")
        self.driver.participants.add(consumers)
        await self.driver.wait(
            lambda: machine.phase in (Phase.READY, Phase.CLOSED, Phase.OPEN, Phase.FAILED),
            timeout_s,
            "the last transaction has not ended",
        )
        self.raise_error()
        if self.closing:
            raise ClientUseError("this Producer is being closed")
        if machine.phase is not Phase.READY:
            raise ClientUseError(
                f"{self.driver.name}: another task has begun a transaction; one producer has one at a time"
            )
        self._in_doubt = None
        self.driver.begin()

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
            raise ClientUseError(f"{self.driver.name}: {NO_TRANSACTION}")
        if isinstance(source, TransactionalConsumer):
            self.driver.participants.add([source])
            offsets, member = source._offsets_to_send(), source.group_metadata()
        else:
            if group is None:
                raise ClientUseError("send_offsets: pass the group of the offsets, consumer.group_metadata() or its id")
            offsets, member = offsets_by_partition(source), member_of(group)
        outcome: list[KafkaError | None] = []
        machine.send_offsets(OffsetsToSend(offsets, member, outcome.append))
        self.driver.changed()
        try:
            await self.driver.wait(
                lambda: bool(outcome), timeout_s, f"the offsets of group {member.group} were not sent"
            )
        except KafkaTimeoutError as error:
            machine.fail(error)
            self.driver.changed()
        except asyncio.CancelledError:
            machine.fail(KafkaError("send_offsets was cancelled"))
            self.driver.changed()
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
        number, transaction = self._to_commit()
        machine = self.machine
        machine.commit()
        self.driver.changed()
        try:
            await self._wait_committed(number, timeout_s)
        except KafkaTimeoutError as error:
            if transaction.end_sent:
                self._in_doubt = number, transaction
                raise OutcomeUnknownError(f"{error}; commit_transaction() waits again for the outcome") from error
            machine.fail(error)
            self.driver.changed()
            await self.driver.wait(lambda: machine.ended >= number, None, "the transaction was not aborted")
        except asyncio.CancelledError:
            if transaction.end_sent:
                self._in_doubt = number, transaction
            machine.abort()
            self.driver.changed()
            raise
        self._in_doubt = None
        self.raise_error()
        if transaction.error is not None:
            raise machine.abort_error()

    def _to_commit(self) -> tuple[int, OpenTransaction]:
        """Return the transaction whose commit is in doubt, or the open one, and its number. Raises as `commit`."""
        machine = self.machine
        if self._in_doubt is not None:
            return self._in_doubt
        if machine.phase is Phase.CLOSED:
            self.raise_error()
        if not self.open and machine.phase is not Phase.COMMITTING:
            raise ClientUseError(f"{self.driver.name}: {NO_TRANSACTION}")
        return machine.ended + 1, machine.transaction

    async def _wait_committed(self, number: int, timeout_s: float | None) -> None:
        machine = self.machine
        until = None if timeout_s is None else self.driver.time() + timeout_s
        if until is None:  # the deadline of each record bounds this wait
            await self.driver.records.wait_until(
                lambda: machine.ended >= number or not self.driver.records.records_open(), None, ""
            )
        left_s = None if until is None else max(0.0, until - self.driver.time())
        await self.driver.wait(lambda: machine.ended >= number, left_s, "the transaction was not committed")

    async def abort(self, timeout_s: float | None) -> None:
        """Abort the open transaction. One that has failed by itself and is aborted needs no call, but may have one.

        Arguments:
            timeout_s: in seconds, None = `default_api_timeout_s`.

        Raises:
            KafkaTimeoutError: the coordinator has not answered in time; the abort continues. ClientUseError: no
            transaction is open, or its commit was sent.
        """
        machine = self.machine
        if machine.phase in (Phase.READY, Phase.STARTING) and machine.transaction.error is not None:
            return
        if self._in_doubt is not None or (machine.phase is Phase.COMMITTING and machine.transaction.end_sent):
            raise ClientUseError(f"{self.driver.name}: {COMMIT_LEFT}")
        number = machine.ended + 1
        self.begin_abort()
        if machine.phase in (Phase.READY, Phase.STARTING):
            raise ClientUseError(f"{self.driver.name}: {NO_TRANSACTION}")
        if machine.phase is not Phase.CLOSED:
            await self.driver.wait(lambda: machine.ended >= number, timeout_s, "the transaction was not aborted")
        if machine.phase is Phase.CLOSED:
            self.raise_error()

    async def detach(self, timeout_s: float | None) -> DetachedTransaction | None:
        """Leave the open transaction to another process when all of its records are acknowledged.

        Arguments:
            timeout_s: in seconds; None = until all records have their outcomes.

        Raises:
            TransactionAbortedError: it must be aborted. KafkaTimeoutError: records have no outcome in time; it is
            still open here. ClientUseError: no transaction is open.
        """
        machine, records = self.machine, self.driver.records
        if not self.open:
            self.raise_error()
            raise ClientUseError(f"{self.driver.name}: {NO_TRANSACTION}")
        text = f"{self.driver.name}: records of the transaction are not acknowledged"
        await records.wait_until(
            lambda: machine.phase is not Phase.OPEN or not (records.records_open() or machine.transaction.offsets),
            timeout_s,
            text,
        )
        self.raise_error()
        if machine.phase is not Phase.OPEN:
            raise ClientUseError(f"{self.driver.name}: {NO_TRANSACTION}")
        found = machine.detach()
        self.driver.changed()
        return found

    def begin_abort(self) -> None:
        """Begin to abort the open transaction, without a wait."""
        self.machine.abort()
        self.driver.changed()

    async def close(self, timeout_s: float | None) -> None:
        """Abort the open transaction, or wait for the end of the last one.

        Arguments:
            timeout_s: in seconds; then the coordinator aborts it after `transaction_timeout_ms`.
        """
        machine = self.machine
        self.begin_abort()
        ended = (Phase.READY, Phase.CLOSED, Phase.STARTING)
        await self.driver.wait(lambda: machine.phase in ended, timeout_s, "the transaction has not ended")
