"""SyncGroup, key 14, v0-5. The leader of a classic group sends the assignment; every member receives its own.

Version notes: v1 throttle time; v2 throttling before answering; v3 static members (KIP-345); v5 protocol type and name
(KIP-559).
Source: SyncGroupRequest.json, SyncGroupResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, binary, field, int16, int32, string


class SyncGroupRequest(Request, key=14, versions=(0, 5), flexible=4):
    """The waiting member; only the leader sends assignments."""

    class SyncGroupRequestAssignment(Struct):
        member_id: string
        assignment: binary

    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = field(since=3, default=None)
    protocol_type: string | None = field(since=5, default=None)
    protocol_name: string | None = field(since=5, default=None)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Response, key=14, versions=(0, 5), flexible=4):
    """The assignment of this member, encoded by its protocol."""

    throttle_time_ms: int32 = field(since=1, default=0)
    error_code: int16 = 0
    protocol_type: string | None = field(since=5, default=None)
    protocol_name: string | None = field(since=5, default=None)
    assignment: binary
