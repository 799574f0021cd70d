"""Describes partitions for Metadata and DescribeTopicPartitions."""

from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

from kafkalite.cluster.image import NO_LEADER, TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.server.call import ClusterCall

Described = TypeVar(
    "Described",
    MetadataResponse.MetadataResponseTopic.MetadataResponsePartition,
    DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic.DescribeTopicPartitionsResponsePartition,
)


def describe_all(call: ClusterCall, topic: TopicImage, message: type[Described]) -> Generator[None, None, list[Any]]:
    """Return one `message` for each partition of the topic, as an array of the response."""
    context, version = call.context, call.version
    offline = context.replicas.offline(topic.topic_id)
    kept = None if offline else context.descriptions.get(topic, message, version)
    if kept is not None:
        return kept
    described = call.elements()
    for partition in describe_partitions(topic, message, range(len(topic.partitions)), offline):
        described.add(partition)
        yield
    kept = described.encoded()
    if not offline and context.image.topics.get(topic.name) is topic:  # else it would be kept for a deleted topic
        context.descriptions.put(topic, message, version, kept)
    return kept


def describe_partitions(
    topic: TopicImage, message: type[Described], indexes: Iterable[int], offline: frozenset[int]
) -> Iterator[Described]:
    """Yield one `message` for each of these partitions; an offline partition has an error and no leader."""
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
