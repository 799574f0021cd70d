"""AlterPartitionReassignments, key 45, v0-1. Starts or cancels reassignments of partitions (KIP-455).

Version notes: v1 option to keep the replication factor (KIP-860).
Source: AlterPartitionReassignmentsRequest.json, AlterPartitionReassignmentsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int16, int32, string


class AlterPartitionReassignmentsRequest(Request, key=45, versions=(0, 1), flexible=0):
    """The new replicas of each partition; null cancels a reassignment."""

    class ReassignableTopic(Struct):
        class ReassignablePartition(Struct):
            partition_index: int32
            replicas: list[int32] | None = None

        name: string
        partitions: list[ReassignablePartition]

    timeout_ms: int32 = 60000
    allow_replication_factor_change: boolean = field(since=1, default=True)
    topics: list[ReassignableTopic]


class AlterPartitionReassignmentsResponse(Response, key=45, versions=(0, 1), flexible=0):
    """An error per partition."""

    class ReassignableTopicResponse(Struct):
        class ReassignablePartitionResponse(Struct):
            partition_index: int32
            error_code: int16 = 0
            error_message: string | None

        name: string
        partitions: list[ReassignablePartitionResponse]

    throttle_time_ms: int32 = 0
    allow_replication_factor_change: boolean = field(since=1, default=True)
    error_code: int16 = 0
    error_message: string | None
    responses: list[ReassignableTopicResponse]
