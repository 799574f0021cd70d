"""Nodes of the controller: its election, requests of administrators and notifications of brokers (ZkData.scala)."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkalite.coordination.znodes import DELETE_TOPICS
from kafkalite.coordination.znodes.fields import EPOCH_MAX, ZnodeError, ZnodeReader, dump, parse
from kafkalite.model import PARTITIONS_MAX, TopicPartition

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
LOG_DIR_FAILURE = 1
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
NO_KRAFT_EPOCH = -1
_WHOLE = re.compile(rb"-?[0-9]{1,10}")


class ControllerNode(NamedTuple):
    """`/controller`. `kraft_epoch` is not -1 while a KRaft controller migrates the cluster (KIP-866)."""

    broker_id: int
    timestamp_ms: int
    kraft_epoch: int = NO_KRAFT_EPOCH


def encode_controller(node: ControllerNode) -> bytes:
    """Version 2."""
    return dump(
        {
            "version": 2,
            "brokerid": node.broker_id,
            "timestamp": str(node.timestamp_ms),
            "kraftControllerEpoch": node.kraft_epoch,
        }
    )


def decode_controller(data: bytes) -> ControllerNode:
    """Any version; version 1 has no KRaft epoch. Raises ZnodeError."""
    fields = ZnodeReader(CONTROLLER, parse(CONTROLLER, data))
    return ControllerNode(
        fields.broker("brokerid"),
        fields.whole_text("timestamp"),
        fields.whole("kraftControllerEpoch", NO_KRAFT_EPOCH),
    )


def encode_controller_epoch(epoch: int) -> bytes:
    """`/controller_epoch`: a whole number in ASCII."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    """`/controller_epoch`; raises ZnodeError."""
    if _WHOLE.fullmatch(data) is None or not 0 <= int(data) <= EPOCH_MAX:
        raise ZnodeError(f"{CONTROLLER_EPOCH}: not a controller epoch")
    return int(data)


def delete_topic_path(topic: str) -> str:
    """Node that asks the controller to delete a topic; it has no data."""
    return f"{DELETE_TOPICS}/{topic}"


def encode_reassignment(replicas: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """`REASSIGN_PARTITIONS`: the new replicas by partition."""
    partitions = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": list(brokers)}
        for partition, brokers in replicas.items()
    ]
    return dump({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """`REASSIGN_PARTITIONS`; the last entry of a partition counts, as in Kafka. Raises ZnodeError."""
    fields = ZnodeReader(REASSIGN_PARTITIONS, parse(REASSIGN_PARTITIONS, data))
    return {_partition(each): each.brokers("replicas") for each in fields.objects("partitions")}


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """`PREFERRED_ELECTION`, and the nodes below `ISR_CHANGES`, which brokers before Kafka 2.7 write."""
    named = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return dump({"version": 1, "partitions": named})


def decode_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    """Decode what `encode_partitions` has encoded, each partition once; raises ZnodeError."""
    fields = ZnodeReader(path, parse(path, data))
    return tuple(dict.fromkeys(_partition(each) for each in fields.objects("partitions")))


def encode_log_dir_failure(broker_id: int) -> bytes:
    """A node below `LOG_DIR_EVENTS`: a log directory of the broker has failed."""
    return dump({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker of a node below `LOG_DIR_EVENTS`; Kafka reads nothing else. Raises ZnodeError."""
    return ZnodeReader(path, parse(path, data)).broker("broker")


def _partition(fields: ZnodeReader) -> TopicPartition:
    return TopicPartition(fields.text("topic"), fields.whole("partition", minimum=0, maximum=PARTITIONS_MAX - 1))
