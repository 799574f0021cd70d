"""Produce and Fetch."""

from collections.abc import Callable
from typing import Any

from kafkalite.server.requests.authorization.authorized_call import AnyCall
from kafkalite.server.requests.authorization.guards.entries import namer, refuse, serve_rest_of_topics, split
from kafkalite.server.requests.authorization.refusals import refuse_entries, struct_of
from kafkalite.server.requests.authorization.table import (
    CLUSTER,
    CLUSTER_ACTION,
    ERRORS,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from kafkalite.slicing import Steps

ATTRIBUTES_AT, TRANSACTIONAL_BIT = 22, 0x10  # of a batch: the low byte of its attributes
PRODUCE_TOPIC_ID_SINCE = 13


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
