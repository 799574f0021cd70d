"""LeaveGroup, key 13, v0-5. Members leave a classic group.

Version notes: v1 throttle time; v2 throttling before answering; v3 several members and static ones (KIP-345); v5 reason
(KIP-800).
Source: LeaveGroupRequest.json, LeaveGroupResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int16, int32, string


class LeaveGroupRequest(Request, key=13, versions=(0, 5), flexible=4):
    """The leaving members: one up to v2, a list from v3 on."""

    class MemberIdentity(Struct):
        member_id: string
        group_instance_id: string | None = None
        reason: string | None = field(since=5, default=None)

    group_id: string
    member_id: string = field(until=2, default="")
    members: list[MemberIdentity] = field(since=3, factory=list)


class LeaveGroupResponse(Response, key=13, versions=(0, 5), flexible=4):
    """The error of the request and, from v3 on, of each member."""

    class MemberResponse(Struct):
        member_id: string
        group_instance_id: string | None
        error_code: int16 = 0

    throttle_time_ms: int32 = field(since=1, default=0)
    error_code: int16 = 0
    members: list[MemberResponse] = field(since=3, factory=list)
