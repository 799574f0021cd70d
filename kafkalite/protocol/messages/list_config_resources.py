"""ListConfigResources, key 74, v0-1. Lists the resources that have configs (KIP-714, KIP-1142).

Version notes: v1 any resource type; v0 only client metrics.
Source: ListConfigResourcesRequest.json, ListConfigResourcesResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int8, int16, int32, string


class ListConfigResourcesRequest(Request, key=74, versions=(0, 1), flexible=0):
    """The resource types; none = all."""

    resource_types: list[int8] = field(since=1)


class ListConfigResourcesResponse(Response, key=74, versions=(0, 1), flexible=0):
    """The resources."""

    class ConfigResource(Struct):
        resource_name: string
        resource_type: int8 = field(since=1, default=16)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource]
