"""TxnOffsetCommit, key 28, v0-5. Commits offsets of a group within a transaction (KIP-98).

Version notes: v2 leader epochs; v3 member and generation (KIP-447); v4 TRANSACTION_ABORTABLE; v5 adds the group to the
transaction (KIP-890). v6 (topic ids, KIP-1319) is of Kafka 4.4.
Source: TxnOffsetCommitRequest.json, TxnOffsetCommitResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int16, int32, int64, string


class TxnOffsetCommitRequest(Request, key=28, versions=(0, 5), flexible=3):
    """Offsets by topic and partition; generation -1 = the sender is not a member."""

    class TxnOffsetCommitRequestTopic(Struct):
        class TxnOffsetCommitRequestPartition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = field(since=2, default=-1)
            committed_metadata: string | None

        name: string
        partitions: list[TxnOffsetCommitRequestPartition]

    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id: int32 = field(since=3, default=-1)
    member_id: string = field(since=3, default="")
    group_instance_id: string | None = field(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponse(Response, key=28, versions=(0, 5), flexible=3):
    """The error of each partition, 0 = none."""

    class TxnOffsetCommitResponseTopic(Struct):
        class TxnOffsetCommitResponsePartition(Struct):
            partition_index: int32
            error_code: int16 = 0

        name: string
        partitions: list[TxnOffsetCommitResponsePartition]

    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]
