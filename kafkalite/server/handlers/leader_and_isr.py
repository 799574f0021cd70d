"""LeaderAndIsr, key 4, v0-7: the controller assigns partitions and their leaders.

Only a broker in a cluster serves it. Version notes: see `protocol.messages.leader_and_isr`; v0-4 have no topic ids and
are rejected with INVALID_REQUEST. `server/hosting/leader_and_isr` describes which states are applied and which are
refused, `server/hosting/assigned_partitions` how partitions are hosted, `cluster.controller.fence` the other errors.
"""

from kafkalite.clock import Outcome
from kafkalite.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkalite.server.requests.call import ControllerCall


def leader_and_isr(call: ControllerCall, request: LeaderAndIsrRequest) -> None:
    """Answer when the request is applied."""

    def applied(outcome: Outcome) -> None:
        call.answer(outcome.result())

    call.context.controller_requests.leader_and_isr(request, call.guard(applied))
