"""Heartbeat, key 12, v0-4. Extends the session of a member of a classic group.

Version notes: v1 throttle time; v2 throttling before answering; v3 static members (KIP-345).
Source: HeartbeatRequest.json, HeartbeatResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, field, int16, int32, string


class HeartbeatRequest(Request, key=12, versions=(0, 4), flexible=4):
    """The member that sends the heartbeat, and its generation."""

    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = field(since=3, default=None)


class HeartbeatResponse(Response, key=12, versions=(0, 4), flexible=4):
    """The error: REBALANCE_IN_PROGRESS makes the member join again."""

    throttle_time_ms: int32 = field(since=1, default=0)
    error_code: int16 = 0
