"""UpdateMetadata, key 6, v0-8: the controller sends the live brokers and the states of partitions.

Only a broker in a cluster serves it. Version notes: see `protocol.messages.update_metadata`; `cluster.metadata.update`
describes how it is applied. Errors: `cluster.controller.fence`.
"""

from kafkalite.clock import Outcome
from kafkalite.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkalite.server.requests.call import ControllerCall


def update_metadata(call: ControllerCall, request: UpdateMetadataRequest) -> None:
    """Answer when the request is applied."""

    def applied(outcome: Outcome) -> None:
        call.answer(outcome.result())

    call.context.controller_requests.update_metadata(request, call.guard(applied))
