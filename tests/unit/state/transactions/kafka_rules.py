"""What Apache Kafka 4.4 does, written again in the order of its methods: an oracle without a table.

A transaction is pending while its markers are written. Source: TransactionCoordinator.scala, TransactionMetadata.java.
"""

from collections.abc import Callable
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.transactions.states import TransactionState as State

LAST, MAX = 32766, 32767
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Result(NamedTuple):
    """The answer to InitProducerId and EndTxn."""

    error: int
    producer_id: int = -1
    epoch: int = -1


class ExhaustedError(Exception):
    """Kafka raises IllegalStateException: the epochs of the producer id are exhausted."""


class KafkaTransaction:
    """One transactional id.

    Arguments:
        next_id: returns a new producer id.
    """

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next_id = next_id
        self.exists = False
        self.producer_id = self.previous_id = self.next_producer_id = self.epoch = self.last_epoch = -1
        self.state = State.EMPTY
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.is_tv2 = False

    @property
    def values(self) -> tuple[object, ...]:
        """What the record has."""
        ids = self.producer_id, self.epoch, self.previous_id, self.next_producer_id, self.last_epoch
        return (self.state, *ids, self.partitions, self.is_tv2)

    # handleInitProducerId

    def init(self, expected: tuple[int, int] | None, *, level_2: bool) -> Result:
        if not self.exists:
            self.exists, self.producer_id = True, self._next_id()
            self.previous_id = self.producer_id  # with the first transition
        if self.state in PREPARED:
            return Result(Error.CONCURRENT_TRANSACTIONS)
        if expected is not None and not self._is_valid(*expected):
            return Result(Error.PRODUCER_FENCED)
        if self.state is State.ONGOING:
            self._fence(level_2)
            return Result(Error.CONCURRENT_TRANSACTIONS)
        if self.epoch >= LAST and (expected is None or expected[1] == self.epoch):
            self.last_epoch = -1 if expected is None else self.epoch
            self.previous_id, self.producer_id, self.epoch = self.producer_id, self._next_id(), 0
        else:
            self._increment(expected)
        self.state, self.partitions = State.EMPTY, frozenset()
        return Result(0, self.producer_id, self.epoch)

    def _is_valid(self, producer_id: int, epoch: int) -> bool:
        rotated = producer_id == self.previous_id and epoch >= LAST
        return self.epoch == -1 or producer_id == self.producer_id or rotated

    def _increment(self, expected: tuple[int, int] | None) -> None:
        """prepareIncrementProducerEpoch."""
        if self.epoch >= LAST:
            raise ExhaustedError
        if expected is None or self.epoch == -1 or expected[1] == self.epoch:
            self.last_epoch = -1 if expected is None else self.epoch
            self.epoch += 1
            self.previous_id = self.producer_id
        elif expected[1] != self.last_epoch:
            raise FencedError

    def _fence(self, level_2: bool) -> None:
        """prepareFenceProducerEpoch and endTransaction: the epoch is incremented once (KAFKA-19367)."""
        if level_2:
            self._prepare(State.PREPARE_ABORT)
        else:
            self.epoch = min(self.epoch + 1, MAX)
            self.last_epoch = -1
            self.state, self.is_tv2, self.previous_id = State.PREPARE_ABORT, False, self.producer_id

    # handleAddPartitionsToTransaction, handleVerifyPartitionsInTransaction

    def add(self, producer: tuple[int, int], partitions: frozenset[TopicPartition], *, tv2: bool) -> int:
        if self.state in PREPARED:
            return Error.CONCURRENT_TRANSACTIONS
        if error := self._compare(producer):
            return error
        if self.state is State.ONGOING and partitions <= self.partitions:
            return 0
        self.state, self.partitions = State.ONGOING, self.partitions | partitions
        self.previous_id, self.is_tv2 = self.producer_id, tv2
        return 0

    def verify(self, producer: tuple[int, int], partition: TopicPartition) -> int:
        if error := self._compare(producer):
            return error
        if self.state in PREPARED:
            return Error.CONCURRENT_TRANSACTIONS
        return 0 if partition in self.partitions else Error.TRANSACTION_ABORTABLE

    def _compare(self, producer: tuple[int, int]) -> int:
        if not self.exists or producer[0] != self.producer_id:
            return Error.INVALID_PRODUCER_ID_MAPPING
        return 0 if producer[1] == self.epoch else Error.PRODUCER_FENCED

    # endTransactionWithTV1

    def end_tv1(self, producer: tuple[int, int], *, commit: bool) -> Result:
        if error := self._compare(producer):
            return Result(error)
        if self.state in PREPARED:
            return Result(Error.CONCURRENT_TRANSACTIONS)
        if self.state is State.ONGOING:
            self.state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
            self.is_tv2, self.previous_id = False, self.producer_id
            return Result(0)
        complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        return Result(0 if self.state is complete else Error.INVALID_TXN_STATE)

    # endTransaction

    def end_tv2(self, producer: tuple[int, int], *, commit: bool) -> Result:
        after_overflow = self.previous_id == producer[0] and producer[1] == LAST and self.epoch == 0
        after_increment = self.epoch == producer[1] + 1
        if self.state in PREPARED:
            return Result(Error.CONCURRENT_TRANSACTIONS)
        if not self.exists or (producer[0] != self.producer_id and not after_overflow):
            return Result(Error.INVALID_PRODUCER_ID_MAPPING)
        is_current = producer[1] == self.epoch
        is_retry = after_increment or after_overflow
        is_complete = self.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        if not is_current and not (is_complete and is_retry):
            return Result(Error.PRODUCER_FENCED)
        if is_complete and is_retry:
            same = commit == (self.state is State.COMPLETE_COMMIT)
            return Result(0, self.producer_id, self.epoch) if same else Result(Error.INVALID_TXN_STATE)
        if self.state is not State.ONGOING and commit:
            return Result(Error.INVALID_TXN_STATE)
        self._prepare(State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
        if self.next_producer_id >= 0:
            return Result(0, self.next_producer_id, 0)
        return Result(0, self.producer_id, self.epoch)

    def _prepare(self, state: State) -> None:
        """prepareAbortOrCommit with TV2."""
        self.next_producer_id = self._next_id() if self.epoch >= LAST else -1
        self.last_epoch = self.epoch
        self.epoch += 1
        self.state, self.is_tv2, self.previous_id = state, True, self.producer_id

    # time and markers

    def timed_out(self, *, level_2: bool) -> None:
        """abortTimedOutTransactions."""
        if self.state is State.ONGOING:
            self._fence(level_2)

    def markers_written(self) -> None:
        """prepareComplete."""
        if self.state not in PREPARED:
            return
        self.state, self.partitions, self.previous_id = State(self.state + 2), frozenset(), self.producer_id
        if self.next_producer_id >= 0:
            self.producer_id, self.epoch, self.next_producer_id = self.next_producer_id, 0, -1


class FencedError(Exception):
    """prepareIncrementProducerEpoch raises PRODUCER_FENCED."""
