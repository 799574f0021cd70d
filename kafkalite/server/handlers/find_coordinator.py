"""FindCoordinator, key 10, v0-6: returns the broker that coordinates a group or a transactional id.

Version notes: v1 key type, before that always a group; v4 several keys (KIP-699); v6 share groups (KIP-932), which are
not served and fail with INVALID_REQUEST, as in an Apache Kafka without them. The first request for a group creates the
offsets topic. Unlike Kafka, where the client retries, the response waits for the topic. Transactional ids are rejected
until transactions are served: see `server.no_transactions`.
"""

from collections.abc import Generator

from kafkalite.errors import KafkaErrorCode, reason_of
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkalite.server.call import CoordinatorCall
from kafkalite.server.no_transactions import NO_TRANSACTIONS, NO_TRANSACTIONS_ERROR

SEVERAL_KEYS_SINCE = 4
GROUP, TRANSACTION = 0, 1
NO_NODE = -1
NOT_SERVED = "Keys of type {} are not served: groups (0) are."
NO_TOPIC = "The topic of the groups cannot be created: {}."

Coordinator = FindCoordinatorResponse.Coordinator


def find_coordinator(call: CoordinatorCall, request: FindCoordinatorRequest) -> None:
    """Return the coordinator of each key."""
    if request.key_type == TRANSACTION:
        call.context.transactional_clients.warn(
            call.client_id, call.connection.peer_host, transactional_id(call, request)
        )
        answer(call, request, NO_TRANSACTIONS_ERROR, NO_TRANSACTIONS)
        return
    if request.key_type != GROUP:
        answer(call, request, KafkaErrorCode.INVALID_REQUEST, NOT_SERVED.format(request.key_type))
        return

    def ready(error: int) -> None:
        reason = reason_of(error) or "the coordinator is shutting down"
        answer(call, request, error, NO_TOPIC.format(reason) if error else None)

    call.context.groups.ensure_topic(call.guarded(ready))


def transactional_id(call: CoordinatorCall, request: FindCoordinatorRequest) -> str:
    """Return the transactional id of the request, the first of several."""
    if call.version < SEVERAL_KEYS_SINCE:
        return request.key
    return request.coordinator_keys[0] if request.coordinator_keys else ""


def answer(call: CoordinatorCall, request: FindCoordinatorRequest, error: int, reason: str | None) -> None:
    """Return the same result for every key, in slices if there are many."""
    call.answer_from(described(call, request, error, reason), len(request.coordinator_keys))


def described(
    call: CoordinatorCall, request: FindCoordinatorRequest, error: int, reason: str | None
) -> Generator[None, None, FindCoordinatorResponse]:
    """Build the response: this broker, or the error."""
    node_id, host, port = NO_NODE, "", NO_NODE
    if not error:
        own = call.own_node
        node_id, host, port = own.broker_id, own.host, own.port
    if call.version < SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=reason, node_id=node_id, host=host, port=port)
    coordinators = call.elements()
    for key in request.coordinator_keys:
        coordinators.add(
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=reason)
        )
        yield
    return FindCoordinatorResponse(coordinators=coordinators.finish())
