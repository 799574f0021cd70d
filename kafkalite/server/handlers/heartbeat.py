"""Heartbeat, key 12, v0-4. A member of a classic group is alive, and hears whether it must rejoin.

Version notes: v3 static members (KIP-345). While the group is loaded, every heartbeat is good, as in Kafka: sessions
begin anew when it has been.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite.server.call import GroupCall
from kafkalite.state.groups.classic.requests import ErrorOnly, Heartbeat

LOADING = KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def heartbeat(call: GroupCall, request: HeartbeatRequest) -> None:
    """Keep a member's session."""
    fast_heartbeat = Heartbeat(request.group_id, request.member_id, request.generation_id, request.group_instance_id)
    call.context.groups.submit(
        request.group_id,
        lambda shard, token, now: shard.registry.heartbeat(fast_heartbeat, token, now),
        call.completion(answer, refused),
    )


def answer(done: ErrorOnly) -> HeartbeatResponse:
    """What the member hears."""
    return HeartbeatResponse(error_code=done.error)


def refused(error: int) -> HeartbeatResponse:
    """What it hears when the group cannot be asked."""
    return HeartbeatResponse(error_code=0 if error == LOADING else error)
