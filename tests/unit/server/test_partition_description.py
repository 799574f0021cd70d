"""Descriptions of topics are used again while nothing changed, and never after that."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kafkalite._speedups.codec.codec import decode, encode
from kafkalite.cluster.image import PartitionImage, TopicImage
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.server.partition_description import PartitionDescriptions, describe_all
from kafkalite.server.response_arrays import ResponseArray
from kafkalite.slicing import finish

Partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
TOPIC = TopicImage("t", bytes(15) + b"\x01", (PartitionImage((1,), (1,), 1, 0),) * 3, {})


def call(*offline: int) -> Any:
    replicas = SimpleNamespace(offline=lambda topic_id: frozenset(offline))
    image = SimpleNamespace(topics={"t": TOPIC})
    broker = SimpleNamespace(replicas=replicas, descriptions=PartitionDescriptions(), image=image)
    return SimpleNamespace(broker=broker, version=9, elements=lambda: ResponseArray(MetadataResponse, 9))


def description(asked: Any, topic: TopicImage = TOPIC) -> list[Any]:
    return list(finish(describe_all(asked, topic, Partition)))


def decoded(pieces: list[Any]) -> list[Any]:
    """The partitions of a description."""
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=pieces)
    response = MetadataResponse(brokers=[], cluster_id=None, controller_id=1, topics=[topic])
    return decode(MetadataResponse, 9, encode(response, 9)).topics[0].partitions


def test_the_same_image_is_described_once() -> None:
    asked = call()
    first, second = description(asked), description(asked)
    assert first[0] is second[0]


def test_a_changed_topic_is_described_anew() -> None:
    asked = call()
    description(asked)
    moved = replace(TOPIC, partitions=(PartitionImage((2,), (2,), 2, 7),))
    assert [(p.leader_id, p.leader_epoch) for p in decoded(description(asked, moved))] == [(2, 7)]


def test_what_is_offline_is_said_and_not_kept() -> None:
    asked = call(1)
    assert [p.leader_id for p in decoded(description(asked))] == [1, -1, 1]
    asked.broker.replicas.offline = lambda topic_id: frozenset()
    assert [p.leader_id for p in decoded(description(asked))] == [1, 1, 1]


def test_a_deleted_topic_is_forgotten() -> None:
    asked = call()
    first = description(asked)
    asked.broker.descriptions.forget("t")
    assert description(asked)[0] is not first[0]


def test_a_topic_deleted_while_it_is_described_is_not_kept() -> None:
    asked = call()
    steps = describe_all(asked, TOPIC, Partition)
    next(steps)
    asked.broker.image.topics.clear()
    assert len(decoded(finish(steps))) == 3
    assert asked.broker.descriptions.of(TOPIC, Partition, 9) is None
