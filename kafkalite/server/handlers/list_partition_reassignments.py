"""ListPartitionReassignments, key 46, v0. What is being moved between brokers: nothing, on one broker (KIP-455)."""

from kafkalite.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkalite.server.call import PlainCall


def list_partition_reassignments(
    _call: PlainCall, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """No partition is on the move; a single broker has nowhere to move it to."""
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
