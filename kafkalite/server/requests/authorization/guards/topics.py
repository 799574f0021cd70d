"""Topics and configs."""

from typing import Any

from kafkalite.config.resource_types import ResourceType
from kafkalite.server.requests.authorization.authorized_call import AnyCall
from kafkalite.server.requests.authorization.guards.entries import name_of_id, namer, serve_rest, split
from kafkalite.server.requests.authorization.refusals import keep_entries, refused_entry, struct_of
from kafkalite.server.requests.authorization.table import CLUSTER, DELETE, DESCRIBE, ERRORS, GROUP, TABLE, TOPIC
from kafkalite.slicing import Steps
from kafkalite.state.authorizer.acls import CLUSTER_NAME

DELETE_BOTH_FORMS_SINCE = 6


def delete_topics(call: AnyCall, request: Any) -> Steps:
    """Key 20. By id, a topic that may not be described has no name in the response."""
    if call.authorization.allows_cluster(DELETE, log_denied=False):
        return request
    array = "topics" if call.version >= DELETE_BOTH_FORMS_SINCE else "topic_names"
    struct = struct_of(call.response_type, "responses")
    kept: list[Any] = []
    removed: list[Any] = []
    refused = call.elements()
    for topic in getattr(request, array):
        yield
        name = topic if isinstance(topic, str) else topic.name
        if may_delete(call, name) if name is not None else may_delete_id(call, topic.topic_id):
            kept.append(topic)
            continue
        removed.append(topic)
        entry = refused_entry(struct, topic, ERRORS[TOPIC])
        if name is None:
            of_id = name_of_id(call, topic.topic_id)
            entry.name = of_id if of_id and call.authorization.allows(DESCRIBE, TOPIC, of_id) else None
        refused.add(entry)
    yield from keep_entries(request, array, kept, removed)
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
    kept: list[Any] = []
    removed: list[Any] = []
    refused = call.elements()
    for resource in getattr(request, source):
        of_cluster = resource.resource_type in CONFIG_OF_CLUSTER
        resource_type = CLUSTER if of_cluster else CONFIG_RIGHTS.get(resource.resource_type)
        name = CLUSTER_NAME if of_cluster else resource.resource_name
        operation = row.checks[0].right.operation
        if resource_type is None or call.authorization.allows(operation, resource_type, name):
            kept.append(resource)
        else:
            refused.add(refused_entry(struct, resource, ERRORS[resource_type]))
            removed.append(resource)
        yield
    yield from keep_entries(request, source, kept, removed)
    return serve_rest(call, request, source, target, refused.finish())
