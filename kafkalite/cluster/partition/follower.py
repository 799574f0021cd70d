"""The role of a follower: it appends the batches of its leader and follows the leader's offsets.

It serves reads of clients that allow it up to its high watermark (KIP-392); other requests are rejected. The batches of
a response are written at once: the next fetch says that this replica has them. Where flush.messages requires a flush,
the fetcher flushes the log before that fetch.

Source: Partition.scala and ReplicaFetcherThread.processPartitionData of Apache Kafka 3.9.
"""

from typing import NamedTuple, Protocol

from kafkalite._speedups.storage.replicated_append import ReplicatedAppend
from kafkalite.storage.log.log import Log


class FollowerAppend(NamedTuple):
    """The result of appending the batches of a response.

    Arguments:
        error: Kafka error code of the write, else of the first batch that was not appended; 0 if all were.
        batches: what the log says about the batches: how many follow its end, and why the next one does not.
    """

    error: int
    batches: ReplicatedAppend


class FollowingPartition(Protocol):
    """The part of a partition that its follower role uses."""

    topic: str
    index: int
    log: Log | None
    high_watermark: int

    def follower_grew(self) -> None:
        """Complete the delayed fetches that a higher high watermark satisfies; exceptions are reported."""

    def wake_fetches(self) -> None:
        """Complete all delayed fetches with the records that exist; exceptions are reported."""


class BoundedPartition(Protocol):
    """The part of a partition whose high watermark is bounded by its log."""

    high_watermark: int


def bound_high_watermark(partition: BoundedPartition, log: Log) -> None:
    """Limit the high watermark to the offsets of a log that was truncated, or has restarted."""
    known = max(log.log_start_offset, min(partition.high_watermark, log.log_end_offset))
    partition.high_watermark = log.high_watermark = known


class Follower:
    """The role of a partition that another broker leads.

    Arguments:
        partition: the partition.
        leader: broker id of the leader, -1 = none at present.
    """

    __slots__ = ("_partition", "leader")

    def __init__(self, partition: FollowingPartition, leader: int) -> None:
        self._partition = partition
        self.leader = leader

    def append_replicated(self, batches: bytes | bytearray | memoryview) -> FollowerAppend:
        """Append whole batches as the leader has sent them, and write them.

        An incomplete batch at the end is ignored. The batches before a rejected one are kept. After a failed write or
        an exception the log is as before.

        Arguments:
            batches: any buffer; used during the call only. The partition has a log that no job changes.
        """
        log = self._partition.log
        assert log is not None, f"{self._partition.topic}-{self._partition.index} has no files yet"
        try:
            found = log.append_replicated(batches)
            return FollowerAppend(log.write() or found.error, found)
        except BaseException:
            log.abandon()
            raise

    def follow_offsets(self, high_watermark: int, log_start_offset: int) -> int:
        """Use the offsets in a response of the leader, after its records were written.

        The high watermark is bounded by the log end: the leader may have more records. It may move back, to that of a
        new leader, which has not received the fetches of all followers yet. The log start only rises.

        Arguments:
            high_watermark: of the leader.
            log_start_offset: of the leader.

        Returns 0 or a Kafka error code: OFFSET_OUT_OF_RANGE if the log start of the leader is above this log end, so
        that this log must restart there; KAFKA_STORAGE_ERROR.
        """
        partition, log = self._partition, self._partition.log
        if log is None:
            return 0
        known = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        grew = known > partition.high_watermark
        partition.high_watermark = log.high_watermark = known
        if grew:
            partition.follower_grew()
        if log_start_offset <= log.log_start_offset:
            return 0
        error = log.delete_records_before(log_start_offset)
        if not error:
            partition.high_watermark = log.high_watermark = max(partition.high_watermark, log_start_offset)
            partition.wake_fetches()
        return error
