"""AlterConfigs, key 33, v0-2. Sets a resource to exactly the configs given; older clients use it (KIP-133, superseded
by KIP-339).
"""

from functools import partial

from kafkalite.cluster.topics import Gather, Refusal
from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kafkalite.server.call import Call

Result = AlterConfigsResponse.AlterConfigsResourceResponse


def alter_configs(call: Call, request: AlterConfigsRequest) -> None:
    """Replace every resource's configs by itself; the answer leaves when all changes are durable."""

    def altered(outcomes: list[Refusal | None]) -> None:
        call.answer(
            AlterConfigsResponse(
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
        configs = {config.name: config.value for config in resource.configs}
        call.broker.configs.replace(
            resource.resource_type, resource.resource_name, configs, request.validate_only, partial(gather.put, at)
        )
