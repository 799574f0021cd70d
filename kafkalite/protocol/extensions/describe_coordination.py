"""DescribeCoordination, key 10007, v0. Describes the session of a broker with its coordination service and the tree."""

from kafkalite.protocol.schema import Request, Response, Struct, field, int32, int64, string


class DescribeCoordinationRequest(Request, key=10007, versions=(0, 0), flexible=0):
    """Only brokers of a cluster serve it, each for itself."""


class DescribeCoordinationResponse(Response, key=10007, versions=(0, 0), flexible=0):
    """The session, and the nodes of the tree that are left out. Brokers before the tagged fields send none of these.

    Attributes:
        suspended_ms: how long the coordination service has been out of reach, in ms; -1 = it is connected.
        invalid_nodes: the nodes that the broker leaves out, sorted by path, at most 1000; all if it is the controller.
        invalid_node_count: their number; the broker remembers at most 10000.
        pending_isr_changes: number of changes of in-sync replicas that the broker has requested, without a result.
        replica_lag: the largest number of records that a replica of the broker is behind its leader's high watermark;
            -1 = unknown.
    """

    class InvalidNode(Struct):
        """One node.

        Attributes:
            path: its path below that of the cluster.
            reason: what is wrong, in English.
        """

        path: string
        reason: string

    suspended_ms: int64 = -1
    invalid_nodes: list[InvalidNode] = field(tag=0, factory=list)
    invalid_node_count: int32 = field(tag=1, default=0)
    pending_isr_changes: int32 = field(tag=2, default=0)
    replica_lag: int64 = field(tag=3, default=-1)
