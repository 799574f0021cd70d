"""FindCoordinator, key 10, v0-6: returns the broker that coordinates a group or a transactional id.

Version notes: v1 key type, before that always a group; v4 several keys (KIP-699); v6 share groups (KIP-932), which are
not served and fail with INVALID_REQUEST, as in an Apache Kafka without them. The first request for a type creates the
internal topic of its coordinator. Unlike Kafka, where the client retries, a broker that is alone waits for the topic.
In a cluster, a key whose partition of that topic has no leader that the client can reach has no coordinator:
COORDINATOR_NOT_AVAILABLE.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from kafkalite.cluster.topics.internal_topics import OFFSETS, TRANSACTION_STATE
from kafkalite.errors import KafkaErrorCode, reason_of
from kafkalite.model import Node
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkalite.server.requests.call import OBJECTS_MAX, CoordinatorCall
from kafkalite.server.requests.preload import has_transaction_coordinator, import_transaction_coordinator

SEVERAL_KEYS_SINCE = 4
TOPICS = {0: OFFSETS.name, 1: TRANSACTION_STATE.name}  # by the type of the key: a group, a transactional id
NO_NODE = -1
IN_STEPS = OBJECTS_MAX + 1
NOT_SERVED = "Keys of type {} are not served: groups (0) and transactional ids (1) are."
NO_TOPIC = "The topic {} cannot be created: {}."

NO_LEADER = "The partition of this key has no leader that this client can reach."

Coordinator = FindCoordinatorResponse.Coordinator
Find = Callable[[str], Node | None]


def find_coordinator(call: CoordinatorCall, request: FindCoordinatorRequest) -> None:
    """Return the coordinator of each key."""
    topic = TOPICS.get(request.key_type)
    if topic is None:
        answer(call, request, KafkaErrorCode.INVALID_REQUEST, NOT_SERVED.format(request.key_type))
        return

    def ready(error: int) -> None:
        reason = reason_of(error) or "the coordinator is shutting down"
        answer(call, request, error, NO_TOPIC.format(topic, reason) if error else None)

    if topic == TRANSACTION_STATE.name and not has_transaction_coordinator():
        then = partial(create_topic, call, topic, ready)
        call.in_slices(import_transaction_coordinator(), IN_STEPS, then)
    else:
        create_topic(call, topic, ready)


def create_topic(call: CoordinatorCall, topic: str, ready: Callable[[int], None], _imported: None = None) -> None:
    """Have the coordinator create its internal topic; `ready` receives the error code."""
    call.context.coordinator_of(topic).ensure_topic(call.guard(ready))


def answer(call: CoordinatorCall, request: FindCoordinatorRequest, error: int, reason: str | None) -> None:
    """Send the coordinator of every key, or the same error for every key, in slices if there are many."""
    find = None if error else call.context.coordinators(call.connection, TOPICS[request.key_type])
    if call.version < SEVERAL_KEYS_SINCE:
        call.answer(FindCoordinatorResponse(**coordinator_fields(request.key, find, error, reason)))
    else:
        call.answer_from(describe_coordinators(call, request, find, error, reason), len(request.coordinator_keys))


def describe_coordinators(
    call: CoordinatorCall, request: FindCoordinatorRequest, find: Find | None, error: int, reason: str | None
) -> Generator[None, None, FindCoordinatorResponse]:
    """Build the response for several keys.

    Arguments:
        call, request: of the client.
        find, error, reason: those of `coordinator_fields`.
    """
    coordinators = call.elements()
    for key in request.coordinator_keys:
        coordinators.add(Coordinator(key=key, **coordinator_fields(key, find, error, reason)))
        yield
    return FindCoordinatorResponse(coordinators=coordinators.finish())


def coordinator_fields(key: str, find: Find | None, error: int, reason: str | None) -> dict[str, Any]:
    """Return the fields of the response for one key.

    Arguments:
        key: the group or the transactional id.
        find: returns the coordinator of a key; None = the error holds for every key.
        error, reason: the error and its text.
    """
    node = None if find is None else find(key)
    if node is not None:
        return {"node_id": node.broker_id, "host": node.host, "port": node.port, "error_code": 0, "error_message": None}
    if find is not None:
        error, reason = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE, NO_LEADER
    return {"node_id": NO_NODE, "host": "", "port": NO_NODE, "error_code": error, "error_message": reason}
