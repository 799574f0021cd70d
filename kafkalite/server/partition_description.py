"""What Metadata and DescribeTopicPartitions both say of a partition."""

from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

from kafkalite.cluster.image import NO_LEADER, TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.server.call import Call

Described = TypeVar(
    "Described",
    MetadataResponse.MetadataResponseTopic.MetadataResponsePartition,
    DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic.DescribeTopicPartitionsResponsePartition,
)
Kept = tuple[TopicImage, list[Any]]


class PartitionDescriptions:
    """Partitions as they were described last, encoded, by topic and version: clients ask for all of them over and over.

    A description is used again for the very same image of a topic, with nothing offline; so it is never out of date.
    """

    def __init__(self) -> None:
        self._kept: dict[str, dict[tuple[type, int], Kept]] = {}

    def of(self, topic: TopicImage, message: type, version: int) -> list[Any] | None:
        """What was kept for this image of the topic."""
        image, described = self._kept.get(topic.name, {}).get((message, version), (None, None))
        return described if image is topic else None

    def keep(self, topic: TopicImage, message: type, version: int, described: list[Any]) -> None:
        """Remember it until the topic changes."""
        self._kept.setdefault(topic.name, {})[message, version] = topic, described

    def forget(self, name: str) -> None:
        """The topic is gone."""
        self._kept.pop(name, None)


def describe_all(call: Call, topic: TopicImage, message: type[Described]) -> Generator[None, None, list[Any]]:
    """One `message` for each partition of the topic, as an array of the response."""
    broker, version = call.broker, call.version
    offline = broker.replicas.offline(topic.topic_id)
    kept = None if offline else broker.descriptions.of(topic, message, version)
    if kept is not None:
        return kept
    described = call.elements()
    for partition in describe_partitions(topic, message, range(len(topic.partitions)), offline):
        described.add(partition)
        yield
    kept = described.encoded()
    if not offline and broker.image.topics.get(topic.name) is topic:  # else it would be kept for a deleted topic
        broker.descriptions.keep(topic, message, version, kept)
    return kept


def describe_partitions(
    topic: TopicImage, message: type[Described], indexes: Iterable[int], offline: frozenset[int]
) -> Iterator[Described]:
    """One `message` for each of these partitions; an offline one has no leader and says so."""
    for index in indexes:
        partition, is_offline = topic.partitions[index], index in offline
        yield message(
            error_code=KafkaErrorCode.LEADER_NOT_AVAILABLE if is_offline else 0,
            partition_index=index,
            leader_id=NO_LEADER if is_offline else partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=list(partition.replicas) if is_offline else [],
        )
