"""Schemas as text of Spark's DDL, and how schemas of tables grow."""

import pyarrow
import pytest
from pyspark_kafkalite.decoding.errors import SchemaMisfitError
from pyspark_kafkalite.decoding.schemas import merge_schemas
from pyspark_kafkalite.tables.columns import RAW_SCHEMA
from pyspark_kafkalite.tables.ddl import ddl_text, normalize_schema, parse_ddl

TIMESTAMP = pyarrow.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a int", [("a", pyarrow.int32())]),
        ("a BIGINT NOT NULL COMMENT 'it''s', b long", [("a", pyarrow.int64()), ("b", pyarrow.int64())]),
        ("a: int, b: string", [("a", pyarrow.int32()), ("b", pyarrow.string())]),
        ("struct<a: int, b: date>", [("a", pyarrow.int32()), ("b", pyarrow.date32())]),
        ("`a``b c` decimal(12,3)", [("a`b c", pyarrow.decimal128(12, 3))]),
        ("a decimal, b decimal(5)", [("a", pyarrow.decimal128(10, 0)), ("b", pyarrow.decimal128(5, 0))]),
        ("a array<array<int>>", [("a", pyarrow.list_(pyarrow.list_(pyarrow.int32())))]),
        (
            "a map<string, struct<x int>>",
            [("a", pyarrow.map_(pyarrow.string(), pyarrow.struct([("x", pyarrow.int32())])))],
        ),
        ("a timestamp, b timestamp_ntz", [("a", TIMESTAMP), ("b", pyarrow.timestamp("us"))]),
        ("a varchar(10), struct string", [("a", pyarrow.string()), ("struct", pyarrow.string())]),
        ("a struct<>", [("a", pyarrow.struct([]))]),
    ],
)
def test_ddl_is_read_and_written(text: str, fields: list[tuple[str, pyarrow.DataType]]) -> None:
    schema = pyarrow.schema(fields)
    text = text.replace("it''s", "its")
    assert parse_ddl(text) == schema
    assert parse_ddl(ddl_text(schema)) == schema


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it ends where a column is expected"),
        ("a", "it ends where a type is expected"),
        ("a int,", "it ends where a name is expected"),
        ("a int b int", "'b' at position 6, expected ','"),
        ("a number", "'number' at position 2, expected one of boolean"),
        ("a array<int", "it ends where '>' is expected"),
        ("a decimal(x)", "'x' at position 10, expected a number"),
        ("a int, A string", "column 'a' occurs twice"),
        (", a int", "',' at position 0, expected a name"),
    ],
)
def test_error_names_the_position(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_ddl(text)


def test_types_of_other_units_and_sizes_become_those_of_tables() -> None:
    found = normalize_schema(
        pyarrow.schema(
            [
                ("a", pyarrow.timestamp("ns", "Europe/Berlin")),
                ("b", pyarrow.large_list(pyarrow.large_string())),
                ("c", pyarrow.uint16()),
                ("d", pyarrow.date64()),
            ]
        )
    )
    assert found.types == [TIMESTAMP, pyarrow.list_(pyarrow.string()), pyarrow.int32(), pyarrow.date32()]
    with pytest.raises(ValueError, match="type time64"):
        normalize_schema(pyarrow.schema([("a", pyarrow.time64("us"))]))


def test_schema_of_raw_records_survives_the_text() -> None:
    assert parse_ddl(ddl_text(RAW_SCHEMA)) == RAW_SCHEMA


@pytest.mark.parametrize(
    ("known", "added", "result"),
    [
        ("a int", "a int, b string", "a int, b string"),
        ("a int, b string", "b string", "a int, b string"),
        ("a bigint, b double", "a int, b float", "a bigint, b double"),
        ("s struct<x int>, b int", "s struct<y int>", "s struct<x int, y int>, b int"),
        ("s array<struct<x int>>", "s array<struct<x int, y int>>", "s array<struct<x int, y int>>"),
    ],
)
def test_schema_grows_at_its_end(known: str, added: str, result: str) -> None:
    assert merge_schemas(parse_ddl(known), parse_ddl(added), "data") == parse_ddl(result)


@pytest.mark.parametrize(
    ("known", "added", "error"),
    [
        ("a int", "a bigint", "column a is int, in the data bigint"),
        ("a int", "a string", "column a is int, in the data string"),
        ("s struct<x int>", "s struct<x string>", r"column s\.x is int, in the data string"),
        ("a int", "A int", "columns a and A differ in case only"),
    ],
)
def test_schema_that_does_not_fit_is_shown_with_that_of_the_table(known: str, added: str, error: str) -> None:
    with pytest.raises(SchemaMisfitError, match=error) as raised:
        merge_schemas(parse_ddl(known), parse_ddl(added), "data")
    assert ddl_text(parse_ddl(known)) in str(raised.value) and ddl_text(parse_ddl(added)) in str(raised.value)
