"""CreateGroup, key 10001, v0: defines a group whose partitions the broker assigns to its members.

Repeating the same definition succeeds; topics need not exist. Errors: INVALID_REGULAR_EXPRESSION for a pattern that RE2
rejects, INVALID_TOPIC_EXCEPTION for an invalid topic name, INVALID_REQUEST for topics together with a pattern, the
errors of the machine (`state/groups/registered/groups.py`) and of the coordinator.

In a cluster any broker accepts the request, and sends it to the coordinator of the group. REQUEST_TIMED_OUT: the
coordinator has not answered in time, and the group may exist; COORDINATOR_NOT_AVAILABLE: it cannot be reached.
"""

from functools import partial

from kafkalite.cluster.broker_peers import BrokerPeers, CallResult
from kafkalite.cluster.topics.internal_topics import OFFSETS
from kafkalite.coordinators.group.regex_resolver import complaint
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.protocol.extensions.create_group import CreateGroupRequest, CreateGroupResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.state.groups.registered.requests import CreateGroup
from kafkalite.state.topic_names import complaint as complaint_about_topic

NO_NODE = Node(-1, "", -1)


def create_group(call: GroupCall, request: CreateGroupRequest) -> CreateGroupResponse | None:
    """Validate the definition, and submit it to the coordinator."""
    if call.refuse_of_client(of_brokers=request.coordinator_only):
        return None
    error = refusal(request)
    if error:
        return answer(call.own_node, error)
    peers = None if request.coordinator_only else call.context.peers
    if peers is None:
        create_here(call, request)
    else:
        call.context.groups.ensure_topic(call.guard(partial(create_at_coordinator, call, peers, request)))
    return None


def create_at_coordinator(call: GroupCall, peers: BrokerPeers, request: CreateGroupRequest, error: int) -> None:
    """Submit a definition to the coordinator of its group; `error`: why there is none."""
    node = None if error else call.context.coordinators(call.connection, OFFSETS.name)(request.group_id)
    if node is None:
        call.answer(answer(NO_NODE, error or KafkaErrorCode.COORDINATOR_NOT_AVAILABLE))
    elif node.broker_id == call.context.broker_id:
        create_here(call, request)
        call.context.replicas.write_pending()  # no iteration does it where the topic was awaited
    else:

        def answered(result: CallResult) -> None:
            call.answer(answer(node, result.error or result.response.error_code))

        request.coordinator_only = True
        peers.call(node.broker_id, request, call.at_others(answered))


def create_here(call: GroupCall, request: CreateGroupRequest) -> None:
    """Submit a definition to this broker; the response names it as the coordinator in any case."""
    definition = CreateGroup(
        group=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        topics=tuple(dict.fromkeys(request.topics or ())),
        pattern=request.topic_pattern,
        assignor=request.assignor,
        ephemeral=request.ephemeral,
    )
    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.registry.create(definition, token, now),
        call.completion(lambda done: answer(call.own_node, done.error), partial(answer, call.own_node)),
    )


def refusal(request: CreateGroupRequest) -> int:
    """Return the error of a definition that is invalid whatever groups exist, 0 where it is valid."""
    if request.topic_pattern is not None:
        if request.topics:
            return KafkaErrorCode.INVALID_REQUEST
        if not request.topic_pattern or complaint(request.topic_pattern) is not None:
            return KafkaErrorCode.INVALID_REGULAR_EXPRESSION
    if any(complaint_about_topic(name) is not None for name in request.topics or ()):
        return KafkaErrorCode.INVALID_TOPIC_EXCEPTION
    return KafkaErrorCode.NONE


def answer(node: Node, error: int) -> CreateGroupResponse:
    """Return the response: the error and the coordinator of the group."""
    return CreateGroupResponse(
        error_code=error, controller_id=node.broker_id, controller_host=node.host, controller_port=node.port
    )
