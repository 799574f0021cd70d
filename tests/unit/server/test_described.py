"""Descriptions of topics are used again while nothing changed, and never after that."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kafkalite.cluster.image import PartitionImage, TopicImage
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.server.handlers.described import Descriptions, describe_all

Partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
TOPIC = TopicImage("t", bytes(15) + b"\x01", (PartitionImage((1,), (1,), 1, 0),) * 3, {})


def call(*offline: int) -> Any:
    replicas = SimpleNamespace(offline=lambda name: frozenset(offline))
    return SimpleNamespace(broker=SimpleNamespace(replicas=replicas, descriptions=Descriptions()))


def test_the_same_image_is_described_once() -> None:
    asked = call()
    assert describe_all(asked, TOPIC, Partition) is describe_all(asked, TOPIC, Partition)


def test_a_changed_topic_is_described_anew() -> None:
    asked = call()
    describe_all(asked, TOPIC, Partition)
    moved = replace(TOPIC, partitions=(PartitionImage((2,), (2,), 2, 7),))
    assert [(p.leader_id, p.leader_epoch) for p in describe_all(asked, moved, Partition)] == [(2, 7)]


def test_what_is_offline_is_said_and_not_kept() -> None:
    asked = call(1)
    assert [p.leader_id for p in describe_all(asked, TOPIC, Partition)] == [1, -1, 1]
    asked.broker.replicas.offline = lambda name: frozenset()
    assert [p.leader_id for p in describe_all(asked, TOPIC, Partition)] == [1, 1, 1]


def test_a_deleted_topic_is_forgotten() -> None:
    asked = call()
    first = describe_all(asked, TOPIC, Partition)
    asked.broker.descriptions.forget("t")
    assert describe_all(asked, TOPIC, Partition) is not first
