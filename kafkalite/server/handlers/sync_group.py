"""SyncGroup, key 14, v0-5: the leader of a classic group sends the assignment; each member then receives its part.

Version notes: v3 static members (KIP-345); v5 protocol type and name, which are required and must be the group's
(KIP-559).

While the group is loading, the response is REBALANCE_IN_PROGRESS, so that the member joins again: clients do not expect
COORDINATOR_LOAD_IN_PROGRESS here, and Java's consumer raises an exception for it (GroupCoordinator.scala of Kafka 3.9).
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.state.groups.classic.requests import Sync, Synced

PROTOCOL_NEEDED_SINCE = 5
LOADING = KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def sync_group(call: GroupCall, request: SyncGroupRequest) -> SyncGroupResponse | None:
    """Submit the request; the response has the assignment, an error, or NOT_COORDINATOR when the coordinator stops."""
    if call.version >= PROTOCOL_NEEDED_SINCE and None in (request.protocol_type, request.protocol_name):
        return answer(Synced(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    sync = Sync(
        group=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id,
        assignments={each.member_id: each.assignment for each in request.assignments},
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.registry.sync(sync, token, now),
        call.completion(answer, refuse),
    )
    return None


def refuse(error: int) -> SyncGroupResponse:
    """Return the response where the shard is not available."""
    return answer(Synced(KafkaErrorCode.REBALANCE_IN_PROGRESS if error == LOADING else error))


def answer(synced: Synced) -> SyncGroupResponse:
    """Return the response: the assignment of the member, or the error."""
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )
