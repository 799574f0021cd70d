"""IncrementalAlterConfigs, key 44, v0-1: sets and deletes single configs, appends to and removes from list configs
(KIP-339).
"""

from collections.abc import Callable
from typing import Any

from kafkalite.cluster.changes import Refusal
from kafkalite.config.describe_and_alter import Alteration
from kafkalite.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkalite.server.requests.call import ConfigCall
from kafkalite.server.requests.config_changes import alter_each


def incremental_alter_configs(call: ConfigCall, request: IncrementalAlterConfigsRequest) -> None:
    """Change the configs of each resource; the response is sent when all changes are durable."""

    def alter(resource: Any, then: Callable[[Refusal | None], None]) -> None:
        alterations = [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
        kind, name = resource.resource_type, resource.resource_name
        call.context.configs.alter(kind, name, alterations, request.validate_only, then)

    alter_each(call, IncrementalAlterConfigsResponse, request.resources, alter)
