"""ListGroups, key 16, v0-5. The groups that this broker coordinates.

Version notes: v4 states, and a filter on them (KIP-518); v5 types, and a filter on them (KIP-848). Filters take any
case; what they do not know matches nothing.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kafkalite.coordinators.group.service import Machines
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite.server.call import GroupCall
from kafkalite.server.group_responses import encoded
from kafkalite.state.groups.group import ListedGroup
from kafkalite.state.groups.shard import GroupShard

Group = ListGroupsResponse.ListedGroup


def list_groups(call: GroupCall, request: ListGroupsRequest) -> None:
    """Ask every shard; where one is still being loaded the list would not be whole, and is refused."""
    groups = call.context.groups
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    call.in_slices(encoded(call, partial(wanted, states, types)), groups.group_count(), partial(answer, call))


def wanted(states: set[str], types: set[str], shard: GroupShard) -> Iterator[Group | None]:
    """The groups of a shard; None for each that the filters leave out."""
    for each in shard.listed():
        matches = (not states or each.state.lower() in states) and (not types or each.group_type in types)
        yield shown(each) if matches else None


def answer(call: GroupCall, walked: tuple[list[Any], Machines]) -> None:
    """Send what was found, once it is committed."""
    groups, machines = walked

    def committed(error: int) -> None:
        call.answer(ListGroupsResponse(error_code=error, groups=[] if error else groups))

    call.context.groups.when_committed(machines, call.guarded(committed))


def shown(listed: ListedGroup) -> Group:
    """A group in the words of the answer."""
    return Group(
        group_id=listed.group,
        protocol_type=listed.protocol_type,
        group_state=listed.state,
        group_type=listed.group_type,
    )
