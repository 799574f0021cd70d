"""Schema registries: the client of their REST API, and serializers for Avro, Protobuf and JSON Schema.

The libraries are extras: `kafkalite[avro]`, `[protobuf]` and `[json-schema]`; names are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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
    "AvroDeserializer": "avro",
    "AvroSerializer": "avro",
    "JsonDeserializer": "json_schema",
    "JsonSerializer": "json_schema",
    "ProtobufDeserializer": "protobuf",
    "ProtobufSerializer": "protobuf",
    "RegistryAccessError": "client",
    "RegistryUnavailableError": "client",
    "Schema": "client",
    "SchemaRegistry": "client",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
