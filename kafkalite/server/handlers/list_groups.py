"""ListGroups, key 16, v0-5: returns the groups that this broker coordinates.

Version notes: v4 states, and a filter by state (KIP-518); v5 types, and a filter by type (KIP-848). Filters ignore
case; an unknown state or type matches nothing.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kafkalite.coordinators.group.service import Machines
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.server.requests.group_responses import encode_groups, shown_groups
from kafkalite.state.groups.group import ListedGroup
from kafkalite.state.groups.machine import GroupMachine

Group = ListGroupsResponse.ListedGroup


def list_groups(call: GroupCall, request: ListGroupsRequest) -> None:
    """Query every shard; fails while a shard is loading, as the list would be incomplete."""
    groups = call.context.groups
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    call.in_slices(
        encode_groups(call, partial(wanted_groups, shown_groups(call), states, types)),
        groups.group_count(),
        partial(answer, call),
    )


def wanted_groups(
    shown: Callable[[str], bool], states: set[str], types: set[str], machine: GroupMachine
) -> Iterator[Group | None]:
    """Yield the groups of a shard, None for each that the filters exclude."""
    for each in machine.list_groups():
        matches = (not states or each.state.lower() in states) and (not types or each.group_type in types)
        yield convert_group(each) if matches and shown(each.group) else None


def answer(call: GroupCall, walked: tuple[list[Any], Machines]) -> None:
    """Send the response when everything that it shows is committed."""
    groups, machines = walked

    def committed(error: int) -> None:
        call.answer(ListGroupsResponse(error_code=error, groups=[] if error else groups))

    call.context.groups.when_committed(machines, call.guard(committed))


def convert_group(listed: ListedGroup) -> Group:
    """Convert a group to the response."""
    return Group(
        group_id=listed.group,
        protocol_type=listed.protocol_type,
        group_state=listed.state,
        group_type=listed.group_type,
    )
