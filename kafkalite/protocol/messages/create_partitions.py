"""CreatePartitions, key 37, v0-3. Adds partitions to topics.

Version notes: v2 flexible; v3 throttling (KIP-599).
Source: CreatePartitionsRequest.json, CreatePartitionsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, int16, int32, string


class CreatePartitionsRequest(Request, key=37, versions=(0, 3), flexible=2):
    """Topics with their new number of partitions."""

    class CreatePartitionsTopic(Struct):
        class CreatePartitionsAssignment(Struct):
            broker_ids: list[int32]

        name: string
        count: int32
        assignments: list[CreatePartitionsAssignment] | None

    topics: list[CreatePartitionsTopic]
    timeout_ms: int32
    validate_only: boolean


class CreatePartitionsResponse(Response, key=37, versions=(0, 3), flexible=2):
    """The result for each topic."""

    class CreatePartitionsTopicResult(Struct):
        name: string
        error_code: int16 = 0
        error_message: string | None = None

    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult]
