"""The role of a follower: it follows the offsets of its leader. Requests of clients are rejected meanwhile.

Source: Partition.scala and ReplicaFetcherThread.processPartitionData of Apache Kafka 3.9.
"""

from typing import Protocol

from kafkalite.storage.log.log import Log


class FollowingPartition(Protocol):
    """The part of a partition that its follower role uses."""

    log: Log | None
    high_watermark: int


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
        partition.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        if log_start_offset <= log.log_start_offset:
            return 0
        error = log.delete_records_before(log_start_offset)
        if not error:
            partition.high_watermark = max(partition.high_watermark, log_start_offset)
        return error
