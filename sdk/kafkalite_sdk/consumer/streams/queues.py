"""Decides which stream gets the records of a partition, which records are complete, and which partitions are held.

Pure: no I/O, no clock. Invariants:
1. A partition belongs to one stream. Its records are returned in order.
2. A partition is moved to another stream only while it has no queued and no incomplete record.
3. What may be committed of a partition ends before its lowest incomplete record, else before its first queued one.
4. The partitions of a stream with `high` or more queued and incomplete records are held: nothing of them is fetched
   or taken until it has at most `low`. Other streams are not affected.
"""

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.consumer.offsets.positions import PartitionState, Positions

K = TypeVar("K")
V = TypeVar("V")


class PartitionQueue(Generic[K, V]):
    """The records of one partition that were taken from the fetcher.

    Attributes:
        state: its position; another object after the next assignment.
        stream: its stream.
        records: not returned yet, in order.
        incomplete: returned and not complete, by offset, in order.
        listed: it is among the partitions that its stream visits.
    """

    __slots__ = ("incomplete", "listed", "records", "state", "stream")

    def __init__(self, state: PartitionState, stream: "StreamQueue[K, V]") -> None:
        self.state = state
        self.stream = stream
        self.records: deque[Record[K, V]] = deque()
        self.incomplete: dict[int, Record[K, V]] = {}
        self.listed = False

    @property
    def first(self) -> Record[K, V] | None:
        """The first record that is not complete."""
        if self.incomplete:
            return next(iter(self.incomplete.values()))
        return self.records[0] if self.records else None

    @property
    def idle(self) -> bool:
        """Whether the partition may be moved to another stream."""
        return not self.records and not self.incomplete

    def drop_from(self, offset: int) -> None:
        """Forget the records at an offset and behind it."""
        kept = [each for each in self.records if each.offset < offset]
        incomplete = {at: each for at, each in self.incomplete.items() if at < offset}
        dropped = len(self.records) - len(kept) + len(self.incomplete) - len(incomplete)
        if dropped:
            self.stream.size -= dropped
            self.records, self.incomplete = deque(kept), incomplete

    def clear(self) -> None:
        """Forget all records."""
        self.stream.size -= len(self.records) + len(self.incomplete)
        self.records.clear()
        self.incomplete.clear()


class StreamQueue(Generic[K, V]):
    """The records of one stream.

    Attributes:
        partitions: its partitions.
        size: number of queued and incomplete records.
        held: its partitions are held.
    """

    def __init__(self) -> None:
        self.partitions: set[PartitionQueue[K, V]] = set()
        self.size = 0
        self.held = False
        self._ready: deque[PartitionQueue[K, V]] = deque()

    def add(self, partition: PartitionQueue[K, V], record: Record[K, V]) -> None:
        """Queue a record."""
        partition.records.append(record)
        self.size += 1
        self.list_partition(partition)

    def list_partition(self, partition: PartitionQueue[K, V]) -> None:
        """Visit a partition that may have records."""
        if not partition.listed and partition.records:
            partition.listed = True
            self._ready.append(partition)

    def take(self) -> Record[K, V] | None:
        """Return the next record, which is incomplete from now on; None = there is none."""
        ready = self._ready
        while ready:
            partition = ready[0]
            state = partition.state
            if not partition.records or state.paused or state.revoking or partition.stream is not self:
                partition.listed = False
                ready.popleft()
                continue
            record = partition.records.popleft()
            partition.incomplete[record.offset] = record
            return record
        return None


