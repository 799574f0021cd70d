"""AlterConfigs, key 33, v0-2. Replaces the whole configuration of resources; superseded by key 44.

Version notes: v2 flexible.
Source: AlterConfigsRequest.json, AlterConfigsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, int8, int16, int32, string


class AlterConfigsRequest(Request, key=33, versions=(0, 2), flexible=2):
    """Resources with all their keys."""

    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: string
            value: string | None

        resource_type: int8
        resource_name: string
        configs: list[AlterableConfig]

    resources: list[AlterConfigsResource]
    validate_only: boolean


class AlterConfigsResponse(Response, key=33, versions=(0, 2), flexible=2):
    """The result for each resource."""

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: string | None
        resource_type: int8
        resource_name: string

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse]
