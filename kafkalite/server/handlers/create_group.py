"""CreateGroup, key 10001, v0: defines a group whose partitions the broker assigns to its members.

Repeating the same definition succeeds; topics need not exist. Errors: INVALID_REGULAR_EXPRESSION for a pattern that RE2
rejects, INVALID_TOPIC_EXCEPTION for an invalid topic name, INVALID_REQUEST for topics together with a pattern, the
errors of the machine (`state/groups/registered/groups.py`) and of the coordinator.
"""

from kafkalite.coordinators.group.regex_resolver import complaint
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.extensions.create_group import CreateGroupRequest, CreateGroupResponse
from kafkalite.server.call import GroupCall
from kafkalite.state.groups.registered.requests import CreateGroup
from kafkalite.state.topic_names import complaint as complaint_about_topic


def create_group(call: GroupCall, request: CreateGroupRequest) -> CreateGroupResponse | None:
    """Validate the definition and submit it; the response names this broker as the coordinator in any case."""
    error = refusal(request)
    if error:
        return answer(call, error)
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
        lambda shard, token, now: shard.registry.create(definition, token, now),
        call.completion(lambda done: answer(call, done.error), lambda code: answer(call, code)),
    )
    return None


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


def answer(call: GroupCall, error: int) -> CreateGroupResponse:
    """Return the response: the error and the coordinator of the group."""
    node = call.own_node
    return CreateGroupResponse(
        error_code=error, controller_id=node.broker_id, controller_host=node.host, controller_port=node.port
    )
