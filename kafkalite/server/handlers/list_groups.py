"""ListGroups, key 16, v0-5. The groups that this broker coordinates.

Version notes: v4 states, and a filter on them (KIP-518); v5 types, and a filter on them (KIP-848). Filters take any
case; what they do not know matches nothing.
"""

from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite.server.call import Call
from kafkalite.state.classic_requests import Listed
from kafkalite.state.group_shard import GroupShard

Group = ListGroupsResponse.ListedGroup


def list_groups(call: Call, request: ListGroupsRequest) -> None:
    """Ask every shard; where one is still being loaded the list would not be whole, and is refused."""
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}

    def wanted(shard: GroupShard) -> list[Listed]:
        return [
            each
            for each in shard.listed()
            if (not states or each.state.lower() in states) and (not kinds or each.kind in kinds)
        ]

    def found(shards: list[list[Listed]], error: int) -> None:
        groups = [] if error else [shown(each) for listed in shards for each in listed]
        call.answer(ListGroupsResponse(error_code=error, groups=groups))

    call.broker.groups.look_everywhere(wanted, call.later(found))


def shown(listed: Listed) -> Group:
    """A group in the words of the answer."""
    return Group(
        group_id=listed.group, protocol_type=listed.protocol_type, group_state=listed.state, group_type=listed.kind
    )
