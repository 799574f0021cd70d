"""Logical types of Avro with valid and invalid types below them, and defaults, for SDK and pipeline."""

import io
import json
from typing import Any

import fastavro

BASES: list[dict[str, Any]] = [
    {"type": "boolean"},
    {"type": "int"},
    {"type": "long"},
    {"type": "float"},
    {"type": "double"},
    {"type": "bytes"},
    {"type": "string"},
    {"type": "fixed", "name": "f", "size": 4},
    {"type": "fixed", "name": "f", "size": 12},
    {"type": "fixed", "name": "f", "size": 16},
    {"type": "enum", "name": "e", "symbols": ["A"]},
    {"type": "array", "items": "long"},
    {"type": "map", "values": "long"},
]
TEXTS = {"string": "8f14e45f-ceea-467a-9538-1d2f7b3a5c11", "bytes": "\x04\xd2", "enum": "A"}
VALUES = TEXTS | {"boolean": True, "float": 0.5, "double": 0.25, "array": [5], "map": {"a": 5}}
LOGICAL_BASES = {
    "date": ["int"],
    "time-millis": ["int"],
    "time-micros": ["long"],
    "timestamp-millis": ["long"],
    "timestamp-micros": ["long"],
    "timestamp-nanos": ["long"],
    "local-timestamp-millis": ["long"],
    "local-timestamp-micros": ["long"],
    "local-timestamp-nanos": ["long"],
    "decimal": ["bytes", "fixed4", "fixed12", "fixed16"],
    "duration": ["fixed12"],
    "uuid": ["string", "fixed16"],
}
"""The types of Avro 1.12's specification."""

DECIMAL = {"precision": 9, "scale": 2}
PAIRS = [
    (logical, base, f"{base['type']}{base.get('size', '')}" in bases)
    for logical, bases in LOGICAL_BASES.items()
    for base in BASES
]
"""Logical type, the type below it, and whether they are valid together."""

VALID = [("none", base) for base in BASES] + [(logical, base) for logical, base, valid in PAIRS if valid]
"""Pairs that are valid together, and types without a logical type."""

INVALID_DECIMALS: list[dict[str, Any]] = [
    {},
    {"precision": 0},
    {"precision": -1},
    {"precision": 2.5},
    {"precision": "9"},
    {"precision": True},
    {"precision": 2, "scale": 3},
    {"precision": 2, "scale": -1},
    {"precision": 2, "scale": "1"},
]


def pair_id(pair: Any) -> str:
    """The name of a case."""
    return str(pair if not isinstance(pair, dict) else f"{pair['type']}{pair.get('size', '')}")


def logical_type(logical: str, base: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type with a logical type."""
    return {**base, "logicalType": logical, **(DECIMAL if logical == "decimal" else {})}


def default_of(base: dict[str, Any]) -> Any:
    """A value of a type as JSON has it in a default."""
    return "\x00" * (base["size"] - 2) + "\x04\xd2" if base["type"] == "fixed" else VALUES.get(base["type"], 1234)


def record(*types: Any, defaults: list[Any] | None = None) -> str:
    """The schema of a record with the fields x0, x1, ... as JSON."""
    fields: list[dict[str, Any]] = [{"name": f"x{number}", "type": each} for number, each in enumerate(types)]
    for field, default in zip(fields, defaults or [], strict=bool(defaults)):
        field["default"] = default
    return json.dumps({"type": "record", "name": "r", "fields": fields})


def encoded(base: dict[str, Any]) -> bytes:
    """The default of a type as the field of a record, without a logical type."""
    value = default_of(base)
    written = value.encode("latin-1") if base["type"] in ("bytes", "fixed") else value
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(record(base))), {"x0": written})
    return stream.getvalue()
