"""LeaveGroup, key 13, v0-5: removes members of a classic group; administrators remove static members by instance id.

Version notes: up to v2 one member, whose error is that of the response; from v3 on several, each with an error
(KIP-345).
"""

from kafkalite.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.state.groups.classic.requests import Leave, LeaveOf, Left

SEVERAL_SINCE = 3

Member = LeaveGroupResponse.MemberResponse


def leave_group(call: GroupCall, request: LeaveGroupRequest) -> None:
    """Submit the removal to the group's shard."""
    if call.version >= SEVERAL_SINCE:
        members = tuple(LeaveOf(member.member_id, member.group_instance_id) for member in request.members)
    else:
        members = (LeaveOf(request.member_id),)
    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.registry.leave(Leave(request.group_id, members), token, now),
        call.completion(lambda left: answer(call, left), lambda error: answer(call, Left(error))),
    )


def answer(call: GroupCall, left: Left) -> LeaveGroupResponse:
    """Return the response with the error of each member."""
    if call.version < SEVERAL_SINCE:
        return LeaveGroupResponse(error_code=left.error or left.members[0].error)
    members = [
        Member(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=each.error)
        for each in left.members
    ]
    return LeaveGroupResponse(error_code=left.error, members=members)
