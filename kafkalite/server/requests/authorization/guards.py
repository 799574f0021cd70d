"""The checks of API keys that need more than their row says. Each function returns the request without its refused
entries, or None when it has answered the call; or, where a request can have thousands of entries, the steps that return
it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kafkalite._speedups.codec import decode
from kafkalite.config.resource_types import ResourceType
from kafkalite.errors import KafkaErrorCode
from kafkalite.server.requests.authorization.authorized_call import AuthorizedCall
from kafkalite.server.requests.authorization.refusals import (
    refuse_entries,
    refuse_entry,
    refuse_in_steps,
    refused_entry,
    struct_of,
    structs_in,
)
from kafkalite.server.requests.authorization.table import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    ERRORS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TABLE,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from kafkalite.slicing import Steps, finish
from kafkalite.state.authorizer.acls import CLUSTER_NAME, WILDCARD, AclOperation, AclResourceType

AnyCall = AuthorizedCall[Any]
Guard = Callable[[AnyCall, Any], Any]
ZERO_ID = bytes(16)
ATTRIBUTES_AT, TRANSACTIONAL_BIT = 22, 0x10  # of a batch: the low byte of its attributes
PRODUCE_TOPIC_ID_SINCE = 13
COMMIT_TOPIC_ID_SINCE = 10
GROUPS_SINCE, OFFSET_TOPIC_ID_SINCE = 8, 10  # of OffsetFetch
COORDINATOR_KEYS_SINCE = 4
DELETE_BOTH_FORMS_SINCE = 6
ADD_PARTITIONS_OF_BROKERS_SINCE = 4
NO_OFFSET = -1


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
    refused = call.elements()
    for topic in getattr(request, array):
        name = name_of(topic)
        if name is None or call.authorization.allows(operation, TOPIC, name):
            kept.append(topic)
        else:
            entry = yield from refuse_entry(call.elements(), struct, topic, ERRORS[TOPIC])
            refused.add(entry, structs_in(entry))
        yield
    if len(kept) < len(getattr(request, array)):
        setattr(request, array, kept)
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
    refused = call.elements()
    for name in getattr(request, array):
        if call.authorization.allows(operation, resource_type, name):
            allowed.append(name)
        else:
            refused.add(refused_entry(struct, name, error))
        yield
    setattr(request, array, allowed)
    return serve_rest(call, request, array, target, refused.finish())


def name_of_id(call: AnyCall, topic_id: bytes) -> str | None:
    """Return the name of a topic id; None = unknown."""
    topic = call.context.image.topics_by_id.get(topic_id)
    return None if topic is None else topic.name


def namer(call: AnyCall, *, by_id: bool) -> Callable[[Any], str | None]:
    """Return the function that names a topic of a request, by its id from a version on."""
    return (lambda topic: name_of_id(call, topic.topic_id)) if by_id else (lambda topic: topic.name)


# Data.


def produce(call: AnyCall, request: Any) -> Any:
    """Key 0. The topics that are known to be allowed cost one look-up each."""
    if request.transactional_id is not None and is_transactional(request):
        allowed = call.authorization.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id)
        if not allowed:
            return refuse_produce(call, request)
    by_id = call.version >= PRODUCE_TOPIC_ID_SINCE
    if not by_id:
        kept = call.authorization.kept(WRITE, TOPIC)
        for topic in request.topic_data:
            if topic.name not in kept:
                break
        else:
            return request
    if request.acks:
        return serve_rest_of_topics(call, request, ("topic_data", "responses"), WRITE, namer(call, by_id=by_id))
    return produce_without_answer(call, request, namer(call, by_id=by_id))


def produce_without_answer(call: AnyCall, request: Any, name_of: Callable[[Any], str | None]) -> Steps:
    """Close the connection of a produce with acks=0 of which a topic is refused."""
    struct = struct_of(call.response_type, "responses")
    if (yield from split(call, request, "topic_data", WRITE, name_of, struct)):
        call.close("produce with acks=0 failed: TOPIC_AUTHORIZATION_FAILED")
        return None
    return request


def refuse_produce(call: AnyCall, request: Any) -> Steps | None:
    if request.acks:
        return refuse(call, request, TRANSACTIONAL_ID)
    call.close("produce with acks=0 failed: TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    return None


def is_transactional(request: Any) -> bool:
    """Return whether a request has a transactional batch (RequestUtils.hasTransactionalRecords)."""
    return any(
        data.records is not None
        and len(data.records) > ATTRIBUTES_AT
        and data.records[ATTRIBUTES_AT] & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for data in topic.partition_data
    )


def fetch(call: AnyCall, request: Any) -> Any:
    """Key 1. Partitions of clients are checked where they are resolved: `fetch_context.AuthorizedFetchContext`."""
    state = request.replica_state
    if request.replica_id < 0 and (state is None or state.replica_id < 0):
        return request
    if call.authorization.allows_cluster(CLUSTER_ACTION):
        return request
    return refuse_replica(call, request)


def refuse_replica(call: AnyCall, request: Any) -> Steps:
    struct = struct_of(call.response_type, "responses")
    responses = yield from refuse_entries(call.elements(), struct, request.topics, ERRORS[TOPIC])
    call.answer(call.response_type(error_code=0 if responses else ERRORS[CLUSTER], responses=responses))


def in_handler(_call: AnyCall, request: Any) -> Any:
    """Key 3, whose handler checks the topics when the image of the cluster is known; keys 29 to 31, whose handlers
    begin with the check.
    """
    return request


# Groups.


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


# Topics.


def delete_topics(call: AnyCall, request: Any) -> Steps:
    """Key 20. By id, a topic that may not be described has no name in the response."""
    if call.authorization.allows_cluster(DELETE, log_denied=False):
        return request
    array = "topics" if call.version >= DELETE_BOTH_FORMS_SINCE else "topic_names"
    struct = struct_of(call.response_type, "responses")
    kept: list[Any] = []
    refused = call.elements()
    for topic in getattr(request, array):
        yield
        name = topic if isinstance(topic, str) else topic.name
        if may_delete(call, name) if name is not None else may_delete_id(call, topic.topic_id):
            kept.append(topic)
            continue
        entry = refused_entry(struct, topic, ERRORS[TOPIC])
        if name is None:
            of_id = name_of_id(call, topic.topic_id)
            entry.name = of_id if of_id and call.authorization.allows(DESCRIBE, TOPIC, of_id) else None
        refused.add(entry)
    setattr(request, array, kept)
    return serve_rest(call, request, array, "responses", refused.finish())


def may_delete(call: AnyCall, name: str) -> bool:
    """Return whether a topic may be deleted; a missing one that may be described is left to the handler."""
    authorization = call.authorization
    return authorization.allows(DELETE, TOPIC, name) or (
        name not in call.context.tables.topics and authorization.allows(DESCRIBE, TOPIC, name)
    )


def may_delete_id(call: AnyCall, topic_id: bytes) -> bool:
    """Return whether the topic of an id may be deleted; an unknown id is left to the handler."""
    name = name_of_id(call, topic_id)
    return name is None or call.authorization.allows(DELETE, TOPIC, name)


def describe_topic_partitions(call: AnyCall, request: Any) -> Steps:
    """Key 75. A list of all topics is filtered by the handler, which a request for no topics means, too."""
    struct = struct_of(call.response_type, "topics")
    refused = yield from split(call, request, "topics", DESCRIBE, namer(call, by_id=False), struct)
    if refused:
        call.refused = "topics", refused
        if not request.topics:
            call.answer(call.response_type(next_cursor=None))
            return None
    return request


CONFIG_RIGHTS = {ResourceType.TOPIC: TOPIC, ResourceType.GROUP: GROUP}  # all others are those of the cluster
CONFIG_OF_CLUSTER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS)


def configs(call: AnyCall, request: Any) -> Steps:
    """Keys 32, 33 and 44. Resources of unknown types are rejected by the handler."""
    row = TABLE[call.header.api_key]
    assert row.entries is not None
    source, target = row.entries
    struct = struct_of(call.response_type, target)
    kept, refused = [], call.elements()
    for resource in getattr(request, source):
        of_cluster = resource.resource_type in CONFIG_OF_CLUSTER
        resource_type = CLUSTER if of_cluster else CONFIG_RIGHTS.get(resource.resource_type)
        name = CLUSTER_NAME if of_cluster else resource.resource_name
        operation = row.checks[0].right.operation
        if resource_type is None or call.authorization.allows(operation, resource_type, name):
            kept.append(resource)
        else:
            refused.add(refused_entry(struct, resource, ERRORS[resource_type]))
        yield
    setattr(request, source, kept)
    return serve_rest(call, request, source, target, refused.finish())


# Transactions.


def init_producer_id(call: AnyCall, request: Any) -> Any:
    """Key 22."""
    if request.transactional_id is not None:
        refused = refuse_named(call, request, WRITE, TRANSACTIONAL_ID, request.transactional_id)
        return None if refused else request
    authorization = call.authorization
    if authorization.allows_cluster(IDEMPOTENT_WRITE, log_denied=False) or authorization.allows_any(WRITE, TOPIC):
        return request
    return refuse(call, request, CLUSTER)


def add_partitions_to_txn(call: AnyCall, request: Any) -> Any:
    """Key 24. The topics of clients are checked by the handler: one that is refused rejects all of them."""
    if call.version >= ADD_PARTITIONS_OF_BROKERS_SINCE:
        return None if refuse_cluster(call, request, CLUSTER_ACTION) else request
    if call.authorization.allows(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return request
    return refuse(call, request, TRANSACTIONAL_ID)


# The cluster.


def alter_replica_log_dirs(call: AnyCall, request: Any) -> Steps:
    """Key 34: an error for each partition."""
    if call.authorization.allows_cluster(ALTER):
        return request
    struct = struct_of(call.response_type, "results")
    topics = (topic for each in request.dirs for topic in each.topics)
    results = yield from refuse_entries(call.elements(), struct, topics, ERRORS[CLUSTER])
    call.answer(call.response_type(results=results))
    return None


def alter_user_scram_credentials(call: AnyCall, request: Any) -> Steps:
    """Key 51: an error for each user."""
    if call.authorization.allows_cluster(ALTER):
        return request
    struct = struct_of(call.response_type, "results")
    users: set[str] = set()
    for each in (*request.deletions, *request.upsertions):
        users.add(each.name)
        yield
    results = call.elements()
    for name in sorted(users):
        results.add(struct(user=name, error_code=ERRORS[CLUSTER], error_message=None))
        yield
    call.answer(call.response_type(results=results.finish()))
    return None


# Keys from 10000 on.


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


def describe_coordination(call: AnyCall, request: Any) -> Any:
    """Key 10007. Its response has no error code, so the connection is closed."""
    if call.authorization.allows_cluster(DESCRIBE):
        return request
    call.close(f"DescribeCoordination is refused: {KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED.name}")
    return None


OWN: dict[int, Guard] = {
    0: produce,
    1: fetch,
    3: in_handler,
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    20: delete_topics,
    22: init_producer_id,
    24: add_partitions_to_txn,
    29: in_handler,
    30: in_handler,
    31: in_handler,
    32: configs,
    33: configs,
    34: alter_replica_log_dirs,
    38: in_handler,
    44: configs,
    51: alter_user_scram_credentials,
    68: consumer_group_heartbeat,
    75: describe_topic_partitions,
    10000: list_groups_plus,
    10001: create_group,
    10003: register_consumer,
    10007: describe_coordination,
}
