"""OffsetDelete, key 47, v0: deletes single offsets of a group whose members do not read the topic (KIP-496).

An error of the group is the error of the response. Partitions that do not exist have UNKNOWN_TOPIC_OR_PARTITION, as in
Kafka. Many partitions are deleted in parts; other requests of the group may be served between them.
"""

from collections.abc import Generator, Mapping, Sequence
from functools import partial

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafkalite.server.requests.call import OBJECTS_MAX, GroupCall
from kafkalite.server.requests.group_responses import ended
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import OffsetDeleteResult

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
Partition = Topic.OffsetDeleteResponsePartition
DELETED_AT_ONCE = 50  # of a request with more than OBJECTS_MAX partitions


def offset_delete(call: GroupCall, request: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
    """Delete the offsets of existing partitions; the response has every partition of the request in its order."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=KafkaErrorCode.INVALID_GROUP_ID, topics=[])
    objects = sum(1 + len(topic.partitions) for topic in request.topics)
    call.append_in_slices(deletion(call, request, objects), objects, ended)
    return None


def deletion(call: GroupCall, request: OffsetDeleteRequest, objects: int) -> Generator[None, None, None]:
    """Delete the offsets, and answer when all deletions are committed."""
    wanted = yield from existing(call, request)
    size = OBJECTS_MAX if len(wanted) <= OBJECTS_MAX else DELETED_AT_ONCE
    commands = [partial(delete, request.group_id, wanted[at : at + size]) for at in range(0, len(wanted) or 1, size)]

    def deleted(parts: list[OffsetDeleteResult]) -> None:
        error = next((part.error for part in parts if part.error), 0)
        if error:
            call.answer(OffsetDeleteResponse(error_code=error, topics=[]))
        else:
            errors = [error for part in parts for error in part.errors]
            call.answer_from(answer(call, request, dict(zip(wanted, errors, strict=True))), objects)

    groups = call.context.groups
    yield from groups.submit_each(request.group_id, commands, OffsetDeleteResult, call.guard(deleted))


def delete(
    group: str, topic_partitions: Sequence[TopicPartition], machine: GroupMachine, token: Token, _now: Now
) -> Effects:
    """Delete committed offsets of a group; a command.

    Arguments:
        group: its id.
        topic_partitions: whose offsets are deleted.
        machine: has the group.
        token: of the answer.
        _now: has no use.
    """
    return machine.offsets.delete(group, topic_partitions, token)


def existing(call: GroupCall, request: OffsetDeleteRequest) -> Generator[None, None, list[TopicPartition]]:
    """Return the existing partitions of the request, each once."""
    found: dict[TopicPartition, None] = {}
    for topic in request.topics:
        for part in topic.partitions:
            if exists(call, topic.name, part.partition_index):
                found[TopicPartition(topic.name, part.partition_index)] = None
            yield
    return list(found)


def exists(call: GroupCall, name: str, index: int) -> bool:
    """Return whether the partition exists now."""
    topic = call.context.tables.topics.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def answer(
    call: GroupCall, request: OffsetDeleteRequest, errors: Mapping[TopicPartition, int]
) -> Generator[None, None, OffsetDeleteResponse]:
    """Build the response; `errors` has the partitions that existed when the request came."""
    topics = call.elements()
    for topic in request.topics:
        partitions = call.elements()
        for part in topic.partitions:
            error = errors.get(
                TopicPartition(topic.name, part.partition_index), KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            partitions.add(Partition(partition_index=part.partition_index, error_code=error))
            yield
        listed = partitions.finish()
        topics.add(Topic(name=topic.name, partitions=listed), 1 + len(listed))
        yield
    return OffsetDeleteResponse(topics=topics.finish())
