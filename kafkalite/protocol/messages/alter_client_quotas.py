"""AlterClientQuotas, key 49, v0-1. Sets and removes client quotas (KIP-546).

Version notes: v1 flexible.
Source: AlterClientQuotasRequest.json, AlterClientQuotasResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, float64, int16, int32, string


class AlterClientQuotasRequest(Request, key=49, versions=(0, 1), flexible=1):
    """The changes of each entity."""

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: string
            entity_name: string | None

        class OpData(Struct):
            key: string
            value: float64
            remove: boolean

        entity: list[EntityData]
        ops: list[OpData]

    entries: list[EntryData]
    validate_only: boolean


class AlterClientQuotasResponse(Response, key=49, versions=(0, 1), flexible=1):
    """An error per entity."""

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: string
            entity_name: string | None

        error_code: int16 = 0
        error_message: string | None
        entity: list[EntityData]

    throttle_time_ms: int32 = 0
    entries: list[EntryData]
