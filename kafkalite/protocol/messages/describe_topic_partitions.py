"""DescribeTopicPartitions, key 75, v0. Topics with their partitions, page by page (KIP-966).

Version notes: v0 only.
Source: DescribeTopicPartitionsRequest.json, DescribeTopicPartitionsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, int16, int32, string, uuid


class DescribeTopicPartitionsRequest(Request, key=75, versions=(0, 0), flexible=0):
    """Topics by name, and the cursor of the page."""

    class TopicRequest(Struct):
        name: string

    class Cursor(Struct):
        topic_name: string
        partition_index: int32

    topics: list[TopicRequest]
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Response, key=75, versions=(0, 0), flexible=0):
    """Topics, partitions, and the cursor of the next page."""

    class DescribeTopicPartitionsResponseTopic(Struct):
        class DescribeTopicPartitionsResponsePartition(Struct):
            error_code: int16 = 0
            partition_index: int32
            leader_id: int32
            leader_epoch: int32 = -1
            replica_nodes: list[int32]
            isr_nodes: list[int32]
            eligible_leader_replicas: list[int32] | None = None
            last_known_elr: list[int32] | None = None
            offline_replicas: list[int32]

        error_code: int16 = 0
        name: string | None
        topic_id: uuid
        is_internal: boolean = False
        partitions: list[DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int32 = -(2**31)

    class Cursor(Struct):
        topic_name: string
        partition_index: int32

    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None
