"""Converts the operations of the controller to changes of the tree."""

import random
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.model import TopicPartition
from kafkalite.state.controller import effects as out
from kafkalite.state.controller.values import Replicas
from tests.story.controller import tree as nodes


class TopicValue(NamedTuple):
    """The value of a topic's node."""

    topic_id: bytes | None
    replicas: Mapping[int, Replicas]


def topic_path(topic: str) -> str:
    return f"{nodes.TOPICS}/{topic}"


def partition_path(key: TopicPartition) -> str:
    return f"{nodes.TOPICS}/{key.topic}/partitions/{key.partition}"


def state_path(key: TopicPartition) -> str:
    return f"{partition_path(key)}/state"


def changes_of(operation: out.Operation, chance: random.Random) -> list[nodes.Change]:
    """The changes of an operation; `chance` draws topic ids."""
    if isinstance(operation, out.CreateState):
        above: list[nodes.Change] = [nodes.Create(partition_path(operation.partition))] if operation.with_parent else []
        return [*above, nodes.Create(state_path(operation.partition), operation.state)]
    if isinstance(operation, out.SetTopicId):
        value = TopicValue(operation.topic_id or chance.randbytes(16), operation.replicas)
        return [nodes.Put(topic_path(operation.topic), value, operation.version)]
    return [_change(operation)]


def _change(operation: out.Operation) -> nodes.Change:
    match operation:
        case out.CheckTopic(topic, version):
            return nodes.Check(topic_path(topic), version)
        case out.CreatePartitionsNode(topic):
            return nodes.Create(f"{topic_path(topic)}/partitions")
        case out.SetState(partition, state, version):
            return nodes.Put(state_path(partition), state, version)
        case out.CheckDeletion(topic):
            return nodes.Check(f"{nodes.DELETIONS}/{topic}")
        case out.DeleteState(partition):
            return nodes.Remove(state_path(partition))
        case out.DeletePartitionNode(partition):
            return nodes.Remove(partition_path(partition))
        case out.DeletePartitionsNode(topic):
            return nodes.Remove(f"{topic_path(topic)}/partitions")
        case out.DeleteTopicNode(topic, version):
            return nodes.Remove(topic_path(topic), version)
        case out.DeleteTopicConfig(topic):
            return nodes.Remove(f"{nodes.CONFIGS}/{topic}")
        case out.DeleteDeletion(topic):
            return nodes.Remove(f"{nodes.DELETIONS}/{topic}")
        case out.EnableFeatures(version):
            if version is None:
                return nodes.Create(nodes.FEATURE, {})
            return nodes.Put(nodes.FEATURE, {}, version)
    raise AssertionError(operation)
