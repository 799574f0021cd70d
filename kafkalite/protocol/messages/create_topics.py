"""CreateTopics, key 19, v2-7. Creates topics.

Version notes: v4 default partitions and factor (KIP-464); v5 configs in the response (KIP-525); v6 throttling
(KIP-599); v7 topic ids.
Source: CreateTopicsRequest.json, CreateTopicsResponse.json of Apache Kafka 4.3.
"""

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
    string,
    uuid,
)


class CreateTopicsRequest(Request, key=19, versions=(2, 7), flexible=5):
    """Topics with partitions, factor or assignment, and configs."""

    class CreatableTopic(Struct):
        class CreatableReplicaAssignment(Struct):
            partition_index: int32
            broker_ids: list[int32]

        class CreatableTopicConfig(Struct):
            name: string
            value: string | None

        name: string
        num_partitions: int32
        replication_factor: int16
        assignments: list[CreatableReplicaAssignment]
        configs: list[CreatableTopicConfig]

    topics: list[CreatableTopic]
    timeout_ms: int32 = 60000
    validate_only: boolean = False


class CreateTopicsResponse(Response, key=19, versions=(2, 7), flexible=5):
    """The result for each topic."""

    class CreatableTopicResult(Struct):
        class CreatableTopicConfigs(Struct):
            name: string
            value: string | None
            read_only: boolean
            config_source: int8 = -1
            is_sensitive: boolean

        name: string
        topic_id: uuid = field(since=7, default=ZERO_UUID)
        error_code: int16 = 0
        error_message: string | None
        topic_config_error_code: int16 = field(since=5, tag=0, default=0)
        num_partitions: int32 = field(since=5, default=-1)
        replication_factor: int16 = field(since=5, default=-1)
        configs: list[CreatableTopicConfigs] | None = field(since=5, factory=list)

    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult]
