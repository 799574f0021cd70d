"""AlterConfigs, key 33, v0-2. Sets a resource to exactly the configs given; older clients use it (KIP-133, superseded
by KIP-339).
"""

from functools import partial

from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kafkalite.server.call import Call
from kafkalite.server.handlers.altered_configs import gather_altered


def alter_configs(call: Call, request: AlterConfigsRequest) -> None:
    """Replace every resource's configs by itself; the answer leaves when all changes are durable."""
    gather = gather_altered(call, AlterConfigsResponse, request.resources)
    for at, resource in enumerate(request.resources):
        configs = {config.name: config.value for config in resource.configs}
        call.broker.configs.replace(
            resource.resource_type, resource.resource_name, configs, request.validate_only, partial(gather.put, at)
        )
