"""Schema registries: the client of their REST API, and serializers for Avro, Protobuf and JSON Schema.

The libraries are extras: `kafkalite[avro]`, `[protobuf]` and `[json-schema]`; names are imported on first use.
"""

from typing import TYPE_CHECKING

from kafkalite_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite_sdk.registry.avro import AvroDeserializer as AvroDeserializer
    from kafkalite_sdk.registry.avro import AvroSerializer as AvroSerializer
    from kafkalite_sdk.registry.client import RegistryAccessError as RegistryAccessError
    from kafkalite_sdk.registry.client import RegistryUnavailableError as RegistryUnavailableError
    from kafkalite_sdk.registry.client import Schema as Schema
    from kafkalite_sdk.registry.client import SchemaRegistry as SchemaRegistry
    from kafkalite_sdk.registry.json_schema import JsonDeserializer as JsonDeserializer
    from kafkalite_sdk.registry.json_schema import JsonSerializer as JsonSerializer
    from kafkalite_sdk.registry.protobuf import ProtobufDeserializer as ProtobufDeserializer
    from kafkalite_sdk.registry.protobuf import ProtobufSerializer as ProtobufSerializer

_MODULES = {
    "AvroDeserializer": "kafkalite_sdk.registry.avro",
    "AvroSerializer": "kafkalite_sdk.registry.avro",
    "JsonDeserializer": "kafkalite_sdk.registry.json_schema",
    "JsonSerializer": "kafkalite_sdk.registry.json_schema",
    "ProtobufDeserializer": "kafkalite_sdk.registry.protobuf",
    "ProtobufSerializer": "kafkalite_sdk.registry.protobuf",
    "RegistryAccessError": "kafkalite_sdk.registry.client",
    "RegistryUnavailableError": "kafkalite_sdk.registry.client",
    "Schema": "kafkalite_sdk.registry.client",
    "SchemaRegistry": "kafkalite_sdk.registry.client",
}

__all__ = list(_MODULES)


__getattr__ = lazy_names(__name__, _MODULES)
