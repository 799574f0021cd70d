"""ListPartitionReassignments, key 46, v0. Lists partitions that are being reassigned (KIP-455).

Version notes: v0 only.
Source: ListPartitionReassignmentsRequest.json, ListPartitionReassignmentsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, string


class ListPartitionReassignmentsRequest(Request, key=46, versions=(0, 0), flexible=0):
    """The requested partitions; null = all."""

    class ListPartitionReassignmentsTopics(Struct):
        name: string
        partition_indexes: list[int32]

    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsResponse(Response, key=46, versions=(0, 0), flexible=0):
    """Current, added and removed replicas."""

    class OngoingTopicReassignment(Struct):
        class OngoingPartitionReassignment(Struct):
            partition_index: int32
            replicas: list[int32]
            adding_replicas: list[int32]
            removing_replicas: list[int32]

        name: string
        partitions: list[OngoingPartitionReassignment]

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None
    topics: list[OngoingTopicReassignment]
