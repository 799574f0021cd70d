"""DescribeClientQuotas, key 48, v0-1. Lists the client quotas that match a filter (KIP-546).

Version notes: v1 flexible.
Source: DescribeClientQuotasRequest.json, DescribeClientQuotasResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, float64, int8, int16, int32, string


class DescribeClientQuotasRequest(Request, key=48, versions=(0, 1), flexible=1):
    """The filter: all components must match."""

    class ComponentData(Struct):
        entity_type: string
        match_type: int8
        match: string | None

    components: list[ComponentData]
    strict: boolean


class DescribeClientQuotasResponse(Response, key=48, versions=(0, 1), flexible=1):
    """The quotas of each entity."""

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: string
            entity_name: string | None

        class ValueData(Struct):
            key: string
            value: float64

        entity: list[EntityData]
        values: list[ValueData]

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None
    entries: list[EntryData] | None
