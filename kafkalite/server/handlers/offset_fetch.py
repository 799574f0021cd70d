"""OffsetFetch, key 9, v1-10: returns committed offsets of groups; -1 without a commit, also for unknown groups.

Version notes: v1 errors per partition only; v2 an error of the response, and null for all topics; v7 `require_stable`:
UNSTABLE_OFFSET_COMMIT where a transaction may still change the offset (KIP-447); v8 several groups (KIP-709); v9 member
epochs, with STALE_MEMBER_EPOCH (KIP-848); v10 topics by id. COORDINATOR_NOT_AVAILABLE is returned as NOT_COORDINATOR,
as by Kafka: older consumers do not know the former here.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkalite.protocol.schema import ZERO_UUID
from kafkalite.server.requests.call import OBJECTS_MAX, GroupCall
from kafkalite.server.requests.group_responses import ended
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import FetchedOffset, TopicFetch

TOP_ERROR_SINCE = 2
GROUPS_SINCE = 8
TOPIC_ID_SINCE = 10
PARTITIONS_AT_ONCE = 500

Topic = OffsetFetchResponse.OffsetFetchResponseTopic
Partition = Topic.OffsetFetchResponsePartition
Group = OffsetFetchResponse.OffsetFetchResponseGroup
GroupTopic = Group.OffsetFetchResponseTopics
GroupPartition = GroupTopic.OffsetFetchResponsePartitions
GroupAsked = OffsetFetchRequest.OffsetFetchRequestGroup
Response = Generator[None, None, OffsetFetchResponse]


class RequestedGroup(NamedTuple):
    """The request for one group; `wanted` None = all offsets. `unknown`: partitions of topic ids that do not exist.
    `named`: whether the request names the topics.
    """

    group: str
    wanted: list[TopicFetch] | None
    member_id: str | None = None
    member_epoch: int = -1
    unknown: Sequence[TopicFetch] = ()
    named: bool = True


class FetchedGroup(NamedTuple):
    """The offsets of one group, or its error. `many`: the offsets are still to be read, in parts."""

    asked: RequestedGroup
    error: int
    found: Sequence[FetchedOffset] = ()
    many: bool = False


Query = Callable[[RequestedGroup, GroupMachine], FetchedGroup]
Fetched = list[FetchedGroup]


def offset_fetch(call: GroupCall, request: OffsetFetchRequest) -> None:
    """Query each group in its shard."""
    steps = asked_of_one(call, request) if call.version < GROUPS_SINCE else asked_of_many(call, request)
    objects = len(request.topics or ()) + sum(1 + len(group.topics or ()) for group in request.groups)
    call.in_slices(steps, objects, partial(look_up, call, request.require_stable))


def look_up(call: GroupCall, require_stable: bool, asked: list[RequestedGroup]) -> None:
    """Query the groups of the request."""
    query = partial(look, require_stable)
    then = call.guard(partial(found_few, call, query))
    steps = call.context.groups.query_each(asked, group_of, query, FetchedGroup, then)
    call.in_slices(steps, len(asked), ended)


def found_few(call: GroupCall, query: Query, fetched: Fetched) -> None:
    """Query the groups of which many offsets are requested."""
    if not any(group.many for group in fetched):
        answer(call, fetched)
        return
    parts = [(at, part) for at, group in enumerate(fetched) if group.many for part in parts_of(group.asked)]
    then = call.guard(partial(found_parts, call, fetched, [at for at, _ in parts]))
    steps = call.context.groups.query_each([part for _, part in parts], group_of, query, FetchedGroup, then)
    call.in_slices(steps, OBJECTS_MAX + 1, ended)


def found_parts(call: GroupCall, fetched: Fetched, indexes: list[int], parts: Fetched) -> None:
    """Join the parts of groups. An error of one part is the error of its group."""
    found: dict[int, list[FetchedOffset]] = {at: [] for at in indexes}
    for at, part in zip(indexes, parts, strict=True):
        found[at] += part.found
        fetched[at] = fetched[at]._replace(error=fetched[at].error or part.error)
    for at, of_group in found.items():
        fetched[at] = fetched[at]._replace(found=() if fetched[at].error else of_group)
    answer(call, fetched)


def group_of(asked: RequestedGroup) -> str:
    return asked.group


def asked_of_one(call: GroupCall, request: OffsetFetchRequest) -> Generator[None, None, list[RequestedGroup]]:
    """Return the group of a request up to v7."""
    if request.topics is None:
        return [RequestedGroup(request.group_id, None, named=False)]
    wanted = []
    for each in request.topics:
        wanted.append(by_name(call, each.name, each.partition_indexes))
        yield
    return [RequestedGroup(request.group_id, wanted)]


def asked_of_many(call: GroupCall, request: OffsetFetchRequest) -> Generator[None, None, list[RequestedGroup]]:
    """Return the groups of a request from v8 on, each once: a response may be thousands of times as long as a name."""
    asked = []
    for group in {each.group_id: each for each in request.groups}.values():
        asked.append((yield from asked_of(call, group)))
        yield
    return asked


def asked_of(call: GroupCall, group: GroupAsked) -> Generator[None, None, RequestedGroup]:
    """Return one group of a request from v8 on."""
    if group.topics is None:
        return RequestedGroup(group.group_id, None, group.member_id, group.member_epoch, named=False)
    wanted, unknown = [], []
    for each in group.topics:
        if call.version < TOPIC_ID_SINCE:
            wanted.append(by_name(call, each.name, each.partition_indexes))
        elif (topic := call.context.image.topics_by_id.get(each.topic_id)) is not None:
            wanted.append(TopicFetch(topic.name, each.partition_indexes, topic.topic_id))
        else:
            unknown.append(TopicFetch("", each.partition_indexes, each.topic_id))
        yield
    return RequestedGroup(group.group_id, wanted, group.member_id, group.member_epoch, unknown)


def by_name(call: GroupCall, name: str, partitions: Sequence[int]) -> TopicFetch:
    """Return the request for a topic: the current topic of the name, not a deleted one."""
    topic = call.context.tables.topics.get(name)
    return TopicFetch(name, partitions, ZERO_UUID if topic is None else topic.topic_id)


def look(require_stable: bool, asked: RequestedGroup, machine: GroupMachine) -> FetchedGroup:
    """Return the committed offsets of a group, if the sender may read them."""
    error = machine.offsets.validate_fetch(asked.group, asked.member_id, asked.member_epoch)
    if error:
        return FetchedGroup(asked, error)
    wanted = machine.offsets.committed_partitions(asked.group) if asked.wanted is None else asked.wanted
    if sum(1 + len(each.partitions) for each in islice(wanted, PARTITIONS_AT_ONCE + 1)) > PARTITIONS_AT_ONCE:
        return FetchedGroup(asked._replace(wanted=wanted), 0, many=True)
    return FetchedGroup(asked, 0, machine.offsets.fetch(asked.group, wanted, require_stable=require_stable))


def parts_of(asked: RequestedGroup) -> Iterator[RequestedGroup]:
    """Split the requested offsets of one group into parts of at most PARTITIONS_AT_ONCE topics and partitions."""
    part: list[TopicFetch] = []
    left = PARTITIONS_AT_ONCE  # in this part; a topic counts, too
    for topic, partitions, topic_id in asked.wanted or ():
        begin = 0
        while begin < len(partitions):
            if left < 2:
                yield asked._replace(wanted=part)
                part, left = [], PARTITIONS_AT_ONCE
            some = partitions[begin : begin + left - 1]
            part.append(TopicFetch(topic, some, topic_id))
            left -= 1 + len(some)
            begin += len(some)
    yield asked._replace(wanted=part)


def answer(call: GroupCall, fetched: Fetched) -> None:
    """Build and send the response, in slices if it is large."""
    objects = sum(1 + len(group.found) + len(group.asked.unknown) for group in fetched)
    call.answer_from(one(call, fetched[0]) if call.version < GROUPS_SINCE else many(call, fetched), objects)


def one(call: GroupCall, group: FetchedGroup) -> Response:
    """Build the response up to v7."""
    error = error_on_wire(group.error)
    found: Iterable[FetchedOffset] = shown_offsets(call, group)
    if error and call.version < TOP_ERROR_SINCE:
        found = failed_each(group.asked.wanted or (), error)
    topics = yield from convert_offsets(call, found, Topic, Partition)
    return OffsetFetchResponse(topics=topics, error_code=error)


def shown_offsets(call: GroupCall, group: FetchedGroup) -> Iterable[FetchedOffset]:
    """Return the offsets of the topics that the client may describe. Named topics were checked before."""
    authorization = call.authorization
    if authorization is None or group.asked.named:
        return group.found
    topics = {each.topic for each in group.found}
    names = authorization.allowed_names(AclOperation.DESCRIBE, AclResourceType.TOPIC, topics, log_denied=False)
    return [each for each in group.found if each.topic in names]


def many(call: GroupCall, fetched: Fetched) -> Response:
    """Build the response from v8 on."""
    groups = []
    for group in fetched:
        found: Iterable[FetchedOffset] = shown_offsets(call, group)
        if group.asked.unknown and not group.error:
            found = chain(found, failed_each(group.asked.unknown, KafkaErrorCode.UNKNOWN_TOPIC_ID))
        topics = yield from convert_offsets(call, found, GroupTopic, GroupPartition)
        if call.authorization is not None and not group.error:
            topics = call.add_refused_topics(group.asked.group, topics)
        groups.append(Group(group_id=group.asked.group, topics=topics, error_code=error_on_wire(group.error)))
        yield
    return OffsetFetchResponse(groups=groups)


def failed_each(asked: Iterable[TopicFetch], error: int) -> Iterator[FetchedOffset]:
    """Yield each partition with this error."""
    return (
        FetchedOffset(each.topic, index, error=error, topic_id=each.topic_id)
        for each in asked
        for index in each.partitions
    )


def convert_offsets(
    call: GroupCall, found: Iterable[FetchedOffset], topic: type[Any], partition: type[Any]
) -> Generator[None, None, list[Any]]:
    """Convert offsets to an array of the response. Offsets of a deleted topic cannot be returned by id."""
    topics = call.elements()
    by_id = call.version >= TOPIC_ID_SINCE
    for (name, topic_id), of_topic in groupby(found, partial(name_and_id, call) if by_id else name_only):
        if by_id and topic_id == ZERO_UUID:
            continue
        partitions = call.elements()
        for each in of_topic:
            partitions.add(
                partition(
                    partition_index=each.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error,
                )
            )
            yield
        array = partitions.finish()
        topics.add(
            topic(name=name, topic_id=topic_id, partitions=array) if by_id else topic(name=name, partitions=array),
            1 + len(array),
        )
    return topics.finish()


def name_and_id(call: GroupCall, found: FetchedOffset) -> tuple[str, bytes]:
    """Return the topic by name and id; an offset without an id gets the id of its topic."""
    if found.topic_id != ZERO_UUID:
        return found.topic, found.topic_id
    topic = call.context.image.topics.get(found.topic)
    return found.topic, ZERO_UUID if topic is None else topic.topic_id


def name_only(found: FetchedOffset) -> tuple[str, bytes]:
    """Return the topic by name alone, so that a topic is one element, whether its id is known or not."""
    return found.topic, ZERO_UUID


def error_on_wire(error: int) -> int:
    """Return the error as consumers of all versions know it."""
    return KafkaErrorCode.NOT_COORDINATOR if error == KafkaErrorCode.COORDINATOR_NOT_AVAILABLE else error
