"""DescribeGroups, key 15, v0-6: describes classic and registered groups and their members; other groups are Dead.

Version notes: v4 instance ids; v6 GROUP_ID_NOT_FOUND with a message for a group that does not exist, before that no
error (KIP-1043). Consumer groups are described by ConsumerGroupDescribe. A registered group is described as if its
members used the consumer protocol, so that other tools can display subscriptions and assignments.
Source: ClassicGroup.asDescribedGroup.
"""

from functools import partial

from kafkalite.errors import KafkaErrorCode, shorten
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkalite.server.requests.authorized_operations import group_operations
from kafkalite.server.requests.call import GroupCall
from kafkalite.server.requests.group_responses import answer_each
from kafkalite.state.groups.group import DescribedGroup
from kafkalite.state.groups.machine import GroupMachine

NOT_FOUND_SINCE = 6
DEAD = "Dead"

Group = DescribeGroupsResponse.DescribedGroup
Member = Group.DescribedGroupMember


def describe_groups(call: GroupCall, request: DescribeGroupsRequest) -> None:
    """Describe each group independently."""
    names = list(dict.fromkeys(request.groups))  # each once: a response may be far longer than a name
    query = partial(describe, call, request.include_authorized_operations)
    answer_each(call, names, query, refuse, DescribeGroupsResponse)


def describe(call: GroupCall, asked: bool, name: str, machine: GroupMachine) -> Group:
    """Describe a group from its shard, with the operations that the client is authorized for, if it asks for them."""
    group = describe_group(call.version, name, machine)
    if asked and not group.error_code:
        group.authorized_operations = group_operations(call, name)
    return group


def describe_group(version: int, name: str, machine: GroupMachine) -> Group:
    """Describe a group from its shard."""
    described = machine.describe(name)
    if described is not None:
        return convert_group(name, described)
    group = refuse(name, 0)
    if version >= NOT_FOUND_SINCE:
        group.error_code = KafkaErrorCode.GROUP_ID_NOT_FOUND
        group.error_message = shorten(f"Group {name} not found.")
    return group


def convert_group(name: str, described: DescribedGroup) -> Group:
    """Convert a classic group to the response."""
    members = [
        Member(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.subscription,
            member_assignment=member.assignment,
        )
        for member in described.members
    ]
    return Group(
        group_id=name,
        group_state=described.state,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol,
        members=members,
    )


def refuse(name: str, error: int) -> Group:
    """Return the response of a group that this broker does not know."""
    return Group(
        error_code=error,
        group_id=name,
        group_state="" if error else DEAD,
        protocol_type="",
        protocol_data="",
        members=[],
    )
