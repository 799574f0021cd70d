"""The transactional batches of a partition that wait for the transaction coordinator (KIP-890).

1. A batch waits if its producer has no open transaction with its epoch in the partition. Later batches of the
   transaction are appended at once.
2. It waits as a copy, after its validation. The frame of its request counts as request memory until the response.
3. Only later transactional batches of the same producer wait behind it. When it is appended, they follow in order; when
   it is rejected, those of its epoch are rejected with the same error, since they are out of order then.
4. The coordinator's answer arrives in any case (`TransactionChecks`). An answer to a batch that the partition has
   rejected meanwhile, because its role has ended, is ignored.
5. While a job of the partition is running, an answered batch stays here, and is appended before the queued ones.

Sources: ReplicaManager.handleProduceAppend and AddPartitionsToTxnManager.java of Apache Kafka 4.3.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkalite.callbacks import call_all, call_each
from kafkalite.cluster.partition.append import Append, WaitingBatch
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.records import ValidationResult
from kafkalite.storage.log.log import Log

if TYPE_CHECKING:
    from kafkalite._speedups.storage.producer_state import Verification

PRODUCER = struct.Struct(">qhi")  # producer id, epoch and base sequence of a batch
PRODUCER_AT = 43
# Without the Python frame of `TopicPartition(...)`: a request may have 1,000 partitions.
topic_partition: Callable[[tuple[str, int]], TopicPartition] = partial(tuple.__new__, TopicPartition)
NOT_ENOUGH_REPLICAS = KafkaErrorCode.NOT_ENOUGH_REPLICAS

# Errors of the coordinator that a producer receives as they are.
KNOWN_TO_PRODUCERS = frozenset(
    {
        KafkaErrorCode.INVALID_PRODUCER_EPOCH,
        KafkaErrorCode.INVALID_PRODUCER_ID_MAPPING,
        KafkaErrorCode.INVALID_TXN_STATE,
        KafkaErrorCode.TRANSACTION_ABORTABLE,
        KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# Those that become another one.
TRANSLATED = {
    KafkaErrorCode.PRODUCER_FENCED: KafkaErrorCode.INVALID_PRODUCER_EPOCH,
    KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED: KafkaErrorCode.INVALID_TXN_STATE,
}


# The coordinator does not know the producer, or its epoch has ended: an attempt with them can never succeed.
UNKNOWN_PRODUCER = frozenset(
    {
        KafkaErrorCode.INVALID_PRODUCER_ID_MAPPING,
        KafkaErrorCode.INVALID_PRODUCER_EPOCH,
        KafkaErrorCode.PRODUCER_FENCED,
    }
)


class TransactionChecks(Protocol):
    """Asks the coordinators of transactions."""

    @property
    def verifies(self) -> bool:
        """Whether partitions of TV1 producers are verified (`transaction.partition.verification.enable`)."""

    def check(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        on_result: Callable[[int], None],
        before_repetition: Callable[[], None] | None = None,
    ) -> None:
        """Verify that a partition is in an open transaction, or add it.

        Arguments:
            transactional_id, producer_id, epoch: of the producer.
            partition: of the batch.
            add: whether the partition is added.
            on_result: called once with 0 or the coordinator's error code, perhaps before this returns; after at most
                `request.timeout.ms`.
            before_repetition: called before each repetition of the question.
        """

    def transaction_completed(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """Repeat the checks that wait for the end of the previous transaction now.

        Arguments:
            transactional_id: of a transaction that is complete.
            producer_id, epoch: of the next one.
        """

    def write_pending(self) -> None:
        """Write what coordinators of this broker have appended outside a loop iteration."""

    def close(self) -> None:
        """End all checks, and later ones at once."""


class VerifyingPartition(Protocol):
    """The partition, as its waiting batches use it."""

    topic: str
    index: int
    log: Log | None

    @property
    def is_in_job(self) -> bool:
        """Whether a job works on an append or on the log, or the appends are paused."""

    def append_waiting(self, append: Append) -> None:
        """Continue an append that has waited."""


class WaitingBatches:
    """The waiting batches of a partition.

    Arguments:
        partition: led by this broker.
        checks: asks the coordinators.
    """

    __slots__ = ("_answered", "_checks", "_partition", "_queues")

    def __init__(self, partition: VerifyingPartition, checks: TransactionChecks) -> None:
        self._partition = partition
        self._checks = checks
        self._queues: dict[int, list[Append]] = {}  # by producer id; the check of the first one is in progress
        self._answered: list[Append] = []  # while a job is running

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, append: Append, validation: ValidationResult) -> None:
        """Let a batch wait, behind an earlier one of its producer or for the coordinator."""
        waiting = append.transaction
        assert waiting is not None, "transactional batches without a transactional id are rejected"
        if not isinstance(waiting, WaitingBatch):
            append.keep()
            waiting = WaitingBatch(waiting, validation, *PRODUCER.unpack_from(append.batch, PRODUCER_AT))
            append.transaction = waiting
        queue = self._queues.get(waiting.producer_id)
        if queue is not None:
            queue.append(append)
            return
        self._queues[waiting.producer_id] = [append]
        try:
            self._check(append, waiting)
        except Exception:
            if self._is_first(append, waiting):
                del self._queues[waiting.producer_id]
            raise

    def _check(self, append: Append, waiting: WaitingBatch) -> None:
        partition, transaction = self._partition, waiting.transaction
        log, adds = partition.log, transaction.adds
        assert log is not None
        waiting.verification = log.begin_verification(waiting.producer_id, waiting.epoch, waiting.sequence, adds)
        if not adds and not self._checks.verifies:
            self._end_check(append, waiting, 0)
            return
        self._checks.check(
            transaction.transactional_id,
            waiting.producer_id,
            waiting.epoch,
            topic_partition((partition.topic, partition.index)),
            add=adds,
            on_result=partial(self._end_check, append, waiting),
            before_repetition=partial(self._renew, append, waiting) if adds else None,
        )

    def _renew(self, append: Append, waiting: WaitingBatch) -> None:
        """Begin another verification where a marker of the previous transaction has removed it: the coordinator is
        asked after that marker.
        """
        log = self._partition.log
        if log is not None and self._is_first(append, waiting):
            producer_id, epoch, sequence = waiting.producer_id, waiting.epoch, waiting.sequence
            waiting.verification = log.begin_verification(producer_id, epoch, sequence, True, waiting.verification)

    def _is_first(self, append: Append, waiting: WaitingBatch) -> bool:
        queue = self._queues.get(waiting.producer_id)
        return queue is not None and queue[0] is append

    def _end_check(self, append: Append, waiting: WaitingBatch, error: int) -> None:
        """The coordinator has answered with an error code or 0."""
        if error:
            end_attempt(self._partition.log, waiting.producer_id, waiting.verification, error)
        queue = self._queues.get(waiting.producer_id)
        if queue is None or queue[0] is not append:
            return
        waiting.error = error
        if self._partition.is_in_job:
            self._answered.append(append)
        else:
            self._continue(waiting)

    def write_pending(self) -> None:
        """Write what coordinators of this broker have appended for the batches of the queue."""
        self._checks.write_pending()

    def _is_entry_removed(self, waiting: WaitingBatch) -> bool:
        log = self._partition.log
        if log is None:
            return False
        error = log.transaction_error(waiting.producer_id, waiting.epoch, waiting.verification)
        return error == KafkaErrorCode.INVALID_TXN_STATE

    def job_ended(self) -> None:
        """Continue with the batches that were answered while a job was running."""
        answered, self._answered = self._answered, []
        for append in answered:
            waiting = append.transaction
            assert isinstance(waiting, WaitingBatch)
            if self._is_first(append, waiting):
                self._continue(waiting)

    def _continue(self, waiting: WaitingBatch) -> None:
        """Append or reject the first batch of a producer, then those behind it.

        TV2: a marker of the previous transaction has removed the entry if it arrived while the coordinator was asked.
        The check is repeated with another entry, as Kafka repeats the whole append after CONCURRENT_TRANSACTIONS.
        """
        if not waiting.error and waiting.transaction.adds and self._is_entry_removed(waiting):
            self._check(self._queues[waiting.producer_id][0], waiting)
            return
        queue = self._queues.pop(waiting.producer_id)
        if not waiting.error and len(queue) == 1:
            self._partition.append_waiting(queue[0])
            return
        if not waiting.error:
            call_each(self._partition.append_waiting, queue)
            return
        rejected = [append for append in queue if epoch_of(append) == waiting.epoch]
        others = [append for append in queue if epoch_of(append) != waiting.epoch]
        call_all(
            partial(call_each, partial(reject_unverified, waiting.error), rejected),
            partial(call_each, self._partition.append_waiting, others),
        )

    def reject(self, error: int) -> None:
        """Reject all with a Kafka error code: the role of the partition has ended."""
        queues, self._queues = self._queues, {}
        self._answered.clear()
        call_each(lambda append: append.reject(error), [append for queue in queues.values() for append in queue])


def end_attempt(log: Log | None, producer_id: int, verification: "Verification | None", error: int) -> None:
    """End an attempt to open a transaction, if it can never succeed.

    Arguments:
        log: of the partition; None: it is not open any more.
        producer_id: of the batch.
        verification: of the attempt.
        error: of the coordinator.
    """
    if log is not None and verification is not None and error in UNKNOWN_PRODUCER:
        log.end_verification(producer_id, verification)


def epoch_of(append: Append) -> int:
    """Return the producer epoch of a waiting batch."""
    assert isinstance(append.transaction, WaitingBatch)
    return append.transaction.epoch


def reject_unverified(error: int, append: Append) -> None:
    """Reject a waiting batch with the error of Produce for an error of the coordinator."""
    waiting = append.transaction
    assert isinstance(waiting, WaitingBatch)
    code = produce_error(error, adds=waiting.transaction.adds, abortable=waiting.transaction.abortable)
    append.reject(code, f"the partition is not part of the transaction: {KafkaErrorCode(error).name}")


def produce_error(error: int, *, adds: bool, abortable: bool) -> int:
    """Return the error of Produce for an error of the coordinator.

    Errors that older clients may not retry become NOT_ENOUGH_REPLICAS, which each client retries without new metadata.

    Arguments:
        error: of the coordinator.
        adds: whether the client uses TV2, whose producers expect CONCURRENT_TRANSACTIONS.
        abortable: whether the client knows TRANSACTION_ABORTABLE (Produce 11).
    """
    if error == KafkaErrorCode.CONCURRENT_TRANSACTIONS and adds:
        return error
    if error == KafkaErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return KafkaErrorCode.INVALID_TXN_STATE
    return error if error in KNOWN_TO_PRODUCERS else TRANSLATED.get(KafkaErrorCode(error), NOT_ENOUGH_REPLICAS)
