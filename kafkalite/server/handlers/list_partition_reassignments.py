"""ListPartitionReassignments, key 46, v0: returns no reassignments, as there is one broker (KIP-455)."""

from kafkalite.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkalite.server.requests.call import PlainCall


def list_partition_reassignments(
    _call: PlainCall, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the empty list."""
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
