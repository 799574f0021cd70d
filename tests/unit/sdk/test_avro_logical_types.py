"""Logical types and defaults of Avro are those of the specification; the oracle is what fastavro decodes from bytes."""

import io
import json
import math
from typing import Any

import fastavro
import pytest
from kafkalite_sdk.registry.avro_logical import without_invalid
from kafkalite_sdk.registry.avro_schemas import parse, parse_reader

from tests.unit.avro_cases import (
    INVALID_DECIMALS,
    PAIRS,
    VALID,
    default_of,
    encoded,
    logical_type,
    pair_id,
    record,
)

EMPTY = json.dumps({"type": "record", "name": "r", "fields": []})


def read(data: bytes, writer: str, reader: str | None = None) -> Any:
    """The value as a deserializer returns it."""
    parsed, schemaless_reader = parse(writer)
    return schemaless_reader(io.BytesIO(data), parsed, None if reader is None else parse_reader(reader))


def default(field_type: Any, value: Any) -> Any:
    """The value of a field that the writer lacks."""
    return read(b"", EMPTY, record(field_type, defaults=[value]))["x0"]


@pytest.mark.parametrize(("logical", "base", "valid"), PAIRS, ids=pair_id)
def test_logical_type_that_is_not_valid_for_its_base_is_ignored(
    logical: str, base: dict[str, Any], valid: bool
) -> None:
    schema = logical_type(logical, base)
    found = read(encoded(base), record(schema))
    expected = schema if valid else base
    assert found == fastavro.schemaless_reader(
        io.BytesIO(encoded(base)), fastavro.parse_schema(json.loads(record(expected))), None
    )
    assert ("logicalType" in without_invalid(schema)) is valid


@pytest.mark.parametrize("base", [{"type": "bytes"}, {"type": "fixed", "name": "f", "size": 4}], ids=pair_id)
@pytest.mark.parametrize("wrong", INVALID_DECIMALS, ids=str)
def test_decimals_that_are_not_valid_are_their_bytes(base: dict[str, Any], wrong: dict[str, Any]) -> None:
    schema = {**base, "logicalType": "decimal", **wrong}
    assert read(encoded(base), record(schema)) == read(encoded(base), record(base))


def test_decimal_with_more_digits_than_its_fixed_type_has_is_its_bytes() -> None:
    base = {"type": "fixed", "name": "f", "size": 4}
    fits, larger = ({**base, "logicalType": "decimal", "precision": each} for each in (9, 10))
    assert read(encoded(base), record(fits)) == {"x0": 1234}
    assert read(encoded(base), record(larger)) == {"x0": b"\x00\x00\x04\xd2"}


@pytest.mark.parametrize("nested", ["field", "union", "array", "map", "record"])
@pytest.mark.parametrize(("logical", "base"), VALID, ids=pair_id)
def test_default_is_the_value_that_is_decoded_from_its_bytes(logical: str, base: dict[str, Any], nested: str) -> None:
    schema, value = logical_type(logical, base), default_of(base)
    expected = read(encoded(base), record(schema))["x0"]
    if nested == "union":
        found = default(["null", schema], value)
    elif nested == "array":
        (found,) = default({"type": "array", "items": schema}, [value])
    elif nested == "map":
        found = default({"type": "map", "values": schema}, {"a": value})["a"]
    elif nested == "record":
        inner = {"type": "record", "name": "i", "fields": [{"name": "y", "type": schema, "default": value}]}
        found = default(inner, {})["y"]
    else:
        found = default(schema, value)
    assert (type(found), found) == (type(expected), expected)


def test_default_of_a_named_type_and_of_a_later_record() -> None:
    date = {"type": "int", "logicalType": "date"}
    inner = {"type": "record", "name": "i", "fields": [{"name": "y", "type": date, "default": 1}]}
    found = read(b"", EMPTY, record(inner, "i", ["null", "i"], defaults=[{}, {"y": 1}, None]))
    assert found["x0"] == found["x1"] and found["x0"]["y"].isoformat() == "1970-01-02" and found["x2"] is None


def test_default_of_a_floating_number_is_rounded_as_its_encoding_is() -> None:
    assert default("float", 0.1) == 0.10000000149011612 and default("double", 1) == 1.0
    assert type(default("double", 1)) is float and math.isnan(default("double", math.nan))


@pytest.mark.parametrize(("form", "bits"), [("int", 31), ("long", 63)])
def test_defaults_at_the_limits_of_integers_are_their_values(form: str, bits: int) -> None:
    assert [default(form, each) for each in (-(1 << bits), (1 << bits) - 1)] == [-(1 << bits), (1 << bits) - 1]


@pytest.mark.parametrize(
    ("field_type", "value"),
    [
        ("int", 2**31),
        ("long", -(2**63) - 1),
        ("int", True),
        ({"type": "fixed", "name": "f", "size": 2}, "a"),
        ("bytes", "\u20ac"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "B"),
        ({"type": "array", "items": "int"}, ["a"]),
        ({"type": "map", "values": "int"}, {"a": None}),
        ({"type": "record", "name": "i", "fields": [{"name": "y", "type": "int"}]}, {}),
        ("float", 1e39),
    ],
    ids=str,
)
def test_default_that_is_not_a_value_of_its_field_is_an_error(field_type: Any, value: Any) -> None:
    with pytest.raises((ValueError, fastavro.schema.SchemaParseException), match="efault"):
        parse_reader(record(field_type, defaults=[value]))
    with pytest.raises((ValueError, fastavro.schema.SchemaParseException), match="efault"):
        parse_reader(record([field_type, "null"], defaults=[value]))
