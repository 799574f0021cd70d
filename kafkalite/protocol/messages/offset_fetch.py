"""OffsetFetch, key 9, v1-10. Returns committed offsets of a group; from v8 on, of several groups.

Version notes: v2 null = all topics, and an error of the request; v3 throttling before answering; v5 leader epochs
(KIP-320); v7 stable offsets only (KIP-447); v8 several groups at once (KIP-709); v9 member epochs (KIP-848); v10
topics by id.
Source: OffsetFetchRequest.json, OffsetFetchResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    boolean,
    field,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class OffsetFetchRequest(Request, key=9, versions=(1, 10), flexible=6):
    """Groups and partitions: one group in the top-level fields up to v7, a list from v8 on. Null topics = all."""

    class OffsetFetchRequestTopic(Struct):
        name: string
        partition_indexes: list[int32]

    class OffsetFetchRequestGroup(Struct):
        class OffsetFetchRequestTopics(Struct):
            name: string = field(until=9, default="")
            topic_id: uuid = field(since=10, default=ZERO_UUID)
            partition_indexes: list[int32]

        group_id: string
        member_id: string | None = field(since=9, default=None)
        member_epoch: int32 = field(since=9, default=-1)
        topics: list[OffsetFetchRequestTopics] | None

    group_id: string = field(until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = field(until=7, nullable_since=2, factory=list)
    groups: list[OffsetFetchRequestGroup] = field(since=8, factory=list)
    require_stable: boolean = field(since=7, default=False)


class OffsetFetchResponse(Response, key=9, versions=(1, 10), flexible=6):
    """Committed offsets, -1 = none: of one group up to v7, of each group from v8 on."""

    class OffsetFetchResponseTopic(Struct):
        class OffsetFetchResponsePartition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = field(since=5, default=-1)
            metadata: string | None
            error_code: int16 = 0

        name: string
        partitions: list[OffsetFetchResponsePartition]

    class OffsetFetchResponseGroup(Struct):
        class OffsetFetchResponseTopics(Struct):
            class OffsetFetchResponsePartitions(Struct):
                partition_index: int32
                committed_offset: int64
                committed_leader_epoch: int32 = -1
                metadata: string | None
                error_code: int16 = 0

            name: string = field(until=9, default="")
            topic_id: uuid = field(since=10, default=ZERO_UUID)
            partitions: list[OffsetFetchResponsePartitions]

        group_id: string
        topics: list[OffsetFetchResponseTopics]
        error_code: int16 = 0

    throttle_time_ms: int32 = field(since=3, default=0)
    topics: list[OffsetFetchResponseTopic] = field(until=7, factory=list)
    error_code: int16 = field(since=2, until=7, default=0)
    groups: list[OffsetFetchResponseGroup] = field(since=8, factory=list)
