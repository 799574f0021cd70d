"""JoinGroup, key 11, v0-9. A member of a classic group registers for the next generation.

Version notes: v1 rebalance timeout; v2 throttling before answering; v4 member id handshake (KIP-394); v5
static members (KIP-345); v7 protocol type in the response (KIP-559); v8 reason (KIP-800); v9 skip assignment (KIP-814).
Source: JoinGroupRequest.json, JoinGroupResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, binary, boolean, field, int16, int32, string


class JoinGroupRequest(Request, key=11, versions=(0, 9), flexible=6):
    """The joining member with its timeouts and its protocols, in order of preference."""

    class JoinGroupRequestProtocol(Struct):
        name: string
        metadata: binary

    group_id: string
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = field(since=1, default=-1)
    member_id: string
    group_instance_id: string | None = field(since=5, default=None)
    protocol_type: string
    protocols: list[JoinGroupRequestProtocol]
    reason: string | None = field(since=8, default=None)


class JoinGroupResponse(Response, key=11, versions=(0, 9), flexible=6):
    """The generation and its protocol; only the leader receives all members."""

    class JoinGroupResponseMember(Struct):
        member_id: string
        group_instance_id: string | None = field(since=5, default=None)
        metadata: binary

    throttle_time_ms: int32 = field(since=2, default=0)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: string | None = field(since=7, default=None)
    protocol_name: string | None = field(nullable_since=7, default="")
    leader: string
    skip_assignment: boolean = field(since=9, default=False)
    member_id: string
    members: list[JoinGroupResponseMember]
