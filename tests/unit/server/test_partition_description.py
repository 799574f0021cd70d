"""Descriptions of partitions: what a client can reach, and the cache of encoded ones, per image of a topic."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite._speedups.codec import decode, encode
from kafkalite.cluster.metadata.image import NO_LEADER, NO_PARTITION, PartitionImage, TopicImage
from kafkalite.cluster.metadata.live_brokers import BrokerImage, LiveBrokers
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import Endpoint
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.server.requests.description_cache import DescriptionCache
from kafkalite.server.requests.partition_description import PartitionDescriber, describe_all
from kafkalite.server.requests.response_arrays import ResponseArray
from kafkalite.slicing import finish

Partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
BROKERS = LiveBrokers((BrokerImage(1), BrokerImage(2)))
TOPIC = TopicImage("t", bytes(15) + b"\x01", (PartitionImage((1,), (1,), 1, 0),) * 3, {})


def call(*offline: int) -> Any:
    image = SimpleNamespace(topics={"t": TOPIC}, brokers=BROKERS)
    context = SimpleNamespace(
        offline_partitions=lambda topic_id: frozenset(offline), descriptions=DescriptionCache(), image=image
    )
    connection = SimpleNamespace(listener="PLAINTEXT")
    return SimpleNamespace(
        context=context, connection=connection, version=9, elements=lambda: ResponseArray(MetadataResponse, 9)
    )


def description(asked: Any, topic: TopicImage = TOPIC) -> list[Any]:
    return list(finish(describe_all(asked, asked.context.image, topic, Partition)))


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
    asked.context.offline_partitions = lambda topic_id: frozenset()
    assert [p.leader_id for p in decoded(description(asked))] == [1, 1, 1]


def test_deleted_topic_leaves_the_cache() -> None:
    asked = call()
    first = description(asked)
    asked.context.descriptions.remove("t")
    assert description(asked)[0] is not first[0]


def test_topic_deleted_while_being_described_is_not_cached() -> None:
    asked = call()
    steps = describe_all(asked, asked.context.image, TOPIC, Partition)
    next(steps)
    asked.context.image.topics.clear()
    assert len(decoded(finish(steps))) == 3
    assert asked.context.descriptions.get(TOPIC, BROKERS.reachable("PLAINTEXT"), Partition, 9) is None


SPREAD = TopicImage(
    "t",
    bytes(15) + b"\x01",
    (
        PartitionImage((1, 2), (1, 2), 1, 5),
        PartitionImage((2, 1), (2,), 2, 6, offline_replicas=(1,)),
        PartitionImage((3, 1), (3,), 3, 7, offline_replicas=(3,)),
        PartitionImage((1,), (1,), NO_LEADER, 8),
        NO_PARTITION,
    ),
)


def described(version: int, message: Any = Partition) -> list[Any]:
    """SPREAD for the clients of EXTERNAL, which broker 2 does not have; broker 3 is dead."""
    endpoints = {name: Endpoint(name, "h", 1) for name in ("INTERNAL", "EXTERNAL")}
    brokers = LiveBrokers((BrokerImage(1, endpoints), BrokerImage(2, {"INTERNAL": endpoints["INTERNAL"]})))
    describer = PartitionDescriber(message, version, brokers, brokers.reachable("EXTERNAL"), frozenset())
    return list(describer.describe(SPREAD, range(len(SPREAD.partitions))))


@pytest.mark.parametrize(
    ("version", "no_listener"),
    [(1, Error.LEADER_NOT_AVAILABLE), (5, Error.LEADER_NOT_AVAILABLE), (6, Error.LISTENER_NOT_FOUND)],
)
def test_leader_that_the_client_cannot_reach_is_an_error(version: int, no_listener: Error) -> None:
    found = [(p.partition_index, p.error_code, p.leader_id, p.leader_epoch) for p in described(version)]
    unavailable = Error.LEADER_NOT_AVAILABLE
    assert found == [(0, 0, 1, 5), (1, no_listener, -1, 6), (2, unavailable, -1, 7), (3, unavailable, -1, 8)]
    assert [(p.replica_nodes, p.isr_nodes, p.offline_replicas) for p in described(version)] == [
        ([1, 2], [1, 2], []),
        ([2, 1], [2], [1]),
        ([3, 1], [3], [3]),
        ([1], [1], []),
    ]


def test_version_0_lists_reachable_replicas_only() -> None:
    assert [(p.error_code, p.replica_nodes, p.isr_nodes) for p in described(0)] == [
        (Error.REPLICA_NOT_AVAILABLE, [1], [1]),
        (Error.LEADER_NOT_AVAILABLE, [1], []),
        (Error.LEADER_NOT_AVAILABLE, [1], []),
        (Error.LEADER_NOT_AVAILABLE, [1], [1]),
    ]


def test_topic_descriptions_name_the_missing_listener() -> None:
    message: Any = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    found = described(0, message.DescribeTopicPartitionsResponsePartition)
    assert [p.error_code for p in found][:2] == [0, Error.LISTENER_NOT_FOUND]
    assert found[0].replica_nodes == [1, 2]


def test_description_of_other_brokers_is_not_used() -> None:
    asked = call()
    first = description(asked)
    asked.context.image.brokers = LiveBrokers((BrokerImage(2),))
    second = description(asked)
    assert [p.leader_id for p in decoded(second)] == [-1, -1, -1]
    assert description(asked)[0] is second[0] is not first[0]
