"""OffsetDelete, key 47, v0. Removes single offsets of a group whose members do not read the topic (KIP-496).

An error of the group stands for the whole. Partitions that do not exist: UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.
"""

from collections.abc import Mapping

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafkalite.server.call import Call
from kafkalite.state.offsets import OffsetsDeleted

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
Partition = Topic.OffsetDeleteResponsePartition


def offset_delete(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
    """Delete the offsets of partitions that exist; the answer has every partition of the request, in its order."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=KafkaErrorCode.INVALID_GROUP_ID, topics=[])
    asked = [(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
    wanted = [place for place in dict.fromkeys(asked) if exists(call, *place)]

    def deleted(done: OffsetsDeleted) -> OffsetDeleteResponse:
        if done.error:
            return OffsetDeleteResponse(error_code=done.error, topics=[])
        return answer(request, dict(zip(wanted, done.errors, strict=True)))

    call.broker.groups.ask(
        request.group_id,
        lambda shard, token, _now: shard.offsets.delete(request.group_id, wanted, token),
        call.answering(deleted),
        call.answering(lambda error: OffsetDeleteResponse(error_code=error, topics=[])),
    )
    return None


def exists(call: Call, name: str, index: int) -> bool:
    """Whether there is such a partition now."""
    topic = call.broker.tables.topics.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def answer(request: OffsetDeleteRequest, errors: Mapping[tuple[str, int], int]) -> OffsetDeleteResponse:
    """Every partition of the request, with `errors` for those that existed when it came."""
    topics = []
    for topic in request.topics:
        partitions = [
            Partition(
                partition_index=part.partition_index,
                error_code=errors.get((topic.name, part.partition_index), KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
            for part in topic.partitions
        ]
        topics.append(Topic(name=topic.name, partitions=partitions))
    return OffsetDeleteResponse(topics=topics)
