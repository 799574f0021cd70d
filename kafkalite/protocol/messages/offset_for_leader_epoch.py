"""OffsetForLeaderEpoch, key 23, v2-4. End offsets of leader epochs, to find where logs diverge (KIP-101, KIP-320).

Version notes: v3 replica id; v4 flexible.
Source: OffsetForLeaderEpochRequest.json, OffsetForLeaderEpochResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int16, int32, int64, string


class OffsetForLeaderEpochRequest(Request, key=23, versions=(2, 4), flexible=4):
    """The epochs to look up."""

    class OffsetForLeaderTopic(Struct):
        class OffsetForLeaderPartition(Struct):
            partition: int32
            current_leader_epoch: int32 = -1
            leader_epoch: int32

        topic: string
        partitions: list[OffsetForLeaderPartition]

    replica_id: int32 = field(since=3, default=-2)
    topics: list[OffsetForLeaderTopic]


class OffsetForLeaderEpochResponse(Response, key=23, versions=(2, 4), flexible=4):
    """The largest epoch up to the requested one, and its end offset."""

    class OffsetForLeaderTopicResult(Struct):
        class EpochEndOffset(Struct):
            error_code: int16 = 0
            partition: int32
            leader_epoch: int32 = -1
            end_offset: int64 = -1

        topic: string
        partitions: list[EpochEndOffset]

    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult]
