"""ListGroups+, key 10000, v0. Groups of every kind, with their members and what these own.

The generation of a consumer group is its epoch. A group that is not there is GROUP_ID_NOT_FOUND, with state Dead.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kafkalite.cluster.image import ClusterImage
from kafkalite.coordinators.group.service import Machines
from kafkalite.coordinators.group.settings import partitions_of
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest, ListGroupsPlusResponse
from kafkalite.server.call import GroupCall
from kafkalite.server.group_responses import answer_each, encoded
from kafkalite.state.groups.classic.group import ClassicGroup as ClassicGroup
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.registered.requests import RegisteredGroupDescription
from kafkalite.state.groups.shard import GroupShard

NO_GENERATION, NO_TIMEOUT = -1, -1
DEAD, EMPTY = "Dead", "Empty"

Group = ListGroupsPlusResponse.ListedGroup
Member = Group.Member
OwnedTopic = Member.OwnedTopic


def list_groups_plus(call: GroupCall, request: ListGroupsPlusRequest) -> None:
    """Those that are named, or all."""
    node = call.own_node
    image = call.context.image
    if request.groups:
        answer_each(
            call,
            list(dict.fromkeys(request.groups)),
            partial(listed, node, image),
            partial(bare, node, state=DEAD),
            ListGroupsPlusResponse,
        )
    else:
        groups = call.context.groups
        steps = encoded(call, partial(all_listed, node, image))
        call.in_slices(steps, groups.group_count(), partial(answer_all, call, node))


def answer_all(call: GroupCall, node: Node, walked: tuple[list[Any], Machines]) -> None:
    """Send what was found, once it is committed."""
    groups, machines = walked

    def committed(error: int) -> None:
        # there is no other field for the error
        shown = [bare(node, "", state=DEAD, error=error)] if error else groups
        call.answer(ListGroupsPlusResponse(groups=shown))

    call.context.groups.when_committed(machines, call.guarded(committed))


def all_listed(node: Node, image: ClusterImage, shard: GroupShard) -> Iterator[Group]:
    """Every group of a shard."""
    for name in shard.names():
        yield listed(node, image, name, shard)


def listed(node: Node, image: ClusterImage, name: str, shard: GroupShard) -> Group:
    """One group as its shard knows it."""
    consumers = shard.consumers.groups.get(name)
    if consumers is not None:
        return of_consumers(bare(node, name, state=consumers.state.value), image, consumers, shard)
    registered = shard.registered.describe(name)
    if registered is not None:
        return of_registered(bare(node, name, state=registered.state), registered)
    classic = shard.classic.get(name)
    if classic is not None:
        return of_classic(bare(node, name, state=classic.state.value), classic)
    if name in shard.offsets:
        return bare(node, name, state=EMPTY)
    return bare(node, name, KafkaErrorCode.GROUP_ID_NOT_FOUND, state=DEAD)


def of_consumers(shown: Group, image: ClusterImage, group: ConsumerGroup, shard: GroupShard) -> Group:
    """A consumer group."""
    shown.generation_id = group.epoch
    shown.topics = sorted(group.subscribed_topics())
    shown.session_timeout_ms = shard.consumers.settings_of(group.group_id).session_timeout_ms
    for member_id in sorted(group.members):
        owned = []
        for topic_id, epochs in group.current(member_id).assigned.items():
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                owned.append(OwnedTopic(name=topic.name, partitions=sorted(epochs)))
        shown.members.append(Member(consumer_id=member_id, owned_partitions=owned))
    return shown


def of_registered(shown: Group, group: RegisteredGroupDescription) -> Group:
    """A group whose members have registered, or that is only defined yet."""
    shown.generation_id = group.generation
    shown.topics = list(group.topics)
    shown.session_timeout_ms = group.session_timeout_ms
    for member in group.members:
        owned = [OwnedTopic(name=name, partitions=list(partitions)) for name, partitions in member.owned.items()]
        shown.members.append(Member(consumer_id=member.consumer_id, owned_partitions=owned))
    return shown


def of_classic(shown: Group, group: ClassicGroup) -> Group:
    """A classic group. What a member owns is what the leader gave it, where that can be read."""
    members = list(group.members.all.values())
    shown.generation_id = group.generation
    shown.topics = sorted(group.topics or ())
    shown.session_timeout_ms = max((member.session_timeout_ms for member in members), default=NO_TIMEOUT)
    for member in members:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions_of(member.assignment) or ()):
            owned.setdefault(topic, []).append(partition)
        topics = [OwnedTopic(name=name, partitions=partitions) for name, partitions in owned.items()]
        shown.members.append(Member(consumer_id=member.member_id, owned_partitions=topics))
    return shown


def bare(node: Node, name: str, error: int = 0, *, state: str) -> Group:
    """A group without members, coordinated here."""
    return Group(
        error_code=error,
        group_id=name,
        group_state=state,
        generation_id=NO_GENERATION,
        members=[],
        topics=[],
        session_timeout_ms=NO_TIMEOUT,
        controller_id=node.broker_id,
        controller_host=node.host,
        controller_port=node.port,
    )
