"""What AlterConfigs (key 33) and IncrementalAlterConfigs (key 44) have in common: the outcome of each resource,
answered together.
"""

from typing import Any, TypeVar

from kafkalite.cluster.topics import Gather, Refusal
from kafkalite.protocol.messages.alter_configs import AlterConfigsResponse
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from kafkalite.server.call import Call

Response = TypeVar("Response", AlterConfigsResponse, IncrementalAlterConfigsResponse)


def gather_altered(call: Call, response: type[Response], resources: list[Any]) -> Gather:
    """Where the outcome of each resource is put; the answer leaves when all changes are durable.

    Arguments:
        response: the class of the answer.
        resources: of the request, in the order of the answer.
    """

    def altered(outcomes: list[Refusal | None]) -> None:
        call.answer(
            response(
                responses=[
                    response.AlterConfigsResourceResponse(
                        error_code=refusal.error if refusal else 0,
                        error_message=refusal.message if refusal else None,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                    for resource, refusal in zip(resources, outcomes, strict=True)
                ]
            )
        )

    return Gather(len(resources), call.later(altered))
