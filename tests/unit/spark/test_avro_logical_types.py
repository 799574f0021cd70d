"""Columns of Avro's logical types with valid and invalid types below them, and of fields that a writer lacks."""

import json
from typing import Any

import pytest
from kafkalite_sdk.registry import Schema
from pyspark_kafkalite.decoding.avro import LOGICAL, Avro

from tests.unit.avro_cases import INVALID_DECIMALS, PAIRS, VALID, default_of, encoded, logical_type, pair_id, record
from tests.unit.spark.decoded import dead, decode

EMPTY = json.dumps({"type": "record", "name": "r", "fields": []})


def column(data: bytes, schema: str) -> Any:
    """The column of one decoded value."""
    found = decode([data], value="avro", schema=schema)
    assert dead(found) == []
    return found.rows.column("x0")


@pytest.mark.parametrize(("logical", "base", "valid"), PAIRS, ids=pair_id)
def test_logical_type_that_is_not_valid_for_its_base_has_the_column_of_the_base(
    logical: str, base: dict[str, Any], valid: bool
) -> None:
    plain = column(encoded(base), record(base))
    found = column(encoded(base), record(logical_type(logical, base)))
    own = valid and (logical in LOGICAL or logical == "decimal")
    assert (found.type != plain.type) is own
    assert own or found.equals(plain)


@pytest.mark.parametrize("wrong", INVALID_DECIMALS, ids=str)
def test_decimals_that_are_not_valid_are_columns_of_bytes(wrong: dict[str, Any]) -> None:
    base = {"type": "bytes"}
    assert column(encoded(base), record({**base, "logicalType": "decimal", **wrong})).to_pylist() == [b"\x04\xd2"]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("logical", "base"), VALID, ids=pair_id)
def test_field_that_the_writer_lacks_has_the_decoded_default(logical: str, base: dict[str, Any], nested: bool) -> None:
    schema, value = logical_type(logical, base), default_of(base)
    declared = Avro(record(schema)).declared_reader()
    assert declared is not None
    expected = declared.read(encoded(base))["x0"]
    if nested:
        inner = {"type": "record", "name": "i", "fields": [{"name": "y", "type": schema, "default": value}]}
        reader = Avro(record(inner, defaults=[{}])).reader(Schema(EMPTY, "AVRO", {}), ())
        found = reader.read(b"")["x0"]["y"]
    else:
        found = Avro(record(schema, defaults=[value])).reader(Schema(EMPTY, "AVRO", {}), ()).read(b"")["x0"]
    assert (type(found), found) == (type(expected), expected)


def test_declared_schema_with_a_default_of_another_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="field x0: the default 'a' of a field is not int"):
        Avro(record({"type": "array", "items": "int"}, defaults=[["a"]]))


@pytest.mark.parametrize("form", ["array", "map", "union"])
def test_default_in_a_schema_that_is_not_a_record_is_decoded(form: str) -> None:
    lacking = {"type": "record", "name": "r", "fields": [{"name": "y", "type": "int"}]}
    item = {**lacking, "fields": [*lacking["fields"], {"name": "x", "type": "bytes", "default": "\u00ff"}]}
    writer, declared = (
        {"array": {"type": form, "items": each}, "map": {"type": form, "values": each}, "union": ["null", each]}[form]
        for each in (lacking, item)
    )
    data = {"array": b"\x02\x0e\x00", "map": b"\x02\x02a\x0e\x00", "union": b"\x02\x0e"}[form]
    row = {"y": 7, "x": b"\xff"}
    found = Avro(json.dumps(declared)).reader(Schema(json.dumps(writer), "AVRO", {}), ()).read(data)
    assert found == {"array": [row], "map": {"a": row}, "union": row}[form]
