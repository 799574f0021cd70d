"""The append of one batch to one partition, from the request to the response.

An `Append` is finished exactly once: when it is rejected, when it is written at the end of the loop iteration, or later
if a job has to decompress the batch or open the log, or if the append waits for a flush or for other replicas.

An unexpected exception has one of two error codes, by what is known about the log. Each client retries both with the
same sequence, so that nothing is lost and nothing appended twice; UNKNOWN_SERVER_ERROR is not among them, because
clients fail the batch then and restart the sequences of later ones (docs/durability.md).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ACKS_ALL

if TYPE_CHECKING:
    from kafkalite._speedups.storage.producer_state import Verification
    from kafkalite.records import ValidationResult

NO_OFFSET = -1
NO_TIMESTAMP = -1
TIMEOUT_MS = 30_000  # request.timeout.ms of Kafka's producer
NOT_APPENDED = KafkaErrorCode.KAFKA_STORAGE_ERROR
UNCONFIRMED = KafkaErrorCode.REQUEST_TIMED_OUT  # as DelayedProduce: the log may have the batch
WRITTEN = memoryview(b"")
BROKEN = "internal error, see the log of the broker"


class TransactionOfAppend(NamedTuple):
    """The transaction to which the batches of a request belong.

    Arguments:
        transactional_id: of the request.
        adds: whether the coordinator adds the partition to the transaction (TV2), else it verifies it.
        abortable: whether the client knows TRANSACTION_ABORTABLE.
    """

    transactional_id: str
    adds: bool
    abortable: bool


class WaitingBatch:
    """A transactional batch that waits, or has waited, for the transaction coordinator (`verification`).

    Arguments:
        transaction: of the request.
        validation: the result of the validation of the batch.
        producer_id, epoch, sequence: of the batch.

    Attributes:
        verification: with which the batch opens the transaction, once its check has begun.
        error: the coordinator's error code, 0 before its answer.
    """

    __slots__ = ("epoch", "error", "producer_id", "sequence", "transaction", "validation", "verification")

    def __init__(
        self,
        transaction: TransactionOfAppend,
        validation: "ValidationResult",
        producer_id: int,
        epoch: int,
        sequence: int,
    ) -> None:
        self.transaction = transaction
        self.validation = validation
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.verification: Verification | None = None
        self.error = 0


class BatchOwner:
    """Receives the results of appends, as a plain callback does, and learns when their batches are not used."""

    __slots__ = ()

    def __call__(self, append: "Append") -> None:
        """The result is known."""
        raise NotImplementedError

    def batch_released(self, append: "Append") -> None:
        """The batch is written; the result is not known yet."""
        raise NotImplementedError


class Append:
    """A batch of a producer for one partition, and the result of its append.

    Arguments:
        batch: the record batch as received, writable; valid until the loop iteration ends, unless `keep` was called.
        required_acks: 0, 1, or -1 for all in-sync replicas.
        done: called once with this object when the result is known; perhaps a `BatchOwner`.
        timeout_ms: how long it may wait for the other replicas; only with acks=all.

    Attributes:
        zstd_allowed: whether the version of the request allows zstd.
        transaction: that of the request; None: it has no transactional id.
        error, message: the Kafka error code (0: appended) and its explanation.
        record_errors: (index in the batch, text) of each invalid record.
        base_offset, log_start_offset: -1 if nothing was appended.
        log_append_time_ms: -1 for CreateTime.
    """

    __slots__ = (
        "_done",
        "base_offset",
        "batch",
        "error",
        "log_append_time_ms",
        "log_start_offset",
        "message",
        "record_errors",
        "required_acks",
        "timeout_ms",
        "transaction",
        "zstd_allowed",
    )

    own = False

    def __init__(
        self, batch: memoryview, required_acks: int, done: Callable[["Append"], None], timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.batch = batch
        self.required_acks = required_acks
        self.timeout_ms = timeout_ms
        self._done: Callable[[Append], None] | None = done
        self.error = 0
        self.message: str | None = None
        self.record_errors: Sequence[tuple[int, str]] = ()
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.log_start_offset = NO_OFFSET
        self.zstd_allowed = True
        self.transaction: TransactionOfAppend | WaitingBatch | None = None

    def keep(self) -> None:
        """Copy the batch, because it is needed after the loop iteration that received it."""
        self.batch = memoryview(bytearray(self.batch))

    def release_batch(self) -> None:
        """Release the bytes of a written batch whose append is not finished yet."""
        self.batch = WRITTEN
        if isinstance(self._done, BatchOwner):
            self._done.batch_released(self)

    def reject(self, error: int, message: str | None = None) -> None:
        """Finish with an error; nothing was appended."""
        self.message = message
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.log_start_offset = NO_OFFSET
        self.finish(error)

    @property
    def finished(self) -> bool:
        """Whether the result was reported."""
        return self._done is None

    def fail(self) -> None:
        """Reject it after an unexpected exception: the log does not have the batch."""
        self.reject(NOT_APPENDED, f"{BROKEN}; the batch was not appended")

    def fail_unconfirmed(self) -> None:
        """Finish it after an unexpected exception behind its write: the log may have the batch."""
        self.reject(UNCONFIRMED, f"{BROKEN}; the batch may have been appended")

    def finish(self, error: int = 0) -> None:
        """Report the result and release the batch."""
        self.error = error
        done, self._done = self._done, None
        assert done is not None, "an append is finished once"
        del self.batch
        done(self)


class OwnAppend(Append):
    """A batch that the broker created, such as the marker that ends a transaction; it is not validated.

    Arguments:
        batch: one whole batch, writable; kept until it is written.
        done: as for Append.
        verification: of a transactional batch, from `Log.begin_verification`; None: the batch may open a transaction.
        marker_version: the transaction version of a marker: 2 needs a greater epoch than that of the batches.
    """

    __slots__ = ("marker_version", "verification")
    own = True

    def __init__(
        self,
        batch: bytearray,
        done: Callable[[Append], None],
        verification: "Verification | None" = None,
        marker_version: int = 0,
    ) -> None:
        # Without `super()`, which costs half as much as the remaining statements.
        Append.__init__(self, memoryview(batch), ACKS_ALL, done)
        self.verification = verification
        self.marker_version = marker_version
