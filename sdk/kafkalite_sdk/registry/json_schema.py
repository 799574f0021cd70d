"""JSON with schemas of a registry, validated by jsonschema: `pip install 'kafkalite[json-schema]'`.

References are resolved from the registry alone; no URL of a schema is requested.
"""

import json
from collections.abc import Iterable
from typing import Any

from kafkalite_sdk.registry import wire
from kafkalite_sdk.registry.client import Schema, SchemaRegistry
from kafkalite_sdk.registry.serializer import RegisteredSerializer


class JsonSerializer(RegisteredSerializer):
    """Serializes values of JSON that match a schema; `await prepare(topic)` first.

    Arguments:
        registry: where the schema is registered.
        schema: JSON text.
        key, header: see `RegisteredSerializer`.
    """

    def __init__(self, registry: SchemaRegistry, schema: str, *, key: bool = False, header: bool = False) -> None:
        super().__init__(registry, schema, "JSON", key=key, header=header)
        self._validator = _validator(Schema(schema, "JSON", {}))

    def encode(self, data: Any) -> bytes:
        """Return the bytes of a value. Raises jsonschema.ValidationError: it does not match the schema."""
        self._validator.validate(data)
        return json.dumps(data).encode()


class JsonDeserializer:
    """Deserializes values of JSON, and validates them with the schema of their writer.

    Arguments:
        registry: of the schemas.
        key: it deserializes keys.
    """

    awaits = True

    def __init__(self, registry: SchemaRegistry, *, key: bool = False) -> None:
        self._registry = registry
        self._key = key

    def deserialize(self, _topic: str, headers: Iterable[tuple[str, bytes | None]], data: bytes, /) -> Any:
        """Return the value. Raises SchemaError, ValueError, or jsonschema.ValidationError."""
        framed = wire.read(data, headers, key=self._key)
        schema = self._registry.schema(framed.key)
        if schema.parsed is None:
            schema.parsed = _validator(schema)
        value = json.loads(framed.data)
        schema.parsed.validate(value)
        return value


def _validator(schema: Schema) -> Any:
    import jsonschema
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    resources = [
        (name, Resource.from_contents(json.loads(text), default_specification=DRAFT7))
        for name, text in schema.references.items()
    ]
    content = json.loads(schema.text)
    validator = jsonschema.validators.validator_for(content, default=jsonschema.Draft7Validator)
    validator.check_schema(content)
    return validator(content, registry=Registry().with_resources(resources))
