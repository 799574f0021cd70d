"""One batch on its way into one partition, from the request to the answer.

An `Append` is finished exactly once: refused at once, written at the end of the pass, or later still when it had to
leave the loop (decompression of a large batch, the first opening of a log) or waits for a flush.
"""

from collections.abc import Callable, Sequence

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ACKS_ALL

NO_OFFSET = -1
NO_TIMESTAMP = -1


class Append:
    """What a producer sent for one partition, and what became of it.

    Arguments:
        batch: the record batch as received, writable; valid until the pass ends unless `keep` was called.
        required_acks: 0, 1, or -1 for all in-sync replicas.
        done: called once with this object when the outcome is known.

    Outcome: `error` (Kafka error code), `message`, `record_errors` as (index in the batch, text), `base_offset`,
    `log_append_time_ms` (-1 for CreateTime), `log_start_offset`.
    `zstd_allowed`: whether the request's version may carry zstd; `transactional`: whether it named a transactional id.
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
        "transactional",
        "zstd_allowed",
    )

    own = False

    def __init__(self, batch: memoryview, required_acks: int, done: Callable[["Append"], None]) -> None:
        self.batch = batch
        self.required_acks = required_acks
        self._done: Callable[[Append], None] | None = done
        self.error = 0
        self.message: str | None = None
        self.record_errors: Sequence[tuple[int, str]] = ()
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.log_start_offset = NO_OFFSET
        self.zstd_allowed = True
        self.transactional = False

    def keep(self) -> None:
        """Copy the batch, because it is needed after the pass that received it."""
        self.batch = memoryview(bytearray(self.batch))

    def reject(self, error: int, message: str | None = None) -> None:
        """Finish without having appended anything."""
        self.message = message
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.log_start_offset = NO_OFFSET
        self.finish(error)

    def fail(self) -> None:
        """Refuse it because something unforeseen was raised on its way, if it is not finished yet."""
        if self._done is not None:
            self.reject(KafkaErrorCode.UNKNOWN_SERVER_ERROR)

    def finish(self, error: int = 0) -> None:
        """Tell the outcome; the bytes are no longer needed."""
        self.error = error
        done, self._done = self._done, None
        assert done is not None, "an append is finished once"
        del self.batch
        done(self)


class OwnAppend(Append):
    """A batch that the broker made itself, such as the marker that ends a transaction; nobody inspects it.

    Arguments:
        batch: one whole batch, writable; kept until it is written.
        done: as for Append.
    """

    __slots__ = ()
    own = True

    def __init__(self, batch: bytearray, done: Callable[[Append], None]) -> None:
        super().__init__(memoryview(batch), ACKS_ALL, done)
