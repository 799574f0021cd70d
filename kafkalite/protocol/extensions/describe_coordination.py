"""DescribeCoordination, key 10007, v0. Describes the session of a broker with the coordination service."""

from kafkalite.protocol.schema import Request, Response, int64


class DescribeCoordinationRequest(Request, key=10007, versions=(0, 0), flexible=0):
    """Only brokers of a cluster serve it, each for itself."""


class DescribeCoordinationResponse(Response, key=10007, versions=(0, 0), flexible=0):
    """The session.

    Attributes:
        suspended_ms: how long the coordination service has been out of reach, in ms; -1 = it is connected.
    """

    suspended_ms: int64 = -1
