"""DescribeCluster, key 60, v0-2. The brokers and the controller (KIP-700); v1 endpoint type (brokers only), v2 fenced
brokers (none).
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkalite.server.authorized_operations import CLUSTER_OPERATIONS, if_asked
from kafkalite.server.call import ClusterCall

ENDPOINT_BROKERS = 1

Broker = DescribeClusterResponse.DescribeClusterBroker


def describe_cluster(call: ClusterCall, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Name every live broker by the listener that this connection came through."""
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
    nodes = call.context.nodes(call.connection)
    return DescribeClusterResponse(
        cluster_id=call.context.image.cluster_id,
        controller_id=call.context.image.controller_id,
        cluster_authorized_operations=if_asked(request.include_cluster_authorized_operations, CLUSTER_OPERATIONS),
        brokers=[Broker(broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack) for node in nodes],
    )
