"""DescribeCoordination, key 10007, v0: the session of this broker, and the nodes of the tree that it leaves out.

Brokers answer for themselves: the controller leaves nodes out, and each broker knows why none can be elected. Paths and
reasons come from foreign programs, so what is not valid UTF-8 is escaped.
"""

from kafkalite.protocol.extensions.describe_coordination import (
    DescribeCoordinationRequest,
    DescribeCoordinationResponse,
)
from kafkalite.server.requests.call import ControllerCall

INVALID_NODES_MAX = 1_000  # in a response


def describe_coordination(call: ControllerCall, request: DescribeCoordinationRequest) -> DescribeCoordinationResponse:
    """Return the state of the session and of the replicas of this broker, and the first of the invalid nodes."""
    found = call.context.invalid_nodes
    node = DescribeCoordinationResponse.InvalidNode
    return DescribeCoordinationResponse(
        suspended_ms=call.context.coordination_suspended_ms,
        invalid_nodes=[
            node(path=encodable(path), reason=encodable(reason)) for path, reason in found[:INVALID_NODES_MAX]
        ],
        invalid_node_count=len(found),
        pending_isr_changes=call.context.pending_isr_changes,
        replica_lag=call.context.replica_lag_max,
    )


def encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()
