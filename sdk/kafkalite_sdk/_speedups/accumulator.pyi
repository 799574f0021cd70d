"""The records of a producer that wait to be sent: an open batch and a queue of full batches per partition."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import final

from typing_extensions import Buffer

from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, ProducerBatch
from kafkalite_sdk._speedups.producer_queues import PartitionQueue

__all__ = ["RecordAccumulator"]

@final
class RecordAccumulator:
    """All unsent records of a producer. It belongs to the event loop `loop`.

    Arguments:
        loop: the event loop of the futures.
        batch_size: largest uncompressed batch in bytes; a larger record is a batch of its own.
        buffer_memory: `send` fails while this many bytes of records are not acknowledged.
        monotonic_s: returns the loop's clock in seconds.
        choose: returns a random number from 0 to below its argument, as `random.randrange`.
        wake: called when the first batch opens, when a queue becomes ready, and for a topic without metadata.
        refuse: called by `send` and `drain` in another event loop or thread, outside of the loop, in a forked process
            and after `close`; raises.
        wait: called by `drain` when it must wait; returns what the caller awaits.
        record_bytes_max: largest record in bytes, uncompressed; None = as large as the buffer.
        offload_bytes: closed batches of this size are added to `large`; None = none are.
        wall_ms: the time of records without a timestamp, in ms; None = the system clock.
        partitioner: None = Kafka's default, murmur2 of the key; "crc32" = librdkafka's default. Both are sticky
            without a key; "crc32" also with an empty one. A function is called with key, value, all partitions and
            those with a leader, and returns the partition.

    Attributes:
        buffered: bytes of all records that are not acknowledged.
        ready: the queues with full batches, each once, in the order in which they became ready.
        large: closed batches to be compressed in a thread; the caller removes them.
        unassigned: topics whose records wait for metadata; since when, in seconds of the loop's clock.
        opened: number of the newest batch, counted from 1.
        records_incomplete: number of the records without an outcome.
        must_wait: `drain` calls `wait` although there is space.
        limited_topic: the topic of the last record, if it has no leader and has filled half of the buffer; else None.
    """

    must_wait: bool

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        batch_size: int,
        buffer_memory: int,
        monotonic_s: Callable[[], float],
        choose: Callable[[int], int],
        wake: Callable[[], object],
        refuse: Callable[[], object],
        wait: Callable[[], Awaitable[None]],
        record_bytes_max: int | None = None,
        offload_bytes: int | None = None,
        wall_ms: Callable[[], int] | None = None,
        partitioner: Callable[[bytes | None, bytes | None, Sequence[int], Sequence[int]], int] | str | None = None,
    ) -> None: ...
    @property
    def buffered(self) -> int: ...
    @property
    def buffer_memory(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def ready(self) -> deque[PartitionQueue]: ...
    @property
    def large(self) -> deque[ProducerBatch]: ...
    @property
    def unassigned(self) -> dict[str, float]: ...
    @property
    def opened(self) -> int: ...
    @property
    def records_incomplete(self) -> int: ...
    @property
    def limited_topic(self) -> str | None: ...
    def send(
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str | bytes, Buffer | None]] | None = None,
    ) -> FutureRecordMetadata:
        """Queue a record.

        Arguments:
            topic: its topic; records of an unknown topic wait for `set_partitions`, as copies of what was passed.
            value, key: bytes; None = null.
            partition: its partition; None = the partitioner chooses.
            timestamp_ms: its timestamp; None = now.
            headers: name and value of each.

        Raises:
            BufferExhaustedError: the buffer is full, or half of it with records of a topic without a leader.
            MessageTooLargeError: the record is larger than allowed. ValueError: there is no such partition, or the
            timestamp exceeds 64 bits. TypeError: a value, key or header that is not bytes, or a topic that is no str.
        """

    def share(self, *, monotonic_s: Callable[[], float], wake: Callable[[], object]) -> None:
        """Prepare for records of several threads, each of which holds the lock of the client; see `SharedSends`.

        Arguments:
            monotonic_s, wake: replace those of the constructor. A Python function as `wake` could be interrupted by a
                signal handler after the record was queued.
        """

    def drain(self) -> Awaitable[None]:
        """Return an awaitable that ends at once while there is space; else what `wait` returns.

        After each 128 KiB of records it gives the loop one iteration, in which batches leave.
        """

    def iteration_due(self) -> bool:
        """Whether 128 KiB of records were sent since the last iteration; the caller gives the loop one."""

    def has_space(self, topic: str) -> bool:
        """Whether a topic without a leader has at most a quarter of the buffer, or has leaders again."""

    def close(self) -> None:
        """Reject all further records: `send` and `drain` call `refuse`."""

    def open(self) -> None:
        """Accept records again after `close`."""

    def set_partitions(self, topic: str, count: int, available: Iterable[int] | None = None) -> list[ProducerBatch]:
        """Take over the partitions of a topic, and put its waiting records into batches.

        Arguments:
            topic: its name.
            count: number of its partitions.
            available: the partitions with a leader; None = all.

        Returns: batches of the waiting records that failed: their partition does not exist, or the partitioner raised.
        Raises: ValueError if there are fewer partitions than before, or none.
        """

    def remove_partitions(self, topic: str, count: int) -> list[PartitionQueue]:
        """Keep the first `count` partitions of a topic; return the others, their open batches closed. The caller fails
        their batches."""

    def fail_topic(self, topic: str, error: BaseException) -> ProducerBatch:
        """Fail the records of a topic whose metadata is unknown, and forget the topic.

        Returns: the batch of the failed futures.
        Raises: KeyError for a topic without records, ValueError if its partitions are known.
        """

    def unused_topics(self) -> list[str]:
        """Return the topics with known partitions that have no records, and had none since the last call."""

    def forget_topic(self, topic: str) -> None:
        """Forget a topic that has no records; raises ValueError if it has."""

    def partitions_of(self, topic: str) -> list[PartitionQueue] | None:
        """Return the queues of a topic by partition, None = its partitions are not known."""

    def close_batches(self, created_until_s: float) -> float | None:
        """Make open batches ready that were created until then, in seconds of the loop's clock; infinity = all.

        Returns: when the oldest open batch was created; None = there is none.
        """

    def oldest_incomplete(self) -> int:
        """Return the number of the oldest batch that is not completed; `opened` + 1 = all are."""

    def queues_of_incomplete(self, now: float, timeout_s: float) -> list[PartitionQueue]:
        """Return the queues of the batches that are not completed, those of partitions that were removed, too.

        Arguments:
            now: in seconds of the loop's clock; infinity = of all batches.
            timeout_s: only of batches that have waited as long, in seconds. Open ones of them are closed.
        """

    def oldest_created_s(self) -> float:
        """Return when the oldest batch that is not completed was created; infinity = all are completed."""

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int = -1) -> None:
        """Acknowledge a batch as `ProducerBatch.acknowledge`, and release its memory."""

    def fail(self, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch, and release its memory."""

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Replace a batch that the broker finds too large by two halves; the futures get the outcomes of their halves.

        Returns: the halves, in order. They are not queued.
        Raises: ValueError for a batch of one record.
        """
