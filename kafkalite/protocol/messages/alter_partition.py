"""AlterPartition, key 56, v0-3. A leader asks the controller to change the in-sync replicas (KIP-497).

Version notes: v1 recovery state (KIP-704); v2 topic ids (KIP-841); v3 broker epochs of the in-sync replicas (KIP-903).
Kafka 4 has v2 and v3 only.
Source: AlterPartitionRequest.json, AlterPartitionResponse.json of Apache Kafka 3.9.
"""

from kafkalite.protocol import own_tags
from kafkalite.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    field,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class AlterPartitionRequest(Request, key=56, versions=(0, 3), flexible=0):
    """The new in-sync replicas of partitions that the sender leads."""

    class TopicData(Struct):
        class PartitionData(Struct):
            class BrokerState(Struct):
                broker_id: int32
                broker_epoch: int64 = -1

            partition_index: int32
            leader_epoch: int32
            new_isr: list[int32] = field(until=2, factory=list)
            new_isr_with_epochs: list[BrokerState] = field(since=3, factory=list)
            leader_recovery_state: int8 = field(since=1, default=0)
            partition_epoch: int32

        topic_name: string = field(until=1, default="")
        topic_id: uuid = field(since=2, default=ZERO_UUID)
        partitions: list[PartitionData]

    broker_id: int32
    broker_epoch: int64 = -1
    topics: list[TopicData]


class AlterPartitionResponse(Response, key=56, versions=(0, 3), flexible=0):
    """The states after the change, or an error per partition."""

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int32
            error_code: int16
            leader_id: int32
            leader_epoch: int32
            isr: list[int32]
            leader_recovery_state: int8 = field(since=1, default=0)
            partition_epoch: int32
            eligible_replicas: list[int32] = field(tag=own_tags.ELIGIBLE_REPLICAS, factory=list)

        topic_name: string = field(until=1, default="")
        topic_id: uuid = field(since=2, default=ZERO_UUID)
        partitions: list[PartitionData]

    throttle_time_ms: int32 = 0
    error_code: int16
    topics: list[TopicData]
