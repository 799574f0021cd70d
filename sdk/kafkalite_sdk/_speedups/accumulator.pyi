"""The records of a producer that wait to be sent: an open batch and a queue of full batches per partition."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import final

from typing_extensions import Buffer

from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata, ProducerBatch

__all__ = ["PartitionQueue", "RecordAccumulator"]

@final
class PartitionQueue:
    """The unsent batches of one partition.

    Attributes:
        open: the batch that takes records; None = the next record opens one.
        full: the batches before it, oldest first; the sender takes them, and puts them back to retry.
    """

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def open(self) -> ProducerBatch | None: ...
    @property
    def full(self) -> deque[ProducerBatch]: ...

@final
class RecordAccumulator:
    """All unsent records of a producer.

    Arguments:
        loop: the event loop of the futures.
        batch_size: largest uncompressed batch in bytes; a larger record is a batch of its own.
        buffer_memory: `send` fails while this many bytes of records are not acknowledged.
        monotonic_s: the loop's clock in seconds; read once per batch.
        choose: returns a random number from 0 to below its argument, as `random.randrange`.
        wall_ms: the time of records without a timestamp, in ms; None = the system clock.
        partitioner: called with key, value and number of partitions; returns the partition. None = Kafka's default:
            murmur2 of the key, sticky without a key.

    Attributes:
        buffered: bytes of all records that are not acknowledged.
        ready: the queues with full batches, each once, in the order in which they became ready.
        unknown_topics: topics of records that wait for metadata; the producer removes them when it has asked for it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        batch_size: int,
        buffer_memory: int,
        monotonic_s: Callable[[], float],
        choose: Callable[[int], int],
        wall_ms: Callable[[], int] | None = None,
        partitioner: Callable[[Buffer | None, Buffer | None, int], int] | None = None,
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
    def unknown_topics(self) -> list[str]: ...
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
            topic: its topic; records of an unknown topic wait for `set_partitions`.
            value, key: bytes; None = null.
            partition: its partition; None = the partitioner chooses.
            timestamp_ms: its timestamp; None = now.
            headers: name and value of each.

        Raises:
            BufferExhaustedError: the buffer is full. ValueError: there is no such partition.
            TypeError: a value, key or header that is not bytes.
        """

    def set_partitions(self, topic: str, count: int) -> None:
        """Take over the number of partitions of a topic, and put its waiting records into batches.

        The futures of waiting records whose partition does not exist fail with ValueError.
        Raises: ValueError if there are fewer partitions than before, or none.
        """

    def fail_topic(self, topic: str, error: BaseException) -> ProducerBatch:
        """Fail the records of a topic whose metadata is unknown, and forget the topic.

        Returns: the batch of the failed futures.
        Raises: KeyError for a topic without records, ValueError if its partitions are known.
        """

    def partitions_of(self, topic: str) -> list[PartitionQueue] | None:
        """Return the queues of a topic by partition, None = its partitions are not known."""

    def close_batches(self, created_until_s: float) -> float | None:
        """Make open batches ready that were created until then, in seconds of the loop's clock; infinity = all.

        Returns: when the oldest open batch was created; None = there is none.
        """

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int = -1) -> None:
        """Acknowledge a batch as `ProducerBatch.acknowledge`, and release its memory."""

    def fail(self, batch: ProducerBatch, error: BaseException) -> None:
        """Fail a batch, and release its memory."""

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Replace a batch that the broker finds too large by two halves; the futures get the outcomes of their halves.

        Returns: the halves, in order. They are not queued.
        Raises: ValueError for a batch of one record.
        """
