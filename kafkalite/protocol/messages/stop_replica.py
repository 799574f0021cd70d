"""StopReplica, key 5, v0-4. The controller ends the hosting of replicas, and deletes their logs if it says so.

Version notes: v1 broker epoch (KIP-380), partitions by topic; v3 leader epoch and deletion per partition (KIP-570);
v4 KRaft controllers (KIP-866). Kafka 4 has no such request.
Source: StopReplicaRequest.json, StopReplicaResponse.json of Apache Kafka 3.9.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int16, int32, int64, string


class StopReplicaRequest(Request, key=5, versions=(0, 4), flexible=2):
    """The partitions that the receiver no longer hosts. The leader epoch -2 means that the topic is deleted."""

    class StopReplicaPartitionV0(Struct):
        topic_name: string
        partition_index: int32

    class StopReplicaTopicV1(Struct):
        name: string
        partition_indexes: list[int32]

    class StopReplicaTopicState(Struct):
        class StopReplicaPartitionState(Struct):
            partition_index: int32
            leader_epoch: int32 = -1
            delete_partition: boolean

        topic_name: string
        partition_states: list[StopReplicaPartitionState]

    controller_id: int32
    is_kraft_controller: boolean = field(since=4, default=False)
    controller_epoch: int32
    broker_epoch: int64 = field(since=1, default=-1)
    delete_partitions: boolean = field(until=2, default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(until=0, factory=list)
    topics: list[StopReplicaTopicV1] = field(since=1, until=2, factory=list)
    topic_states: list[StopReplicaTopicState] = field(since=3, factory=list)


class StopReplicaResponse(Response, key=5, versions=(0, 4), flexible=2):
    """An error per partition; FENCED_LEADER_EPOCH from v3 on."""

    class StopReplicaPartitionError(Struct):
        topic_name: string
        partition_index: int32
        error_code: int16

    error_code: int16
    partition_errors: list[StopReplicaPartitionError]
