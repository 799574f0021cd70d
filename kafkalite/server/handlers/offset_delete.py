"""OffsetDelete, key 47, v0. Removes single offsets of a group whose members do not read the topic (KIP-496).

An error of the group stands for the whole. Partitions that do not exist: UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.
"""

from collections.abc import Iterator

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafkalite.server.call import Call
from kafkalite.state.offsets import OffsetsDeleted

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
Partition = Topic.OffsetDeleteResponsePartition


def offset_delete(call: Call, request: OffsetDeleteRequest) -> None:
    """Delete the offsets of partitions that exist; the answer has every partition of the request, in its order."""
    wanted = [
        (topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
        if exists(call, topic.name, part.partition_index)
    ]

    def deleted(done: OffsetsDeleted) -> None:
        if done.error:
            call.answer(OffsetDeleteResponse(error_code=done.error, topics=[]))
        else:
            call.answer(answer(call, request, iter(done.errors)))

    call.broker.groups.ask(
        request.group_id,
        lambda shard, token, _now: shard.offsets.delete(request.group_id, wanted, token),
        call.later(deleted),
        call.answering(lambda error: OffsetDeleteResponse(error_code=error, topics=[])),
    )


def exists(call: Call, name: str, index: int) -> bool:
    """Whether there is such a partition now."""
    topic = call.broker.tables.topics.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def answer(call: Call, request: OffsetDeleteRequest, errors: Iterator[int]) -> OffsetDeleteResponse:
    """Every partition of the request, with `errors` for those that exist."""
    topics = []
    for topic in request.topics:
        partitions = [
            Partition(
                partition_index=part.partition_index,
                error_code=next(errors)
                if exists(call, topic.name, part.partition_index)
                else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for part in topic.partitions
        ]
        topics.append(Topic(name=topic.name, partitions=partitions))
    return OffsetDeleteResponse(topics=topics)
