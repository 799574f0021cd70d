"""Metadata, key 3, v0-13. Brokers, topics and the leaders of their partitions.

Version notes: v1 controller; v4 auto-creation; v7 leader epochs; v8 authorised operations (KIP-430; until v10 for the
cluster); v10 topic ids; v12 topics by id; v13 top-level error (KIP-1102).
Source: MetadataRequest.json, MetadataResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import ZERO_UUID, Request, Response, Struct, boolean, field, int16, int32, string, uuid


class MetadataRequest(Request, key=3, versions=(0, 13), flexible=9):
    """The requested topics; null = all."""

    class MetadataRequestTopic(Struct):
        topic_id: uuid = field(since=10, default=ZERO_UUID)
        name: string | None = field(nullable_since=10)

    topics: list[MetadataRequestTopic] | None = field(nullable_since=1)
    allow_auto_topic_creation: boolean = field(since=4, default=True)
    include_cluster_authorized_operations: boolean = field(since=8, until=10, default=False)
    include_topic_authorized_operations: boolean = field(since=8, default=False)


class MetadataResponse(Response, key=3, versions=(0, 13), flexible=9):
    """The cluster according to the responding broker."""

    class MetadataResponseBroker(Struct):
        node_id: int32
        host: string
        port: int32
        rack: string | None = field(since=1, default=None)

    class MetadataResponseTopic(Struct):
        class MetadataResponsePartition(Struct):
            error_code: int16 = 0
            partition_index: int32
            leader_id: int32
            leader_epoch: int32 = field(since=7, default=-1)
            replica_nodes: list[int32]
            isr_nodes: list[int32]
            offline_replicas: list[int32] = field(since=5, factory=list)

        error_code: int16 = 0
        name: string | None = field(nullable_since=12)
        topic_id: uuid = field(since=10, default=ZERO_UUID)
        is_internal: boolean = field(since=1, default=False)
        partitions: list[MetadataResponsePartition]
        topic_authorized_operations: int32 = field(since=8, default=-(2**31))

    throttle_time_ms: int32 = field(since=3, default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: string | None = field(since=2, default=None)
    controller_id: int32 = field(since=1, default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int32 = field(since=8, until=10, default=-(2**31))
    error_code: int16 = field(since=13, default=0)
