"""The prefetched records of one partition, and the offset at which its next fetch begins.

Pure. Invariants:
1. The buffer continues the position: the first buffered record is the first one at or behind `state.position`.
2. After a seek, or after another change of the position by someone else than this buffer, its records are invalid.
3. Behind bytes that cannot be read nothing is fetched until the position changes.
"""

from collections import deque
from typing import Generic, TypeAlias, TypeVar

from kafkalite.errors import KafkaError
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk._speedups.fetched_records import FetchedRecords
from kafkalite_sdk.client.cluster_view import NO_EPOCH
from kafkalite_sdk.consumer.fetch.response_memory import ResponseMemory
from kafkalite_sdk.consumer.offsets.positions import PartitionState

K = TypeVar("K")
V = TypeVar("V")
Target: TypeAlias = list[Record[K, V]] | ColumnBuilder
"""What a poll returns, while records are appended to it."""
NO_NODE = -1


class PartitionBuffer(Generic[K, V]):
    """The buffer of one assigned partition.

    Arguments:
        state: its position.

    Attributes:
        assigned: the partition is still assigned.
        size: unread bytes.
        node: id of the broker among whose partitions this one is, NO_NODE = nothing is fetched now.
        expected_from: broker id whose response is expected; other responses are ignored. NO_NODE = none is.
        leader_epoch: of the leader from which the records were fetched.
        failed_node: broker id whose response was an error, NO_NODE = the last response was none.
        failures: number of errors one after another.
        error: why the last fetch failed, to be raised once.
        queued: the buffer is among those that `Fetcher.take` visits.
        batch_bytes: memory of its open batch.
        open_bytes: the same as the fetcher has counted it.
    """

    __slots__ = (
        "_expected",
        "_fetched",
        "assigned",
        "batch_bytes",
        "error",
        "expected_from",
        "failed_node",
        "failures",
        "leader_epoch",
        "node",
        "open_bytes",
        "queued",
        "size",
        "state",
    )

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.assigned = True
        self.size = 0
        self.node = NO_NODE
        self.expected_from = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.failed_node = NO_NODE
        self.failures = 0
        self.error: KafkaError | None = None
        self.queued = False
        self.batch_bytes = self.open_bytes = 0
        self._fetched: deque[tuple[FetchedRecords[K, V], ResponseMemory]] = deque()
        self._expected = state.position

    @property
    def next_offset(self) -> int:
        """The offset behind the buffered records."""
        return self._fetched[-1][0].end_offset if self._fetched else self.state.position

    @property
    def fetchable(self) -> bool:
        """Whether a fetch behind the buffered records makes sense."""
        return self.failure is None and (not self._fetched or self._fetched[-1][0].continues)

    @property
    def valid(self) -> bool:
        """Whether the records continue the position; otherwise `clear` them."""
        return self._expected == self.state.position

    @property
    def waiting(self) -> FetchedRecords[K, V] | None:
        """The records that cannot be read before their next batch is decompressed."""
        return self._fetched[0][0] if self._fetched and self._fetched[0][0].waits else None

    @property
    def readable(self) -> bool:
        """Whether `take` has something to do."""
        unread = bool(self._fetched) or self.error is not None
        return unread and self.state.readable and self.valid and self.waiting is None

    def count_open(self) -> int:
        """Set `open_bytes`; return by how much it has changed."""
        before = self.open_bytes
        self.open_bytes = self.batch_bytes = self._fetched[0][0].open_bytes if self._fetched else 0
        return self.open_bytes - before

    def close_batch(self) -> bool:
        """Free the memory of the open batch; False = that is not possible."""
        return not self._fetched or self._fetched[0][0].close_batch()

    def append(self, fetched: FetchedRecords[K, V], memory: ResponseMemory) -> None:
        """Add the records of a response."""
        memory.add(fetched)
        self._fetched.append((fetched, memory))
        self.size += fetched.size

    def take(self, records: Target[K, V], records_max: int) -> int:
        """Append records to a list or to columns, and advance the position.

        Arguments:
            records: the list or the columns.
            records_max: largest number of records to append to the list; columns have their own limits.

        Returns: the number of bytes that are not in use any more. `failure` is set if an error is next.
        """
        state = self.state
        freed = 0
        while self._fetched and records_max > 0:
            fetched = self._fetched[0][0]
            if isinstance(records, ColumnBuilder):
                fetched.take_columns(records)
            else:
                records_max -= fetched.take(records, records_max)
            if fetched.position != state.position:
                state.position = self._expected = fetched.position
                state.leader_epoch = fetched.leader_epoch
            if not fetched.done or fetched.error is not None:
                self.batch_bytes = fetched.open_bytes
                return freed
            freed += self._pop()
        self.batch_bytes = 0 if not self._fetched else self._fetched[0][0].open_bytes
        return freed

    @property
    def failure(self) -> KafkaError | None:
        """The error at the position, behind all records that were taken."""
        if self._fetched:
            return self._fetched[0][0].error
        return self.error

    def clear(self) -> int:
        """Drop everything, and ignore the response of an open request. Return the number of bytes freed."""
        freed = 0
        while self._fetched:
            freed += self._pop()
        self.expected_from = NO_NODE
        self.error = None
        self._expected = self.state.position
        return freed

    def _pop(self) -> int:
        fetched, memory = self._fetched.popleft()
        self.size -= fetched.size
        return memory.release(fetched)
