"""DescribeTopicPartitions, key 75, v0: returns topics in the order of names, with a partition limit and a cursor
(KIP-966).
"""

from collections.abc import Collection, Generator, Iterable
from heapq import merge
from itertools import islice

from kafkalite.cluster.metadata.image import ClusterImage, TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kafkalite.server.requests.authorized_operations import topic_operations
from kafkalite.server.requests.call import ClusterCall
from kafkalite.server.requests.partition_description import PartitionDescriber
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.topic_names import complaint, is_internal

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = Topic.DescribeTopicPartitionsResponsePartition
SORTED_AT_ONCE = 1000

Cursor = DescribeTopicPartitionsResponse.Cursor


def describe_topic_partitions(call: ClusterCall, request: DescribeTopicPartitionsRequest) -> None:
    """Describe the requested topics (no names = all topics) from the cursor on, up to the partition limit."""
    image = call.context.image
    limit = max(1, min(request.response_partition_limit, call.context.config.max_request_partition_size_limit))
    call.answer_from(steps_of(call, image, request, limit), limit + len(request.topics or image.topics))


def steps_of(
    call: ClusterCall, image: ClusterImage, request: DescribeTopicPartitionsRequest, limit: int
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    cursor = request.cursor
    start_topic, start_partition = (cursor.topic_name, cursor.partition_index) if cursor else ("", 0)
    answered, next_cursor = call.elements(), None
    for name in (yield from sorted_names(call, request, image, start_topic)):
        yield
        first = max(0, start_partition) if name == start_topic else 0
        if limit == 0:
            next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        topic = image.topics.get(name)
        if topic is None:
            answered.add(unknown(call, name))
            continue
        described = yield from describe(call, image, topic, first, limit)
        answered.add(described, 1 + len(described.partitions))
        limit -= len(described.partitions)
        reached = 1 + described.partitions[-1].partition_index if described.partitions else len(topic.partitions)
        if reached < len(topic.partitions):
            next_cursor = Cursor(topic_name=name, partition_index=reached)
            break
    return DescribeTopicPartitionsResponse(topics=answered.finish(), next_cursor=next_cursor)


def sorted_names(
    call: ClusterCall, request: DescribeTopicPartitionsRequest, image: ClusterImage, start: str
) -> Generator[None, None, Iterable[str]]:
    """Return the requested names from `start` on, sorted. They are sorted in parts: 100,000 at once take 50 ms."""
    asked: dict[str, None] = {}
    for topic in request.topics:
        asked[topic.name] = None
        yield
    names: Collection[str] = asked or image.topics
    if not asked and call.authorization is not None:
        names = call.authorization.allowed_names(AclOperation.DESCRIBE, AclResourceType.TOPIC, names, log_denied=False)
    left, parts = iter(names), []
    while part := list(islice(left, SORTED_AT_ONCE)):
        parts.append(sorted(name for name in part if name >= start))
        yield
    return merge(*parts)


def unknown(call: ClusterCall, name: str) -> Topic:
    error = KafkaErrorCode.INVALID_TOPIC_EXCEPTION if complaint(name) else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Topic(
        error_code=error,
        name=name,
        topic_id=bytes(16),
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=topic_operations(call, name),
    )


def describe(
    call: ClusterCall, image: ClusterImage, topic: TopicImage, first: int, limit: int
) -> Generator[None, None, Topic]:
    """Describe the partitions of one topic, one partition per step.

    Arguments:
        call: of the request.
        image: the cluster.
        topic: of the image.
        first: index of the first partition.
        limit: number of partitions at most.
    """
    reachable, offline = (
        image.brokers.reachable(call.connection.listener),
        call.context.offline_partitions(topic.topic_id),
    )
    describer = PartitionDescriber(Partition, call.version, image.brokers, reachable, offline)
    partitions = []
    for partition in islice(describer.describe(topic, range(first, len(topic.partitions))), limit):
        # null is valid, but Java's admin client fails on it
        partition.eligible_leader_replicas = list(topic.partitions[partition.partition_index].eligible)
        partition.last_known_elr = []  # of partitions with an empty ISR: there are none here
        partitions.append(partition)
        yield
    return Topic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=topic_operations(call, topic.name),
    )
