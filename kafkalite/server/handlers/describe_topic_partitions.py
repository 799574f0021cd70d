"""DescribeTopicPartitions, key 75, v0. Topics in name order, a bounded number of partitions per answer, with a cursor
(KIP-966).
"""

from kafkalite.cluster.image import TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kafkalite.server.call import Call
from kafkalite.server.handlers.described import describe_partitions
from kafkalite.state.topic_names import complaint, is_internal

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = Topic.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


def describe_topic_partitions(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Describe what is asked (no names = all topics) from the cursor on, up to the partition limit."""
    limit = max(1, min(request.response_partition_limit, call.broker.config.max_request_partition_size_limit))
    start_topic, start_partition = (
        (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
    )
    names = sorted({topic.name for topic in request.topics} or call.broker.image.topics)
    answered: list[Topic] = []
    for name in names:
        if name < start_topic:
            continue
        first = max(0, start_partition) if name == start_topic else 0
        if limit == 0:
            return DescribeTopicPartitionsResponse(
                topics=answered, next_cursor=Cursor(topic_name=name, partition_index=first)
            )
        topic = call.broker.image.topics.get(name)
        if topic is None:
            answered.append(unknown(name))
            continue
        described = describe(call, topic, first, limit)
        answered.append(described)
        limit -= len(described.partitions)
        reached = first + len(described.partitions)
        if reached < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=answered, next_cursor=Cursor(topic_name=name, partition_index=reached)
            )
    return DescribeTopicPartitionsResponse(topics=answered, next_cursor=None)


def unknown(name: str) -> Topic:
    error = KafkaErrorCode.INVALID_TOPIC_EXCEPTION if complaint(name) else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Topic(error_code=error, name=name, topic_id=bytes(16), is_internal=is_internal(name), partitions=[])


def describe(call: Call, topic: TopicImage, first: int, limit: int) -> Topic:
    indexes = range(len(topic.partitions))[first : first + limit]
    partitions = describe_partitions(call, topic, Partition, indexes)
    for partition in partitions:  # null would be legal, but Java's admin client fails on it
        partition.eligible_leader_replicas = partition.last_known_elr = []
    return Topic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
    )
