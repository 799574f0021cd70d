"""AlterPartition, key 56, v2-3: the leaders of partitions change their in-sync replicas (KIP-497).

Only brokers send it, on their own listener. The controller answers when the states are written; other brokers answer
NOT_CONTROLLER. `state/controller/partitions/requests` decides.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkalite.server.requests.call import ControllerCall


def alter_partition(call: ControllerCall, request: AlterPartitionRequest) -> AlterPartitionResponse | None:
    """Answer with the committed states."""
    controller = call.context.local_controller
    if controller is None:
        return AlterPartitionResponse(error_code=KafkaErrorCode.NOT_CONTROLLER, topics=[])
    controller.alter_partition(request, call.guard(call.answer))
    return None
