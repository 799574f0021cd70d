"""FindCoordinator, key 10, v0-6. The broker that coordinates a group or a transactional id: none yet.

It is served before groups are, because librdkafka compresses with lz4 only for brokers that know FindCoordinator v0
(rdkafka_feature.c). The answer is retriable, as from an Apache Kafka whose `__consumer_offsets` is still being made.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkalite.server.call import Call

SEVERAL_KEYS_SINCE = 4
NO_NODE = -1
REASON = "Consumer groups and transactions are not served yet; read by assignment."

Coordinator = FindCoordinatorResponse.Coordinator


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Say for every key that no coordinator is available."""
    error = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
    if call.version < SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=REASON, node_id=NO_NODE, host="", port=NO_NODE)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=error, error_message=REASON)
            for key in request.coordinator_keys
        ]
    )
