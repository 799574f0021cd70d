"""Heartbeat+, key 10004, v0: extends the session of a registered consumer; an error code makes it register again.

While the group is loading, every heartbeat succeeds, as for classic groups: sessions start again when it is loaded.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.extensions.heartbeat_plus import HeartbeatPlusRequest, HeartbeatPlusResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.state.groups.registered.requests import HeartbeatAnswered, HeartbeatPlus

LOADING = KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def heartbeat_plus(call: GroupCall, request: HeartbeatPlusRequest) -> None:
    """Submit the heartbeat to the group's shard."""
    fast_heartbeat = HeartbeatPlus(
        request.group_id,
        request.consumer_id,
        request.generation_id,
        request.session_timeout_ms,
        request.process_id,
    )

    def convert_error(error: int) -> HeartbeatPlusResponse:
        result = HeartbeatAnswered(0, request.generation_id) if error == LOADING else HeartbeatAnswered(error)
        return answer(result)

    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.registered.heartbeat(fast_heartbeat, token, now),
        call.completion(answer, convert_error),
    )


def answer(result: HeartbeatAnswered) -> HeartbeatPlusResponse:
    """Return the response: the generation, or the error."""
    return HeartbeatPlusResponse(error_code=result.error, generation_id=result.generation)
