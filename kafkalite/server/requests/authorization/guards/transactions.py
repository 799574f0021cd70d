"""Producer ids and transactions."""

from typing import Any

from kafkalite.server.requests.authorization.authorized_call import AnyCall
from kafkalite.server.requests.authorization.guards.entries import refuse, refuse_cluster, refuse_named
from kafkalite.server.requests.authorization.table import (
    CLUSTER,
    CLUSTER_ACTION,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)

ADD_PARTITIONS_OF_BROKERS_SINCE = 4


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
