"""Fetch, key 1, v4-18: returns whole batches of many partitions, when `min_bytes` are available or after `max_wait_ms`.

Version notes: v7 incremental sessions (KIP-227); v9 current leader epoch (KIP-320); v12 last fetched epoch and
diverging epoch (KIP-595); v13 topics by id; v16 current leaders and their addresses (KIP-951), in a cluster.

- The response has at least one whole batch, even above max_bytes (KIP-74).
- `min_bytes` is at most `max_bytes`. A read that ended before the last record suffices, whatever `min_bytes` is.
- read_committed (KIP-98): records up to the last stable offset, and the aborted transactions among them, which the
  client skips. As in Kafka, the list may contain transactions that begin after these records.

- From v11 on, and for the replica id -2 of debugging tools, followers serve reads up to their own high watermark
  (KIP-392); with `replica.selector.class` a leader names a follower in the rack of the client.

Deviations: if `min_bytes` is above the sum of the partitions' `max_bytes`, Kafka waits,
although no wait can reach it. Sources: FetchRequest.json, KafkaApis.handleFetchRequest, DelayedFetch.
"""

from functools import partial

from kafkalite.config.table_server import RACK_AWARE_SELECTOR
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.server.handlers import replica_fetch
from kafkalite.server.requests.call import OBJECTS_MAX, PartitionCall
from kafkalite.server.requests.context import PartitionContext
from kafkalite.server.requests.fetch_context import (
    FetchContext,
    open_context,
    open_in_steps,
    resume_session,
)
from kafkalite.server.requests.pending_fetch import PendingFetch
from kafkalite.server.requests.rack_aware_fetch import RackAwareFetch

UNKNOWN_EPOCH = -1  # of the registration of a broker


def fetch(call: PartitionCall, request: FetchRequest) -> FetchResponse | None:
    """Open or resume the fetch session, then read. A fetch of a replica has its own path."""
    state = request.replica_state
    if request.replica_id >= 0:
        replica_fetch.fetch_of_replica(call, request, request.replica_id, UNKNOWN_EPOCH)
        return None
    if state is not None and state.replica_id >= 0:
        replica_fetch.fetch_of_replica(call, request, state.replica_id, state.replica_epoch)
        return None
    session = resume_session(call, request)
    if isinstance(session, KafkaErrorCode):
        return FetchResponse(error_code=session, session_id=0, responses=[])
    objects = 0
    for topic in request.topics:
        objects += 1 + len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        objects += 1 + len(forgotten.partitions)
    if objects <= OBJECTS_MAX:
        serve(call, request, open_context(call, request, session))
    else:
        steps = open_in_steps(call, request, session)
        call.in_slices(steps, objects, partial(serve, call, request), changes=session is not None)
    return None


def serve(call: PartitionCall, request: FetchRequest, context: FetchContext | KafkaErrorCode) -> None:
    """Serve a fetch whose partitions are known, or return the error of its session."""
    if isinstance(context, KafkaErrorCode):
        call.answer(FetchResponse(error_code=context, session_id=0, responses=[]))
    else:
        fetch_type: type[PendingFetch] = (
            RackAwareFetch if request.rack_id and selects_by_rack(call.context) else PendingFetch
        )
        if call.charge is not None:
            from kafkalite.server.requests.quotas.throttled_fetch import THROTTLED  # with quotas

            fetch_type = THROTTLED[fetch_type]
        fetch_type(call, request, context).start()


def selects_by_rack(broker: PartitionContext) -> bool:
    """Return whether this broker names followers in the racks of clients."""
    return broker.in_cluster and broker.config.replica_selector_class == RACK_AWARE_SELECTOR
