"""Records that `async for` has taken from the fetcher and has not returned yet.

Pure. The position of a partition is behind these records; what the application has received ends before them.
"""

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.consumer_records import Record

K = TypeVar("K")
V = TypeVar("V")


class Iteration(Generic[K, V]):
    """Taken records.

    Attributes:
        records: in reverse order, so that `pop` returns the next one.
    """

    __slots__ = ("_held", "records")

    def __init__(self) -> None:
        self.records: list[Record[K, V]] = []
        self._held: list[Record[K, V]] = []  # of paused partitions, in reverse order

    def take(self, records_max: int, only: Collection[TopicPartition] = ()) -> list[Record[K, V]]:
        """Return the next records in order.

        Arguments:
            records_max: the most records.
            only: partitions whose records are returned; empty = all.
        """
        records = self.records
        others, matching = _split(records, only) if only else ([], records)
        taken = matching[: -records_max - 1 : -1]
        del matching[-records_max:]
        if only:
            records[:] = others + matching
        return taken

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the records of partitions: their positions have changed."""
        if self.records or self._held:
            self.records[:], _ = _split(self.records, partitions)
            self._held, _ = _split(self._held, partitions)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of partitions until `release`."""
        if self.records:
            self.records[:], held = _split(self.records, partitions)
            self._held += held

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Return records that were held next."""
        if self._held:
            self._held, released = _split(self._held, partitions)
            self.records += released

    def first(self) -> dict[TopicPartition, Record[K, V]]:
        """The first record of each partition that was not returned."""
        return {
            TopicPartition(each.topic, each.partition): each
            for records in (self.records, self._held)
            for each in records
        }


def _split(
    records: Iterable[Record[K, V]], partitions: Collection[TopicPartition]
) -> tuple[list[Record[K, V]], list[Record[K, V]]]:
    """Split records into those of other partitions and those of these."""
    others: list[Record[K, V]] = []
    matching: list[Record[K, V]] = []
    for each in records:
        (matching if (each.topic, each.partition) in partitions else others).append(each)
    return others, matching
