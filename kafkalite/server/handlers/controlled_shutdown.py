"""ControlledShutdown, key 7, v0-3: the controller moves the leaders of a broker before it stops.

Only brokers send it, on their own listener. Brokers that are not the controller answer NOT_CONTROLLER.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalite.server.requests.call import ControllerCall


def controlled_shutdown(call: ControllerCall, request: ControlledShutdownRequest) -> ControlledShutdownResponse | None:
    """Answer with the partitions that the broker still leads."""
    controller = call.context.local_controller
    if controller is None:
        return ControlledShutdownResponse(error_code=KafkaErrorCode.NOT_CONTROLLER, remaining_partitions=[])
    controller.controlled_shutdown(request, call.guard(call.answer))
    return None
