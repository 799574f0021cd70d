"""Batches of records that a producer sends, and one awaitable per record."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from typing import Any, Protocol, final

from typing_extensions import Buffer

from kafkalite._speedups.records.batch_builder import Builder
from kafkalite.model import TopicPartition

__all__ = ["FutureRecordMetadata", "ProducerBatch", "RecordMetadata"]

class _Queue(Protocol):
    """A `PartitionQueue`."""

    sender: Any

@final
class RecordMetadata:
    """The position of an acknowledged record.

    Attributes:
        topic, partition: its partition.
        offset: its offset; -1 with acks=0, or where the broker no longer knows it.
        timestamp_ms: of the append where the topic uses LogAppendTime, else of the record.
        timestamp_type: CREATE_TIME (0) or LOG_APPEND_TIME (1).
        timestamp, topic_partition, log_start_offset: as aiokafka names them; the last one is None.
    """

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def log_start_offset(self) -> None: ...

@final
class ProducerBatch:
    """The records of one partition that are sent together.

    Arguments:
        topic, partition: where the records go; partition -1 = not chosen yet.
        size_max: largest size of the uncompressed batch in bytes; the first record always fits.
        loop: the event loop of the futures.
        created_s: time of the first record, in seconds of the loop's clock.

    Attributes:
        builder: the records; None once the batch is done.
        records_count: number of records.
        observed: number of records whose future was awaited, read, cancelled or given a callback.
        done: the batch was acknowledged or has failed.
        error: why it failed, else None; users get copies, see `error_copy`.
        base_offset: offset of the first record; -1 = not known.
        base_sequence: sequence of the first record; -1 = none assigned. Set by the sender.
        in_doubt: the batch was sent, and the broker may have appended it. Set by the sender.
        compressing: a thread compresses the records. Set by the sender.
        queue: the PartitionQueue for which it was opened; None = none, or the batch is done.
    """

    base_sequence: int
    in_doubt: bool
    compressing: bool
    queue: _Queue | None

    def __new__(
        cls, topic: str, partition: int, size_max: int, loop: asyncio.AbstractEventLoop, created_s: float = 0.0
    ) -> ProducerBatch: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def created_s(self) -> float: ...
    @property
    def builder(self) -> Builder: ...
    @property
    def records_count(self) -> int: ...
    @property
    def observed(self) -> int: ...
    @property
    def done(self) -> bool: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def base_offset(self) -> int: ...
    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str | bytes, Buffer | None]] | None = None,
    ) -> FutureRecordMetadata | None:
        """Add a record.

        Arguments:
            timestamp_ms: of the record.
            key, value: bytes; None = null.
            headers: name and value of each.

        Returns: the future of the record; None when the batch is full.
        Raises: TypeError for a str key or value.
        """

    def acknowledge(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        """Complete the futures. Raises InvalidStateError if the batch is done.

        Arguments:
            base_offset: offset of the first record; -1 = not known.
            log_append_time_ms: timestamp of all records; -1 = each record has its own.
        """

    def error_copy(self) -> BaseException | None:
        """Return a copy of the error without traceback, else None."""

    def fail(self, error: BaseException) -> None:
        """Fail the futures with `error`. Raises InvalidStateError if the batch is done."""

@final
class FutureRecordMetadata:
    """The future of one record: awaitable, with the methods of `asyncio.Future` that its users and asyncio call.

    `isinstance(future, asyncio.Future)` is true.

    `cancel` ends the future only: the record is still sent.
    """

    _asyncio_future_blocking: bool

    def __await__(self) -> Generator[Any, None, RecordMetadata]: ...
    def __iter__(self) -> Generator[Any, None, RecordMetadata]: ...
    def get_loop(self) -> asyncio.AbstractEventLoop: ...
    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def result(self) -> RecordMetadata:
        """Return the metadata. Raises: what the record failed with, CancelledError, InvalidStateError."""
    def exception(self) -> BaseException | None:
        """Return a copy of the error with which the record failed, else None.

        Raises: CancelledError, InvalidStateError.
        """
    def cancel(self, msg: Any | None = None) -> bool: ...
    def add_done_callback(
        self, callback: Callable[[FutureRecordMetadata], object], *, context: Context | None = None
    ) -> None: ...
    def remove_done_callback(self, callback: Callable[[FutureRecordMetadata], object]) -> int: ...
