"""ConsumerGroupHeartbeat, key 68, v0-1. Joins or leaves a consumer group, or extends a membership (KIP-848).

Version notes: v1 patterns, and member ids chosen by the client (KIP-1082).
Source: ConsumerGroupHeartbeatRequest.json, ConsumerGroupHeartbeatResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int16, int32, string, uuid


class ConsumerGroupHeartbeatRequest(Request, key=68, versions=(0, 1), flexible=0):
    """The member, its epoch, and what has changed since its last heartbeat: null and -1 = no change."""

    class TopicPartitions(Struct):
        topic_id: uuid
        partitions: list[int32]

    group_id: string
    member_id: string
    member_epoch: int32
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[string] | None = None
    subscribed_topic_regex: string | None = field(since=1, default=None)
    server_assignor: string | None = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Response, key=68, versions=(0, 1), flexible=0):
    """The member epoch to use, and the assignment if it has changed."""

    class Assignment(Struct):
        class TopicPartitions(Struct):
            topic_id: uuid
            partitions: list[int32]

        topic_partitions: list[TopicPartitions]

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: int32
    heartbeat_interval_ms: int32
    assignment: Assignment | None = None
