"""DescribeCluster, key 60, v0-2: returns the brokers and the controller (KIP-700).

Version notes: v1 endpoint type (only brokers are served); v2 fenced brokers (there are none).
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkalite.server.requests.authorized_operations import cluster_operations
from kafkalite.server.requests.call import ClusterCall

ENDPOINT_BROKERS = 1

Broker = DescribeClusterResponse.DescribeClusterBroker


def describe_cluster(call: ClusterCall, request: DescribeClusterRequest) -> DescribeClusterResponse | None:
    """Return every running broker with the address of the listener that this connection uses, once they are known."""
    first_image = call.context.first_image
    if first_image is None:
        return build_response(call, request)
    first_image.wait(call.guard(lambda: call.answer(build_response(call, request))))
    return None


def build_response(call: ClusterCall, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the cluster as this broker knows it."""
    if request.endpoint_type != ENDPOINT_BROKERS:
        return DescribeClusterResponse(
            error_code=KafkaErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == ENDPOINT_BROKERS + 1
            else KafkaErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a broker: endpoint type 1 is what it can describe.",
            cluster_id="",
            controller_id=-1,
            brokers=[],
        )
    image = call.context.image
    nodes = call.context.nodes(image, call.connection)
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
        brokers=[Broker(broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack) for node in nodes],
    )
