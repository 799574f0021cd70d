"""AlterConfigs, key 33, v0-2: sets a resource to exactly the given configs (KIP-133).

Older clients use it; IncrementalAlterConfigs supersedes it (KIP-339).
"""

from collections.abc import Callable
from typing import Any

from kafkalite.cluster.changes import Refusal
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kafkalite.server.requests.call import ConfigCall
from kafkalite.server.requests.config_changes import alter_each


def alter_configs(call: ConfigCall, request: AlterConfigsRequest) -> None:
    """Replace the configs of each resource; the response is sent when all changes are durable."""

    def alter(resource: Any, then: Callable[[Refusal | None], None]) -> None:
        wrong = complaint(resource.configs)
        if wrong:
            then(Refusal(KafkaErrorCode.INVALID_REQUEST, wrong))
            return
        configs = {config.name: config.value for config in resource.configs}
        kind, name = resource.resource_type, resource.resource_name
        call.context.configs.replace(kind, name, configs, request.validate_only, then)

    alter_each(call, AlterConfigsResponse, request.resources, alter)


def complaint(configs: list[AlterConfigsRequest.AlterConfigsResource.AlterableConfig]) -> str | None:
    """Return why these configs are invalid for any resource, None where they are valid."""
    names = [config.name for config in configs]
    if len(set(names)) < len(names):
        return "Error due to duplicate config keys"
    without = [config.name for config in configs if config.value is None]
    return f"Null value not supported for : {', '.join(without)}" if without else None
