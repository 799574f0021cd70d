"""DescribeCluster, key 60, v0-2. Cluster id, controller and brokers (KIP-700).

Version notes: v1 endpoint type (KIP-919); v2 fenced brokers (KIP-1073).
Source: DescribeClusterRequest.json, DescribeClusterResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int8, int16, int32, string


class DescribeClusterRequest(Request, key=60, versions=(0, 2), flexible=0):
    """The type of the requested endpoints."""

    include_cluster_authorized_operations: boolean
    endpoint_type: int8 = field(since=1, default=1)
    include_fenced_brokers: boolean = field(since=2, default=False)


class DescribeClusterResponse(Response, key=60, versions=(0, 2), flexible=0):
    """The cluster and its brokers."""

    class DescribeClusterBroker(Struct):
        broker_id: int32
        host: string
        port: int32
        rack: string | None = None
        is_fenced: boolean = field(since=2, default=False)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    endpoint_type: int8 = field(since=1, default=1)
    cluster_id: string
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int32 = -(2**31)
