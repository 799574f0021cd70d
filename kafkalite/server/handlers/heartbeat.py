"""Heartbeat, key 12, v0-4: extends the session of a classic group member; an error code makes the member rejoin.

Version notes: v3 static members (KIP-345). While the group is loading, every heartbeat succeeds, as in Kafka: sessions
start again when the group is loaded.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.state.groups.classic.requests import ErrorOnly, Heartbeat

LOADING = KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def heartbeat(call: GroupCall, request: HeartbeatRequest) -> None:
    """Submit the heartbeat to the group's shard."""
    fast_heartbeat = Heartbeat(request.group_id, request.member_id, request.generation_id, request.group_instance_id)
    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.registry.heartbeat(fast_heartbeat, token, now),
        call.completion(answer, refuse),
    )


def answer(done: ErrorOnly) -> HeartbeatResponse:
    """Convert the result to the response."""
    return HeartbeatResponse(error_code=done.error)


def refuse(error: int) -> HeartbeatResponse:
    """Return the response where the shard is not available."""
    return HeartbeatResponse(error_code=0 if error == LOADING else error)
