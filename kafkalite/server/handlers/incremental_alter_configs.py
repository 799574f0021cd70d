"""IncrementalAlterConfigs, key 44, v0-1. Sets, deletes, appends to and subtracts from single configs (KIP-339)."""

from functools import partial

from kafkalite.cluster.topics import Gather, Refusal
from kafkalite.config.dynamic import Alteration
from kafkalite.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkalite.server.call import Call

Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


def incremental_alter_configs(call: Call, request: IncrementalAlterConfigsRequest) -> None:
    """Change every resource's configs by itself; the answer leaves when all changes are durable."""

    def altered(outcomes: list[Refusal | None]) -> None:
        call.answer(
            IncrementalAlterConfigsResponse(
                responses=[
                    Result(
                        error_code=refusal.error if refusal else 0,
                        error_message=refusal.message if refusal else None,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                    for resource, refusal in zip(request.resources, outcomes, strict=True)
                ]
            )
        )

    gather = Gather(len(request.resources), altered)
    for at, resource in enumerate(request.resources):
        alterations = [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
        call.broker.configs.alter(
            resource.resource_type, resource.resource_name, alterations, request.validate_only, partial(gather.put, at)
        )
