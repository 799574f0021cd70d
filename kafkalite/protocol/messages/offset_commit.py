"""OffsetCommit, key 8, v2-10. Commits offsets of a group.

Version notes: v3 throttling before answering; v5 without retention time; v6 leader epochs (KIP-320); v7 static members
(KIP-345); v9 member epochs (KIP-848); v10 topics by id.
Source: OffsetCommitRequest.json, OffsetCommitResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class OffsetCommitRequest(Request, key=8, versions=(2, 10), flexible=8):
    """Offsets by topic and partition; generation -1 = the sender is not a member."""

    class OffsetCommitRequestTopic(Struct):
        class OffsetCommitRequestPartition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = field(since=6, default=-1)
            committed_metadata: string | None

        name: string = field(until=9, default="")
        topic_id: uuid = field(since=10, default=ZERO_UUID)
        partitions: list[OffsetCommitRequestPartition]

    group_id: string
    generation_id_or_member_epoch: int32 = -1
    member_id: string
    group_instance_id: string | None = field(since=7, default=None)
    retention_time_ms: int64 = field(until=4, default=-1)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponse(Response, key=8, versions=(2, 10), flexible=8):
    """The error of each partition, 0 = none."""

    class OffsetCommitResponseTopic(Struct):
        class OffsetCommitResponsePartition(Struct):
            partition_index: int32
            error_code: int16 = 0

        name: string = field(until=9, default="")
        topic_id: uuid = field(since=10, default=ZERO_UUID)
        partitions: list[OffsetCommitResponsePartition]

    throttle_time_ms: int32 = field(since=3, default=0)
    topics: list[OffsetCommitResponseTopic]
