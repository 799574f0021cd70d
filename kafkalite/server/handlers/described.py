"""What Metadata and DescribeTopicPartitions both say of a partition."""

from collections.abc import Iterable
from typing import TypeVar

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
