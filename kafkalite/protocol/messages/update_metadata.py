"""UpdateMetadata, key 6, v0-8. The controller sends the live brokers and the states of partitions to a broker.

Version notes: v1 endpoints; v2 rack (KIP-36); v3 listener names (KIP-103); v4 offline replicas (KIP-112); v5 broker
epoch (KIP-380), partitions by topic; v7 topic ids (KIP-516); v8 KRaft controllers (KIP-866). Kafka 4 has no such
request.
Source: UpdateMetadataRequest.json, UpdateMetadataResponse.json of Apache Kafka 3.9.
"""

from kafkalite.protocol import own_tags
from kafkalite.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    boolean,
    field,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class UpdateMetadataPartitionState(Struct):
    """State of a partition. Leader -2: its topic is being deleted. `zk_version` is the partition epoch."""

    topic_name: string = field(until=4, default="")
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    zk_version: int32
    replicas: list[int32]
    offline_replicas: list[int32] = field(since=4, factory=list)
    eligible_replicas: list[int32] = field(since=6, tag=own_tags.ELIGIBLE_REPLICAS, factory=list)


class UpdateMetadataRequest(Request, key=6, versions=(0, 8), flexible=6):
    """All live brokers, and the partitions that have changed."""

    class UpdateMetadataTopicState(Struct):
        topic_name: string
        topic_id: uuid = field(since=7, default=ZERO_UUID)
        partition_states: list[UpdateMetadataPartitionState]

    class UpdateMetadataBroker(Struct):
        class UpdateMetadataEndpoint(Struct):
            port: int32
            host: string
            listener: string = field(since=3, default="")
            security_protocol: int16

        id: int32
        v0_host: string = field(until=0, default="")
        v0_port: int32 = field(until=0, default=0)
        endpoints: list[UpdateMetadataEndpoint] = field(since=1, factory=list)
        rack: string | None = field(since=2, default=None)

    controller_id: int32
    is_kraft_controller: boolean = field(since=8, default=False)
    type: int8 = field(since=8, tag=0, default=0)
    controller_epoch: int32
    broker_epoch: int64 = field(since=5, default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(until=4, factory=list)
    topic_states: list[UpdateMetadataTopicState] = field(since=5, factory=list)
    live_brokers: list[UpdateMetadataBroker]


class UpdateMetadataResponse(Response, key=6, versions=(0, 8), flexible=6):
    """STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH if the receiver rejects the request."""

    error_code: int16
