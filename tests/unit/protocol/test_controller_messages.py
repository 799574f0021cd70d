"""Requests between brokers that Kafka 4 has removed: bytes written by hand from the definitions of Kafka 3.9."""

import pytest

from kafkalite._speedups import codec
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalite.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest
from kafkalite.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kafkalite.protocol.schema import Message

TOPIC_ID = bytes(range(16))
ID = "000102030405060708090a0b0c0d0e0f"
TopicState = LeaderAndIsrRequest.LeaderAndIsrTopicState
Leader = LeaderAndIsrRequest.LeaderAndIsrLiveLeader
Broker = UpdateMetadataRequest.UpdateMetadataBroker
Endpoint = Broker.UpdateMetadataEndpoint
MetadataTopic = UpdateMetadataRequest.UpdateMetadataTopicState
StopTopic = StopReplicaRequest.StopReplicaTopicState
IsrTopic = AlterPartitionRequest.TopicData

STATE = LeaderAndIsrPartitionState(
    partition_index=3,
    controller_epoch=7,
    leader=1,
    leader_epoch=5,
    isr=[1],
    partition_epoch=9,
    replicas=[1],
    is_new=True,
)
LEADER = Leader(broker_id=1, host_name="h", port=9092)
CASES: list[tuple[str, Message, int, str]] = [
    (
        "partitions with topic ids, and the type of the request",
        LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=7,
            broker_epoch=42,
            type=2,
            topic_states=[TopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[STATE])],
            live_leaders=[LEADER],
        ),
        7,
        "00000001 00 00000007 000000000000002a 02"
        f"02 02 74 {ID} 02 00000003 00000007 00000001 00000005 02 00000001 00000009 02 00000001 01 01 01 00 00 00"
        "02 00000001 02 68 00002384 00 00",
    ),
    (
        "the oldest version: no topics, no broker epoch",
        LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=7,
            ungrouped_partition_states=[
                LeaderAndIsrPartitionState(
                    topic_name="t",
                    partition_index=3,
                    controller_epoch=7,
                    leader=1,
                    leader_epoch=5,
                    isr=[1],
                    partition_epoch=9,
                    replicas=[1],
                )
            ],
            live_leaders=[LEADER],
        ),
        0,
        "00000001 00000007 00000001 0001 74 00000003 00000007 00000001 00000005 00000001 00000001 00000009"
        "00000001 00000001 00000001 00000001 0001 68 00002384",
    ),
    (
        "errors by topic id",
        LeaderAndIsrResponse(
            error_code=0,
            topics=[
                LeaderAndIsrResponse.LeaderAndIsrTopicError(
                    topic_id=TOPIC_ID, partition_errors=[LeaderAndIsrPartitionError(partition_index=3, error_code=56)]
                )
            ],
        ),
        7,
        f"0000 02 {ID} 02 00000003 0038 00 00 00",
    ),
    (
        "deletion of a topic's replica",
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=7,
            broker_epoch=42,
            topic_states=[
                StopTopic(
                    topic_name="t",
                    partition_states=[
                        StopTopic.StopReplicaPartitionState(partition_index=3, leader_epoch=-2, delete_partition=True)
                    ],
                )
            ],
        ),
        4,
        "00000001 00 00000007 000000000000002a 02 02 74 02 00000003 fffffffe 01 00 00 00",
    ),
    (
        "a full update is tagged",
        UpdateMetadataRequest(
            controller_id=1,
            type=2,
            controller_epoch=7,
            broker_epoch=42,
            topic_states=[
                MetadataTopic(
                    topic_name="t",
                    topic_id=TOPIC_ID,
                    partition_states=[
                        UpdateMetadataPartitionState(
                            partition_index=3,
                            controller_epoch=7,
                            leader=-1,
                            leader_epoch=5,
                            isr=[1],
                            zk_version=9,
                            replicas=[1],
                            offline_replicas=[1],
                        )
                    ],
                )
            ],
            live_brokers=[
                Broker(
                    id=2, endpoints=[Endpoint(port=9092, host="h", listener="A", security_protocol=1)], rack="r"
                )
            ],
        ),
        8,
        f"00000001 00 00000007 000000000000002a 02 02 74 {ID} 02 00000003 00000007 ffffffff 00000005 02 00000001"
        "00000009 02 00000001 02 00000001 00 00 02 00000002 02 00002384 02 68 02 41 0001 00 02 72 00 01 00 01 02",
    ),
    ("a broker that stops", ControlledShutdownRequest(broker_id=1, broker_epoch=42), 3, "00000001 000000000000002a 00"),
    (
        "its remaining leader",
        ControlledShutdownResponse(
            error_code=0,
            remaining_partitions=[ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=3)],
        ),
        2,
        "0000 00000001 0001 74 00000003",
    ),
    (
        "in-sync replicas by topic name",
        AlterPartitionRequest(
            broker_id=1,
            broker_epoch=42,
            topics=[
                IsrTopic(
                    topic_name="t",
                    partitions=[
                        IsrTopic.PartitionData(partition_index=3, leader_epoch=5, new_isr=[1, 2], partition_epoch=9)
                    ],
                )
            ],
        ),
        0,
        "00000001 000000000000002a 02 02 74 02 00000003 00000005 03 00000001 00000002 00000009 00 00 00",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "message", "version", "encoded"), CASES, ids=[case[0] for case in CASES])
def test_bytes(name: str, message: Message, version: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert codec.encode(message, version) == data
    assert codec.decode(type(message), version, data) == message
