"""Groups: their offsets, coordinators and members."""

from collections.abc import Sequence
from typing import Any

from kafkalite._speedups.codec import decode
from kafkalite.server.requests.authorization.authorized_call import AnyCall
from kafkalite.server.requests.authorization.guards.entries import (
    name_of_id,
    namer,
    refuse,
    refuse_cluster,
    refuse_named,
    serve_rest,
    serve_rest_of_names,
    serve_rest_of_topics,
    split,
)
from kafkalite.server.requests.authorization.refusals import struct_of
from kafkalite.server.requests.authorization.table import (
    CLUSTER_ACTION,
    DESCRIBE,
    ERRORS,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
)
from kafkalite.slicing import Steps
from kafkalite.state.authorizer.acls import WILDCARD

COMMIT_TOPIC_ID_SINCE = 10
GROUPS_SINCE, OFFSET_TOPIC_ID_SINCE = 8, 10  # of OffsetFetch
COORDINATOR_KEYS_SINCE = 4


def offset_commit(call: AnyCall, request: Any) -> Steps:
    """Key 8. A packed request of which a topic is refused is decoded whole."""
    by_id = call.version >= COMMIT_TOPIC_ID_SINCE
    packed = hasattr(request, "offsets")
    allowed = call.authorization.allows(READ, GROUP, request.group_id)
    if packed:
        if allowed and (yield from may_read_all(call, request.topics, by_id=by_id)):
            return request
        from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest  # only where something is refused

        request = decode(OffsetCommitRequest, call.version, call.header.body, exact=False)
    if not allowed:
        yield from refuse(call, request, GROUP)
        return None
    return (yield from serve_rest_of_topics(call, request, ("topics", "topics"), READ, namer(call, by_id=by_id)))


def may_read_all(call: AnyCall, topics: Sequence[Any], *, by_id: bool) -> Steps:
    """Return whether all topics of a packed commit may be read; an unknown id is left to the handler."""
    for each in topics:
        name = name_of_id(call, each) if by_id else each
        if name is not None and not call.authorization.allows(READ, TOPIC, name):
            return False
        yield
    return True


def offset_fetch(call: AnyCall, request: Any) -> Any:
    """Key 9. Lists of all topics are filtered by the handler."""
    if call.version >= GROUPS_SINCE:
        return offset_fetch_of_groups(call, request)
    if not call.authorization.allows(DESCRIBE, GROUP, request.group_id):
        return refuse(call, request, GROUP)
    if request.topics is None:
        return request
    return offset_fetch_of_topics(call, request)


def offset_fetch_of_topics(call: AnyCall, request: Any) -> Steps:
    struct = struct_of(call.response_type, "topics")
    refused = yield from split(call, request, "topics", DESCRIBE, namer(call, by_id=False), struct)
    if refused:
        call.refused = "topics", refused
    return request


def offset_fetch_of_groups(call: AnyCall, request: Any) -> Steps:
    struct = struct_of(call.response_type, "groups")
    kept, failed = [], []
    for group in request.groups:
        if call.authorization.allows(DESCRIBE, GROUP, group.group_id):
            kept.append(group)
        else:
            failed.append(struct(group_id=group.group_id, topics=[], error_code=ERRORS[GROUP]))
        yield
    name_of = namer(call, by_id=call.version >= OFFSET_TOPIC_ID_SINCE)
    call.refused_topics = of_groups = {}
    for group in kept:
        if group.topics is None:
            continue
        refused = yield from split(call, group, "topics", DESCRIBE, name_of, struct_of(struct, "topics"))
        if refused:
            of_groups[group.group_id] = refused
    request.groups = kept
    return serve_rest(call, request, "groups", "groups", failed)


def find_coordinator(call: AnyCall, request: Any) -> Any:
    """Key 10. Keys of other types are rejected by the handler."""
    resource_type = {0: GROUP, 1: TRANSACTIONAL_ID}.get(request.key_type)
    if resource_type is None:
        return request
    if call.version < COORDINATOR_KEYS_SINCE:
        return None if refuse_named(call, request, DESCRIBE, resource_type, request.key) else request
    return serve_rest_of_names(call, request, ("coordinator_keys", "coordinators"), DESCRIBE, resource_type)


def registering(call: AnyCall, request: Any, topics: Sequence[str], pattern: str | None) -> Steps:
    """Refuse a request for a group that reads topics which its sender may not describe. A pattern needs the right to
    describe all topics: its matches are found for the group, not for a member.
    """
    if refuse_named(call, request, READ, GROUP, request.group_id):
        return None
    allowed = True
    for name in [*topics, WILDCARD] if pattern else topics:
        allowed = call.authorization.allows(DESCRIBE, TOPIC, name) and allowed  # each one in the audit log
        yield
    if not allowed:
        yield from refuse(call, request, TOPIC)
    return request if allowed else None


def consumer_group_heartbeat(call: AnyCall, request: Any) -> Any:
    """Key 68."""
    return registering(call, request, request.subscribed_topic_names or (), request.subscribed_topic_regex)


def list_groups_plus(call: AnyCall, request: Any) -> Any:
    """Key 10000. A list of all groups is filtered by the handler."""
    if request.coordinator_only:
        allowed_all = call.authorization.allows_cluster(CLUSTER_ACTION)
    else:
        allowed_all = call.authorization.allows_cluster(DESCRIBE, log_denied=False)
    if allowed_all or not request.groups:
        return request
    return serve_rest_of_names(call, request, ("groups", "groups"), DESCRIBE, GROUP)


def create_group(call: AnyCall, request: Any) -> Any:
    """Key 10001."""
    if request.coordinator_only:
        return None if refuse_cluster(call, request, CLUSTER_ACTION) else request
    return registering(call, request, request.topics or (), request.topic_pattern)


def register_consumer(call: AnyCall, request: Any) -> Any:
    """Key 10003."""
    return registering(call, request, [*request.topics, *(each.name for each in request.claimed_partitions)], None)
