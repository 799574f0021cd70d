"""ListGroups+, key 10000, v0: returns groups of every type with their members and the partitions that these own.

The generation of a consumer group is its epoch. A group that does not exist has GROUP_ID_NOT_FOUND and the state Dead.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kafkalite.coordinators.group.service import Machines
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest, ListGroupsPlusResponse
from kafkalite.server.call import GroupCall
from kafkalite.server.group_responses import answer_each, encoded
from kafkalite.state.groups.group import NO_GENERATION
from kafkalite.state.groups.shard import SIMPLE_GROUP, GroupShard

NO_TIMEOUT = -1
DEAD = "Dead"

Group = ListGroupsPlusResponse.ListedGroup
Member = Group.Member
OwnedTopic = Member.OwnedTopic


def list_groups_plus(call: GroupCall, request: ListGroupsPlusRequest) -> None:
    """Return the named groups, or all groups."""
    node = call.own_node
    if request.groups:
        answer_each(
            call,
            list(dict.fromkeys(request.groups)),
            partial(listed, node),
            partial(bare, node, state=DEAD),
            ListGroupsPlusResponse,
        )
    else:
        groups = call.context.groups
        steps = encoded(call, partial(all_listed, node))
        call.in_slices(steps, groups.group_count(), partial(answer_all, call, node))


def answer_all(call: GroupCall, node: Node, walked: tuple[list[Any], Machines]) -> None:
    """Send the response when everything that it shows is committed."""
    groups, machines = walked

    def committed(error: int) -> None:
        # there is no other field for the error
        shown = [bare(node, "", state=DEAD, error=error)] if error else groups
        call.answer(ListGroupsPlusResponse(groups=shown))

    call.context.groups.when_committed(machines, call.guarded(committed))


def all_listed(node: Node, shard: GroupShard) -> Iterator[Group]:
    """Yield every group of a shard."""
    for name in shard.names():
        yield listed(node, name, shard)


def listed(node: Node, name: str, shard: GroupShard) -> Group:
    """Describe a group from its shard."""
    group = shard.registry.get(name)
    if group is None:
        known = name in shard.offsets
        error = KafkaErrorCode.NONE if known else KafkaErrorCode.GROUP_ID_NOT_FOUND
        return bare(node, name, error, state=SIMPLE_GROUP.state if known else DEAD)
    shown, overview = bare(node, name, state=group.state.value), group.overview()
    shown.generation_id = group.generation_id
    shown.topics = list(overview.topics)
    shown.session_timeout_ms = overview.session_timeout_ms
    for member in overview.members:
        owned = [OwnedTopic(name=topic, partitions=list(partitions)) for topic, partitions in member.owned.items()]
        shown.members.append(Member(consumer_id=member.member_id, owned_partitions=owned))
    return shown


def bare(node: Node, name: str, error: int = 0, *, state: str) -> Group:
    """Return a group without members, coordinated by this broker."""
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
