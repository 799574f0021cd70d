"""IncrementalAlterConfigs, key 44, v0-1. Changes single keys of a configuration (KIP-339).

Version notes: v1 flexible.
Source: IncrementalAlterConfigsRequest.json, IncrementalAlterConfigsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, int8, int16, int32, string


class IncrementalAlterConfigsRequest(Request, key=44, versions=(0, 1), flexible=1):
    """Resources with operations on their keys (0 set, 1 delete, 2 append, 3 subtract)."""

    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: string
            config_operation: int8
            value: string | None

        resource_type: int8
        resource_name: string
        configs: list[AlterableConfig]

    resources: list[AlterConfigsResource]
    validate_only: boolean


class IncrementalAlterConfigsResponse(Response, key=44, versions=(0, 1), flexible=1):
    """The result for each resource."""

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: string | None
        resource_type: int8
        resource_name: string

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse]
