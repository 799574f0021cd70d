"""Avro with schemas of a registry, by fastavro: `pip install 'kafkalite[avro]'`."""

import io
import json
from collections.abc import Iterable
from typing import Any

from kafkalite_sdk.registry import wire
from kafkalite_sdk.registry.avro_logical import without_invalid
from kafkalite_sdk.registry.avro_schemas import parse, parse_reader
from kafkalite_sdk.registry.client import SchemaRegistry
from kafkalite_sdk.registry.serializer import RegisteredSerializer


class AvroSerializer(RegisteredSerializer):
    """Serializes dicts and other values of Avro; `await prepare(topic)` first.

    Arguments:
        registry: where the schema is registered.
        schema: JSON text.
        key, header: see `RegisteredSerializer`.
    """

    def __init__(self, registry: SchemaRegistry, schema: str, *, key: bool = False, header: bool = False) -> None:
        import fastavro

        super().__init__(registry, schema, "AVRO", key=key, header=header)
        self._parsed = fastavro.parse_schema(without_invalid(json.loads(schema)))
        self._write = fastavro.schemaless_writer

    def encode(self, data: Any) -> bytes:
        """Return the bytes of a value. Raises what fastavro raises for a value that does not match the schema."""
        buffer = io.BytesIO()
        self._write(buffer, self._parsed, data)
        return buffer.getvalue()


class AvroDeserializer:
    """Deserializes values of Avro with the schema of their writer.

    Arguments:
        registry: of the schemas of the writers.
        schema: JSON text of the reader's schema; None = that of the writer.
        key: it deserializes keys.

    Raises: ValueError: a default of the reader's schema is not a value of its field. Those of fastavro.
    """

    awaits = True

    def __init__(self, registry: SchemaRegistry, schema: str | None = None, *, key: bool = False) -> None:
        self._registry = registry
        self._key = key
        self._reader = None if schema is None else parse_reader(schema)

    def deserialize(self, _topic: str, headers: Iterable[tuple[str, bytes | None]], data: bytes, /) -> Any:
        """Return the value.

        Raises: SchemaError: its schema cannot be loaded. RecursionError: it is nested too deeply. Those of fastavro.
        """
        framed = wire.read(data, headers, key=self._key)
        schema = self._registry.schema(framed.key)
        if schema.parsed is None:
            schema.parsed = parse(schema.text, schema.references.values())
        parsed, read = schema.parsed
        return read(io.BytesIO(framed.data), parsed, self._reader)
