"""Fetch, key 1, v4-18. Record batches from partitions, for consumers and followers.

Version notes: v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 rack (KIP-392); v12 diverging epochs (KIP-595);
v13 topics by id (KIP-516); v15 follower state in a tagged field (KIP-903); v16 node endpoints (KIP-951); v17 directory
id (KIP-853); v18 high watermark.
Source: FetchRequest.json, FetchResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    field,
    int8,
    int16,
    int32,
    int64,
    record_bytes,
    string,
    uuid,
)


class FetchRequest(Request, key=1, versions=(4, 18), flexible=12):
    """Fetch offsets, and limits of bytes and time."""

    class ReplicaState(Struct):
        replica_id: int32 = -1
        replica_epoch: int64 = -1

    class FetchTopic(Struct):
        class FetchPartition(Struct):
            partition: int32
            current_leader_epoch: int32 = field(since=9, default=-1)
            fetch_offset: int64
            last_fetched_epoch: int32 = field(since=12, default=-1)
            log_start_offset: int64 = field(since=5, default=-1)
            partition_max_bytes: int32
            replica_directory_id: uuid = field(since=17, tag=0, default=ZERO_UUID)
            high_watermark: int64 = field(since=18, tag=1, default=2**63 - 1)

        topic: string = field(until=12, default="")
        topic_id: uuid = field(since=13, default=ZERO_UUID)
        partitions: list[FetchPartition]

    class ForgottenTopic(Struct):
        topic: string = field(until=12, default="")
        topic_id: uuid = field(since=13, default=ZERO_UUID)
        partitions: list[int32]

    cluster_id: string | None = field(since=12, tag=0, default=None)
    replica_id: int32 = field(until=14, default=-1)
    replica_state: ReplicaState | None = field(since=15, tag=1, default=None)
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = 2**31 - 1
    isolation_level: int8 = 0
    session_id: int32 = field(since=7, default=0)
    session_epoch: int32 = field(since=7, default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(since=7, factory=list)
    rack_id: string = field(since=11, default="")


class FetchResponse(Response, key=1, versions=(4, 18), flexible=12):
    """Batches, watermarks and errors for each partition."""

    class FetchableTopicResponse(Struct):
        class PartitionData(Struct):
            class EpochEndOffset(Struct):
                epoch: int32 = -1
                end_offset: int64 = -1

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = -1
                leader_epoch: int32 = -1

            class SnapshotId(Struct):
                end_offset: int64 = -1
                epoch: int32 = -1

            class AbortedTransaction(Struct):
                producer_id: int64
                first_offset: int64

            partition_index: int32
            error_code: int16 = 0
            high_watermark: int64
            last_stable_offset: int64 = -1
            log_start_offset: int64 = field(since=5, default=-1)
            diverging_epoch: EpochEndOffset | None = field(since=12, tag=0, default=None)
            current_leader: LeaderIdAndEpoch | None = field(since=12, tag=1, default=None)
            snapshot_id: SnapshotId | None = field(since=12, tag=2, default=None)
            aborted_transactions: list[AbortedTransaction] | None
            preferred_read_replica: int32 = field(since=11, default=-1)
            records: record_bytes | None

        topic: string = field(until=12, default="")
        topic_id: uuid = field(since=13, default=ZERO_UUID)
        partitions: list[PartitionData]

    class NodeEndpoint(Struct):
        node_id: int32
        host: string
        port: int32
        rack: string | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = field(since=7, default=0)
    session_id: int32 = field(since=7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(since=16, tag=0, factory=list)
