"""DescribeCoordination, key 10007, v0: returns how long the coordination service has been out of reach."""

from kafkalite.protocol.extensions.describe_coordination import (
    DescribeCoordinationRequest,
    DescribeCoordinationResponse,
)
from kafkalite.server.call import ControllerCall


def describe_coordination(call: ControllerCall, request: DescribeCoordinationRequest) -> DescribeCoordinationResponse:
    """Return the state of the session of this broker."""
    return DescribeCoordinationResponse(suspended_ms=call.context.coordination_suspended_ms)
