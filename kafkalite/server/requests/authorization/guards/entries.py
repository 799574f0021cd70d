"""The steps that guards share: refuse a request, or remove its refused entries, which the response gets back."""

from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.server.requests.authorization.authorized_call import AnyCall
from kafkalite.server.requests.authorization.refusals import (
    keep_entries,
    refuse_entry,
    refuse_in_steps,
    refused_entry,
    struct_of,
    structs_in,
)
from kafkalite.server.requests.authorization.table import CLUSTER, ERRORS, TABLE, TOPIC
from kafkalite.slicing import Steps, finish
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType


def refuse(call: AnyCall, request: Any, resource_type: AclResourceType) -> Steps:
    """Answer a request that is refused as a whole."""
    row = TABLE[call.header.api_key]
    call.answer((yield from refuse_in_steps(call.response_type, call.version, request, ERRORS[resource_type], row)))


def refuse_cluster(call: AnyCall, request: Any, operation: AclOperation) -> bool:
    """Answer a request without entries that lacks a right on the cluster; returns whether it was answered."""
    if call.authorization.allows_cluster(operation):
        return False
    finish(refuse(call, request, CLUSTER))
    return True


def refuse_named(
    call: AnyCall, request: Any, operation: AclOperation, resource_type: AclResourceType, name: str
) -> bool:
    """Answer a request without entries if a right on its resource is missing; returns whether it was answered.

    Arguments:
        call, request: the request.
        operation, resource_type: the right.
        name: of the resource.
    """
    if call.authorization.allows(operation, resource_type, name):
        return False
    finish(refuse(call, request, resource_type))
    return True


def split(
    call: AnyCall,
    request: Any,
    array: str,
    operation: AclOperation,
    name_of: Callable[[Any], str | None],
    struct: type[Any],
) -> Steps:
    """Remove the topics without a right from an array of a request; returns their entries in a response.

    Arguments:
        call, request: the request.
        array: of its topics.
        operation: on each topic.
        name_of: returns the name of a topic of the array; None = it does not exist, which its handler reports.
        struct: of the topics in the response.
    """
    kept: list[Any] = []
    removed: list[Any] = []
    refused = call.elements()
    for topic in getattr(request, array):
        name = name_of(topic)
        if name is None or call.authorization.allows(operation, TOPIC, name):
            kept.append(topic)
        else:
            entry = yield from refuse_entry(call.elements(), struct, topic, ERRORS[TOPIC])
            refused.add(entry, structs_in(entry))
            removed.append(topic)
        yield
    if removed:
        yield from keep_entries(request, array, kept, removed)
    return refused.finish()


def serve_rest(call: AnyCall, request: Any, array: str, target: str, refused: Sequence[Any]) -> Any:
    """Have the call add refused entries to its response. Returns the request; None if no entry is left, and the call is
    answered.

    Arguments:
        call, request: the request without the refused entries.
        array: of the entries of the request.
        target: of the entries of the response.
        refused: entries of the response.
    """
    if not refused:
        return request
    call.refused = target, list(refused)
    if getattr(request, array):
        return request
    call.answer(call.response_type())
    return None


def serve_rest_of_topics(
    call: AnyCall, request: Any, arrays: tuple[str, str], operation: AclOperation, name_of: Callable[[Any], str | None]
) -> Steps:
    """As `serve_rest`, without the topics that lack a right.

    Arguments:
        call, request: the request.
        arrays: of the topics, in the request and in the response.
        operation: on each topic.
        name_of: as of `split`.
    """
    array, target = arrays
    refused = yield from split(call, request, array, operation, name_of, struct_of(call.response_type, target))
    return serve_rest(call, request, array, target, refused)


def serve_rest_of_names(
    call: AnyCall, request: Any, arrays: tuple[str, str], operation: AclOperation, resource_type: AclResourceType
) -> Steps:
    """As `serve_rest`, without the names that lack a right.

    Arguments:
        call, request: the request.
        arrays: of the names, in the request; of their results, in the response.
        operation, resource_type: the right.
    """
    array, target = arrays
    struct, error = struct_of(call.response_type, target), ERRORS[resource_type]
    allowed: list[str] = []
    removed: list[str] = []
    refused = call.elements()
    for name in getattr(request, array):
        if call.authorization.allows(operation, resource_type, name):
            allowed.append(name)
        else:
            refused.add(refused_entry(struct, name, error))
            removed.append(name)
        yield
    yield from keep_entries(request, array, allowed, removed)
    return serve_rest(call, request, array, target, refused.finish())


def name_of_id(call: AnyCall, topic_id: bytes) -> str | None:
    """Return the name of a topic id; None = unknown."""
    topic = call.context.image.topics_by_id.get(topic_id)
    return None if topic is None else topic.name


def namer(call: AnyCall, *, by_id: bool) -> Callable[[Any], str | None]:
    """Return the function that names a topic of a request, by its id from a version on."""
    return (lambda topic: name_of_id(call, topic.topic_id)) if by_id else (lambda topic: topic.name)
