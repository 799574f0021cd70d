"""The cache of encoded partition descriptions: valid for one image of a topic."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kafkalite._speedups.codec.codec import decode, encode
from kafkalite.cluster.image import PartitionImage, TopicImage
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.server.description_cache import DescriptionCache
from kafkalite.server.partition_description import describe_all
from kafkalite.server.response_arrays import ResponseArray
from kafkalite.slicing import finish

Partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
TOPIC = TopicImage("t", bytes(15) + b"\x01", (PartitionImage((1,), (1,), 1, 0),) * 3, {})


def call(*offline: int) -> Any:
    replicas = SimpleNamespace(offline=lambda topic_id: frozenset(offline))
    image = SimpleNamespace(topics={"t": TOPIC})
    context = SimpleNamespace(replicas=replicas, descriptions=DescriptionCache(), image=image)
    return SimpleNamespace(context=context, version=9, elements=lambda: ResponseArray(MetadataResponse, 9))


def description(asked: Any, topic: TopicImage = TOPIC) -> list[Any]:
    return list(finish(describe_all(asked, topic, Partition)))


def decoded(pieces: list[Any]) -> list[Any]:
    """The partitions of a description."""
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=pieces)
    response = MetadataResponse(brokers=[], cluster_id=None, controller_id=1, topics=[topic])
    return decode(MetadataResponse, 9, encode(response, 9)).topics[0].partitions


def test_description_of_unchanged_topic_is_cached() -> None:
    asked = call()
    first, second = description(asked), description(asked)
    assert first[0] is second[0]


def test_changed_topic_is_not_described_from_cache() -> None:
    asked = call()
    description(asked)
    moved = replace(TOPIC, partitions=(PartitionImage((2,), (2,), 2, 7),))
    assert [(p.leader_id, p.leader_epoch) for p in decoded(description(asked, moved))] == [(2, 7)]


def test_offline_partitions_are_described_and_not_cached() -> None:
    asked = call(1)
    assert [p.leader_id for p in decoded(description(asked))] == [1, -1, 1]
    asked.context.replicas.offline = lambda topic_id: frozenset()
    assert [p.leader_id for p in decoded(description(asked))] == [1, 1, 1]


def test_deleted_topic_leaves_the_cache() -> None:
    asked = call()
    first = description(asked)
    asked.context.descriptions.remove("t")
    assert description(asked)[0] is not first[0]


def test_topic_deleted_while_being_described_is_not_cached() -> None:
    asked = call()
    steps = describe_all(asked, TOPIC, Partition)
    next(steps)
    asked.context.image.topics.clear()
    assert len(decoded(finish(steps))) == 3
    assert asked.context.descriptions.get(TOPIC, Partition, 9) is None
