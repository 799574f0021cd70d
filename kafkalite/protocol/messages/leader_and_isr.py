"""LeaderAndIsr, key 4, v0-7. The controller assigns leaders and followers to a broker.

Version notes: v1 new partitions; v2 broker epoch (KIP-380), partitions by topic; v3 adding and removing replicas
(KIP-455); v5 topic ids and the type of the request (KIP-516); v6 recovery state (KIP-704); v7 KRaft controllers
(KIP-866). Kafka 4 has no such request.
Source: LeaderAndIsrRequest.json, LeaderAndIsrResponse.json of Apache Kafka 3.9.
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


class LeaderAndIsrPartitionState(Struct):
    """State of a partition; `partition_epoch` is the version of its znode."""

    topic_name: string = field(until=1, default="")
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    partition_epoch: int32
    replicas: list[int32]
    adding_replicas: list[int32] = field(since=3, factory=list)
    removing_replicas: list[int32] = field(since=3, factory=list)
    is_new: boolean = field(since=1, default=False)
    leader_recovery_state: int8 = field(since=6, default=0)
    eligible_replicas: list[int32] = field(since=4, tag=own_tags.ELIGIBLE_REPLICAS, factory=list)


class LeaderAndIsrRequest(Request, key=4, versions=(0, 7), flexible=4):
    """The partitions that the receiver hosts from now on; `type` 2 = all of them, 1 = those that have changed."""

    class LeaderAndIsrTopicState(Struct):
        topic_name: string
        topic_id: uuid = field(since=5, default=ZERO_UUID)
        partition_states: list[LeaderAndIsrPartitionState]

    class LeaderAndIsrLiveLeader(Struct):
        broker_id: int32
        host_name: string
        port: int32

    controller_id: int32
    is_kraft_controller: boolean = field(since=7, default=False)
    controller_epoch: int32
    broker_epoch: int64 = field(since=2, default=-1)
    type: int8 = field(since=5, default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(until=1, factory=list)
    topic_states: list[LeaderAndIsrTopicState] = field(since=2, factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


class LeaderAndIsrPartitionError(Struct):
    """The error of a partition."""

    topic_name: string = field(until=4, default="")
    partition_index: int32
    error_code: int16


class LeaderAndIsrResponse(Response, key=4, versions=(0, 7), flexible=4):
    """An error per partition; KAFKA_STORAGE_ERROR = its log directory is offline."""

    class LeaderAndIsrTopicError(Struct):
        topic_id: uuid
        partition_errors: list[LeaderAndIsrPartitionError]

    error_code: int16
    partition_errors: list[LeaderAndIsrPartitionError] = field(until=4, factory=list)
    topics: list[LeaderAndIsrTopicError] = field(since=5, factory=list)
