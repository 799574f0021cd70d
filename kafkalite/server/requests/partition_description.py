"""Describes partitions for Metadata and DescribeTopicPartitions."""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

from kafkalite.cluster.metadata.image import NO_LEADER, NO_PARTITION, ClusterImage, PartitionImage, TopicImage
from kafkalite.cluster.metadata.live_brokers import LiveBrokers
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.server.requests.call import ClusterCall

MetadataPartition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
ONLY_REACHABLE_REPLICAS = 0  # version of Metadata
LISTENER_NOT_FOUND_SINCE = 6  # version of Metadata; LEADER_NOT_AVAILABLE before

Described = TypeVar(
    "Described",
    MetadataPartition,
    DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic.DescribeTopicPartitionsResponsePartition,
)


def describe_all(
    call: ClusterCall, image: ClusterImage, topic: TopicImage, message: type[Described]
) -> Generator[None, None, list[Any]]:
    """Return one `message` for each partition of a topic of the image, as an array of the response."""
    context, version = call.context, call.version
    offline = context.offline_partitions(topic.topic_id)
    reachable = image.brokers.reachable(call.connection.listener)
    kept = None if offline else context.descriptions.get(topic, reachable, message, version)
    if kept is not None:
        return kept
    described = call.elements()
    describer = PartitionDescriber(message, version, image.brokers, reachable, offline)
    for partition in describer.describe(topic, range(len(topic.partitions))):
        described.add(partition)
        yield
    kept = described.encode_pieces()
    if not offline and context.image.topics.get(topic.name) is topic:  # else it would be kept for a deleted topic
        context.descriptions.put(topic, reachable, message, version, kept)
    return kept


class PartitionDescriber(Generic[Described]):
    """Describes partitions for the clients of one listener.

    A partition whose leader is not reachable has an error and no leader (ZkMetadataCache.getPartitionMetadata).

    Arguments:
        message: class of a description.
        version: of the response.
        brokers: the live brokers.
        reachable: ids of those with the listener.
        offline: partitions that this broker, which is alone, cannot serve.
    """

    def __init__(
        self,
        message: type[Described],
        version: int,
        brokers: LiveBrokers,
        reachable: frozenset[int],
        offline: frozenset[int],
    ) -> None:
        self._message: Callable[..., Described] = message
        self._brokers = brokers
        self._reachable = reachable
        self._offline = offline
        metadata = issubclass(message, MetadataPartition)
        self._only_reachable = metadata and version == ONLY_REACHABLE_REPLICAS
        self._no_listener = (
            KafkaErrorCode.LEADER_NOT_AVAILABLE
            if metadata and version < LISTENER_NOT_FOUND_SINCE
            else KafkaErrorCode.LISTENER_NOT_FOUND
        )

    def describe(self, topic: TopicImage, indexes: Iterable[int]) -> Iterator[Described]:
        """Yield one message for each of these partitions that is known."""
        for index in indexes:
            partition = topic.partitions[index]
            if partition is not NO_PARTITION:
                yield self._describe(index, partition)

    def _describe(self, index: int, partition: PartitionImage) -> Described:
        is_offline = index in self._offline
        error = KafkaErrorCode.LEADER_NOT_AVAILABLE if is_offline else self._error(partition.leader)
        described = self._message(
            error_code=error,
            partition_index=index,
            leader_id=NO_LEADER if error else partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=list(partition.replicas if is_offline else partition.offline_replicas),
        )
        if self._only_reachable:
            self._leave_out_unreachable(described)
        return described

    def _error(self, leader: int) -> int:
        if leader in self._reachable:
            return 0
        return self._no_listener if leader in self._brokers else KafkaErrorCode.LEADER_NOT_AVAILABLE

    def _leave_out_unreachable(self, described: Described) -> None:
        """Clients of v0 need the address of every replica."""
        for ids in (described.replica_nodes, described.isr_nodes):
            if not self._reachable.issuperset(ids):
                ids[:] = [broker_id for broker_id in ids if broker_id in self._reachable]
                described.error_code = described.error_code or KafkaErrorCode.REPLICA_NOT_AVAILABLE
