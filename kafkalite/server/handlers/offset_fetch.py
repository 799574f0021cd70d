"""OffsetFetch, key 9, v1-10. How far groups have read; -1 where nothing is committed, and for groups that nobody knows.

Version notes: v1 errors per partition only; v2 an error for the whole, and null for all topics; v7 `require_stable`:
UNSTABLE_OFFSET_COMMIT where a transaction may still change the offset (KIP-447); v8 several groups (KIP-709); v9 member
epochs, STALE_MEMBER_EPOCH where they are not the member's (KIP-848); v10 topics by id. COORDINATOR_NOT_AVAILABLE is
told as NOT_COORDINATOR, as by Kafka: older consumers do not know it here.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkalite.protocol.schema import ZERO_UUID
from kafkalite.server.call import Call
from kafkalite.server.group_answers import ended
from kafkalite.state.group_shard import GroupShard
from kafkalite.state.offsets import FetchOf, Found

TOP_ERROR_SINCE = 2
GROUPS_SINCE = 8
TOPIC_ID_SINCE = 10

Topic = OffsetFetchResponse.OffsetFetchResponseTopic
Partition = Topic.OffsetFetchResponsePartition
Group = OffsetFetchResponse.OffsetFetchResponseGroup
GroupTopic = Group.OffsetFetchResponseTopics
GroupPartition = GroupTopic.OffsetFetchResponsePartitions
GroupAsked = OffsetFetchRequest.OffsetFetchRequestGroup


class Asked(NamedTuple):
    """What is wanted of one group; `wanted` None = everything. `unknown`: topics of ids that do not exist."""

    group: str
    wanted: list[FetchOf] | None
    member_id: str | None = None
    member_epoch: int = -1
    unknown: Sequence[Found] = ()


class FetchedGroup(NamedTuple):
    """What was found of one group, or an error for all of it."""

    asked: Asked
    error: int
    found: Sequence[Found] = ()


def offset_fetch(call: Call, request: OffsetFetchRequest) -> None:
    """Look every group up in its shard."""
    if call.version < GROUPS_SINCE:
        topics = request.topics
        wanted = None if topics is None else [by_name(call, each.name, each.partition_indexes) for each in topics]
        asked, reply = [Asked(request.group_id, wanted)], one
    else:
        # Each group once: an answer may be thousands of times as long as the name that asks for it.
        once = {each.group_id: each for each in request.groups}
        asked, reply = [asked_of(call, group) for group in once.values()], many
    steps = call.broker.groups.look_each(
        asked,
        group_of,
        partial(look, request.require_stable),
        FetchedGroup,
        call.answering(lambda fetched: reply(call, fetched)),
    )
    call.in_slices(steps, len(asked), ended)


def group_of(asked: Asked) -> str:
    return asked.group


def asked_of(call: Call, group: GroupAsked) -> Asked:
    """One group of a request of v8 or later."""
    if group.topics is None:
        return Asked(group.group_id, None, group.member_id, group.member_epoch)
    wanted, unknown = [], []
    for each in group.topics:
        if call.version < TOPIC_ID_SINCE:
            wanted.append(by_name(call, each.name, each.partition_indexes))
        elif (topic := call.broker.image.topics_by_id.get(each.topic_id)) is not None:
            wanted.append(FetchOf(topic.name, each.partition_indexes, topic.topic_id))
        else:
            error = KafkaErrorCode.UNKNOWN_TOPIC_ID
            unknown += [Found("", index, error=error, topic_id=each.topic_id) for index in each.partition_indexes]
    return Asked(group.group_id, wanted, group.member_id, group.member_epoch, unknown)


def by_name(call: Call, name: str, partitions: Sequence[int]) -> FetchOf:
    """What is wanted of a topic: of the one that has the name now, not of one that was deleted and made anew."""
    topic = call.broker.tables.topics.get(name)
    return FetchOf(name, partitions, ZERO_UUID if topic is None else topic.topic_id)


def look(require_stable: bool, asked: Asked, shard: GroupShard) -> FetchedGroup:
    """What the group has committed, if the sender may know."""
    error = shard.kinds.check_fetch(asked.group, asked.member_id, asked.member_epoch)
    if error:
        return FetchedGroup(asked, error)
    found = shard.offsets.fetch(asked.group, asked.wanted, require_stable=require_stable)
    return FetchedGroup(asked, 0, [*found, *asked.unknown])


def one(call: Call, fetched: list[FetchedGroup]) -> OffsetFetchResponse:
    """The answer up to v7."""
    group = fetched[0]
    found, error = group.found, told(group.error)
    if error and call.version < TOP_ERROR_SINCE:
        found = [
            Found(each.topic, index, error=error) for each in group.asked.wanted or () for index in each.partitions
        ]
    topics = [
        Topic(name=name, partitions=[Partition(**fields(each)) for each in of_topic])
        for name, of_topic in groupby(found, key=topic_of)
    ]
    return OffsetFetchResponse(topics=topics, error_code=error)


def many(call: Call, fetched: list[FetchedGroup]) -> OffsetFetchResponse:
    """The answer from v8 on."""
    groups = []
    for group in fetched:
        found = with_ids(call, group.found) if call.version >= TOPIC_ID_SINCE else without_ids(group.found)
        topics = [
            GroupTopic(name=name, topic_id=topic_id, partitions=[GroupPartition(**fields(each)) for each in of_topic])
            for (name, topic_id), of_topic in groupby(found, key=place)
        ]
        groups.append(Group(group_id=group.asked.group, topics=topics, error_code=told(group.error)))
    return OffsetFetchResponse(groups=groups)


def with_ids(call: Call, found: Sequence[Found]) -> list[Found]:
    """What has an id, or gets that of its topic. Offsets of a topic that is gone cannot be told by id."""
    named = []
    for each in found:
        topic = call.broker.image.topics.get(each.topic) if each.topic_id == ZERO_UUID else None
        topic_id = each.topic_id if topic is None else topic.topic_id
        if topic_id != ZERO_UUID:
            named.append(each._replace(topic_id=topic_id))
    return named


def without_ids(found: Sequence[Found]) -> list[Found]:
    """What is told by name: all of a topic in one piece, whether its id is known or not."""
    return [each._replace(topic_id=ZERO_UUID) for each in found]


def place(found: Found) -> tuple[str, bytes]:
    return found.topic, found.topic_id


def topic_of(found: Found) -> str:
    return found.topic


def told(error: int) -> int:
    """The error as it is told to consumers of all ages."""
    return KafkaErrorCode.NOT_COORDINATOR if error == KafkaErrorCode.COORDINATOR_NOT_AVAILABLE else error


def fields(found: Found) -> dict[str, Any]:
    """One partition of the answer."""
    return {
        "partition_index": found.partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": found.error,
    }
