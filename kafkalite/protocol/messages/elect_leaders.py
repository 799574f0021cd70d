"""ElectLeaders, key 43, v0-2. Elects the leaders of partitions (KIP-183, KIP-460).

Version notes: v1 election type; v2 flexible.
Source: ElectLeadersRequest.json, ElectLeadersResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int8, int16, int32, string


class ElectLeadersRequest(Request, key=43, versions=(0, 2), flexible=2):
    """The partitions; null = all."""

    class TopicPartitions(Struct):
        topic: string
        partitions: list[int32]

    election_type: int8 = field(since=1)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: int32 = 60000


class ElectLeadersResponse(Response, key=43, versions=(0, 2), flexible=2):
    """An error per partition."""

    class ReplicaElectionResult(Struct):
        class PartitionResult(Struct):
            partition_id: int32
            error_code: int16 = 0
            error_message: string | None

        topic: string
        partition_result: list[PartitionResult]

    throttle_time_ms: int32 = 0
    error_code: int16 = field(since=1)
    replica_election_results: list[ReplicaElectionResult]
