"""What Metadata and DescribeTopicPartitions both say of a partition."""

from collections.abc import Iterable
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


class Descriptions:
    """Partitions as they were described last, by topic and message: clients ask for all of them over and over.

    A description is used again for the very same image of a topic, with nothing offline; so it is never out of date.
    Descriptions are not changed by whoever gets them.
    """

    def __init__(self) -> None:
        self._kept: dict[str, dict[type, tuple[TopicImage, list[Any]]]] = {}

    def of(self, topic: TopicImage, message: type[Described]) -> list[Described] | None:
        """What was kept for this image of the topic."""
        image, described = self._kept.get(topic.name, {}).get(message, (None, None))
        return described if image is topic else None

    def keep(self, topic: TopicImage, message: type[Described], described: list[Described]) -> None:
        """Remember it until the topic changes."""
        self._kept.setdefault(topic.name, {})[message] = topic, described

    def forget(self, name: str) -> None:
        """The topic is gone."""
        self._kept.pop(name, None)


def describe_all(call: Call, topic: TopicImage, message: type[Described]) -> list[Described]:
    """One `message` for each partition of the topic."""
    descriptions, offline = call.broker.descriptions, call.broker.replicas.offline(topic.name)
    kept = None if offline else descriptions.of(topic, message)
    if kept is None:
        kept = describe_partitions(call, topic, message, range(len(topic.partitions)))
        if not offline:
            descriptions.keep(topic, message, kept)
    return kept


def describe_partitions(
    call: Call, topic: TopicImage, message: type[Described], indexes: Iterable[int]
) -> list[Described]:
    """One `message` for each of these partitions; an offline one has no leader and says so."""
    offline = call.broker.replicas.offline(topic.name)
    described = []
    for index in indexes:
        partition, is_offline = topic.partitions[index], index in offline
        described.append(
            message(
                error_code=KafkaErrorCode.LEADER_NOT_AVAILABLE if is_offline else 0,
                partition_index=index,
                leader_id=NO_LEADER if is_offline else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=list(partition.replicas) if is_offline else [],
            )
        )
    return described
