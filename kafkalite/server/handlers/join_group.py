"""JoinGroup, key 11, v0-9: a member of a classic group joins the next generation; the response waits for the others.

Version notes: in v0 the rebalance timeout is the session timeout; from v4 on a new member first receives its id
(KIP-394); v7 protocol type, nullable protocol; v9 a leader that need not assign (KIP-814). A member id is the client id
or the instance id plus a random UUID, as in Kafka; an id that is too long for a string of the protocol fails with
INVALID_REQUEST, as neither other members nor the log could represent it. The machine is
`state/groups/classic/group.py`.
"""

from uuid import UUID

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.state.groups.classic.requests import Join, Joined

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
STRING_BYTES_MAX = 2**15 - 1
UUID_PART = "-" + "0" * 36

Member = JoinGroupResponse.JoinGroupResponseMember


def join_group(call: GroupCall, request: JoinGroupRequest) -> JoinGroupResponse | None:
    """Submit the join; the response has the generation, an error, or NOT_COORDINATOR when the coordinator stops."""
    named = call.client_id if request.group_instance_id is None else request.group_instance_id
    if not request.member_id and len(f"{named}{UUID_PART}".encode()) > STRING_BYTES_MAX:
        return answer(call, Joined(KafkaErrorCode.INVALID_REQUEST))
    join = Join(
        group=request.group_id,
        member_id=request.member_id,
        fresh_id=str(UUID(bytes=call.context.random.uuid())),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms(call, request),
        client_id=call.client_id,
        client_host=call.client_host,
        group_instance_id=request.group_instance_id,
        member_id_required=call.version >= MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
    )
    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.registry.join(join, token, now),
        call.completion(
            lambda joined: answer(call, joined), lambda error: answer(call, Joined(error, request.member_id))
        ),
    )
    return None


def rebalance_timeout_ms(call: GroupCall, request: JoinGroupRequest) -> int:
    """Return how long the group waits for this member."""
    given = request.rebalance_timeout_ms if call.version >= REBALANCE_TIMEOUT_SINCE else request.session_timeout_ms
    return max(0, min(given, call.context.config.kafkalite_client_timeout_max_ms))


def answer(call: GroupCall, joined: Joined) -> JoinGroupResponse:
    """Convert the generation, or the error, to this version's response."""
    protocol = joined.protocol
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol if call.version >= NULL_PROTOCOL_SINCE else protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[Member(**member._asdict()) for member in joined.members],
    )
