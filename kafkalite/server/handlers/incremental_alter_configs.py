"""IncrementalAlterConfigs, key 44, v0-1. Sets, deletes, appends to and subtracts from single configs (KIP-339)."""

from functools import partial

from kafkalite.config.dynamic import Alteration
from kafkalite.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkalite.server.call import Call
from kafkalite.server.handlers.altered_configs import gather_altered


def incremental_alter_configs(call: Call, request: IncrementalAlterConfigsRequest) -> None:
    """Change every resource's configs by itself; the answer leaves when all changes are durable."""
    gather = gather_altered(call, IncrementalAlterConfigsResponse, request.resources)
    for at, resource in enumerate(request.resources):
        alterations = [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
        call.broker.configs.alter(
            resource.resource_type, resource.resource_name, alterations, request.validate_only, partial(gather.put, at)
        )
