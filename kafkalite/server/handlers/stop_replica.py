"""StopReplica, key 5, v0-4: the controller ends the hosting of partitions, and deletes their logs if it says so.

Only a broker in a cluster serves it. Version notes: see `protocol.messages.stop_replica`; `assigned_partitions`
describes how it is applied. Errors: `cluster.controller.fence`.
"""

from kafkalite.clock import Outcome
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest
from kafkalite.server.requests.call import ControllerCall


def stop_replica(call: ControllerCall, request: StopReplicaRequest) -> None:
    """Answer when the request is applied."""

    def applied(outcome: Outcome) -> None:
        call.answer(outcome.result())

    call.context.controller_requests.stop_replica(request, call.guard(applied))
