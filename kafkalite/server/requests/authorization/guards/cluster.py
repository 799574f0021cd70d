"""The cluster: log directories, users, coordination."""

from typing import Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.server.requests.authorization.authorized_call import AnyCall
from kafkalite.server.requests.authorization.refusals import refuse_entries, struct_of
from kafkalite.server.requests.authorization.table import ALTER, CLUSTER, DESCRIBE, ERRORS
from kafkalite.slicing import Steps


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


def describe_coordination(call: AnyCall, request: Any) -> Any:
    """Key 10007. Its response has no error code, so the connection is closed."""
    if call.authorization.allows_cluster(DESCRIBE):
        return request
    call.close(f"DescribeCoordination is refused: {KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED.name}")
    return None