class StreamQueues(Generic[K, V]):
    """The queues of all streams of a consumer.

    Arguments:
        count: number of streams.
        positions: the assigned partitions.
        high: a stream with so many records is held.
    """

    def __init__(self, count: int, positions: Positions, high: int) -> None:
        self.streams: list[StreamQueue[K, V]] = [StreamQueue() for _ in range(count)]
        self._positions = positions
        self._high = high
        self._low = high // 2
        self._partitions: dict[tuple[str, int], PartitionQueue[K, V]] = {}
        self._seen = -1

    def get(self, name: tuple[str, int]) -> PartitionQueue[K, V] | None:
        """Return the queue of a partition."""
        return self._partitions.get(name)

    def follow(self) -> None:
        """Begin and end the queues of partitions as they are assigned and revoked."""
        if self._seen == self._positions.changes:
            return
        states = self._positions.states
        queues = self._partitions.items()
        for name in [each for each, queue in queues if states.get(TopicPartition(*each)) is not queue.state]:
            self.forget(name)
        for added, state in states.items():
            if added not in self._partitions and not state.revoking:
                stream = min(self.streams, key=lambda each: len(each.partitions))
                self._partitions[added] = queue = PartitionQueue(state, stream)
                stream.partitions.add(queue)
                self._positions.hold([state], held=stream.held)
        self._balance()
        self._seen = self._positions.changes
        for queue in self._partitions.values():
            queue.stream.list_partition(queue)  # it may have been resumed

    def _balance(self) -> None:
        """Move idle partitions until the numbers of partitions differ by at most one, or no idle one is left."""
        while True:
            most = max(self.streams, key=lambda each: len(each.partitions))
            least = min(self.streams, key=lambda each: len(each.partitions))
            idle = [each for each in most.partitions if each.idle]
            if len(most.partitions) - len(least.partitions) < 2 or not idle:
                return
            moved = min(idle, key=lambda each: each.state.topic_partition)
            most.partitions.remove(moved)
            least.partitions.add(moved)
            moved.stream = least
            moved.listed = False
            self._positions.hold([moved.state], held=least.held)

    def forget(self, name: tuple[str, int]) -> None:
        """Remove the queue of a partition; its records cannot be completed any more."""
        queue = self._partitions.pop(name, None)
        if queue is not None:
            queue.clear()
            queue.stream.partitions.discard(queue)
            self.release_if_low(queue.stream)

    def clear(self, names: Iterable[TopicPartition]) -> None:
        """The positions of partitions have changed: forget their records."""
        for name in names:
            queue = self._partitions.get(name)
            if queue is not None:
                queue.clear()
                self.release_if_low(queue.stream)

    def moved(self, state: PartitionState) -> None:
        """The records from the position of a partition on are read again: those taken before cannot be completed."""
        queue = self._partitions.get(state.topic_partition)
        if queue is not None and queue.state is state and state.position >= 0:
            queue.drop_from(state.position)
            self.release_if_low(queue.stream)

    def distribute(self, records: Iterable[Record[K, V]]) -> list[StreamQueue[K, V]]:
        """Queue records; return the streams that got some, in the order of their records."""
        self.follow()
        found: dict[StreamQueue[K, V], None] = {}
        for record in records:
            queue = self._partitions[record.topic, record.partition]
            queue.stream.add(queue, record)
            found[queue.stream] = None
        for stream in found:
            if stream.size >= self._high and not stream.held:
                self._hold(stream, held=True)
        return list(found)

    def complete(self, record: Record[K, V]) -> PartitionQueue[K, V] | None:
        """Complete a record; return its partition, None = it was revoked meanwhile, or the record was completed."""
        queue = self._take_incomplete(record)
        if queue is not None:
            queue.stream.size -= 1
        return queue

    def return_record(self, record: Record[K, V]) -> None:
        """Return an incomplete record again, unless its partition was revoked."""
        queue = self._take_incomplete(record)
        if queue is not None:
            queue.records.appendleft(record)
            queue.stream.list_partition(queue)

    def _take_incomplete(self, record: Record[K, V]) -> PartitionQueue[K, V] | None:
        """Return the partition of a record that was incomplete until now; another record may have its offset now."""
        queue = self._partitions.get((record.topic, record.partition))
        if queue is None or queue.incomplete.get(record.offset) is not record:
            return None
        del queue.incomplete[record.offset]
        return queue

    def release_if_low(self, stream: StreamQueue[K, V]) -> bool:
        """Fetch the partitions of a stream again once it has few records; return whether that begins now."""
        if not stream.held or stream.size > self._low:
            return False
        self._hold(stream, held=False)
        return True

    def _hold(self, stream: StreamQueue[K, V], *, held: bool) -> None:
        stream.held = held
        self._positions.hold([each.state for each in stream.partitions], held=held)

    def bounds(self) -> dict[TopicPartition, Record[K, V]]:
        """The first record of each partition that is not complete."""
        firsts = ((queue.state.topic_partition, queue.first) for queue in self._partitions.values())
        return {name: first for name, first in firsts if first is not None}
