"""JSON is decoded by a declared schema, or validated and left as text. A bad value costs only its own row."""

import datetime
import random
import re
from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from pyspark_kafkalite.decoding import json_lines, json_rows
from pyspark_kafkalite.decoding.drift import Drift
from pyspark_kafkalite.decoding.errors import SchemaMisfitError
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.tables.ddl import ddl_text

from tests.unit.spark.decoded import dead, decode, decoder, records

DECLARED = "a bigint, b string, c date, l array<array<array<int>>>, s struct<x double, t timestamp>, d decimal(6,2)"
EMPTY = {"a": None, "b": None, "c": None, "l": None, "s": None, "d": None}
TIME = datetime.datetime(2026, 1, 2, 2, 4, 5, 600000, datetime.UTC)
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"{}", {}),
        (b"null", {}),
        (b'{"a":7,"b":"\\u00fc\\n","zzz":[1,"x"]}', {"a": 7, "b": "ü\n"}),
        (b'{"a":null,"s":{"x":1}}', {"s": {"x": 1.0, "t": None}}),
        (b' {\n"a"\r\n:\t7}\n', {"a": 7}),
        (b'{"c":"2026-02-28","d":1.5}', {"c": datetime.date(2026, 2, 28), "d": Decimal("1.50")}),
        (b'{"l":[[[1,null]]]}', {"l": [[[1, None]]]}),
        (b'{"s":{"t":"2026-01-02T03:04:05.6+01:00","other":1}}', {"s": {"x": None, "t": TIME}}),
        (b'{"x":1,"x":2,"a":3}', {"a": 3}),
        (b'{"a":1,"\\u0062":"2026-01-01"}', {"a": 1, "b": "2026-01-01"}),
        (b'{"z":' + b'{"y":' * 400 + b"1" + b"}" * 400 + b',"a":1}', {"a": 1}),
    ],
)
def test_value_becomes_columns(value: bytes, expected: dict[str, Any]) -> None:
    decoded = decode([value], value="json", schema=DECLARED)
    assert decoded.dead is None
    (row,) = decoded.rows.select(list(EMPTY)).to_pylist()
    assert row == {**EMPTY, **expected}


BAD = [
    (b"", "json", "Expecting value"),
    (b" ", "json", "Expecting value"),
    (b"nope", "json", "Expecting value"),
    (b'{"a":', "json", "Expecting value"),
    (b"7}", "json", "Extra data"),
    (b'{"a":1}{"a":2}', "json", "Extra data"),
    (b'{"a":1},{"a":2}', "json", "Extra data"),
    (b'{"a":1}\n{"a":2}', "json", "Extra data"),
    (b'{"a":1},"x":{}', "json", "Extra data"),
    (b'{"a":1}]]],"x":[[[{}', "json", "Extra data"),
    (b'{"a":1}] ]\n],"x":[[[{}', "json", "Extra data"),
    (b'{"a":1}\0', "json", "Extra data"),
    (b'{"b":"a\nb"}', "json", "Invalid control character"),
    (b'{"b":"\\ud800"}', "type", "surrogate"),
    (b'\xef\xbb\xbf{"a":1}', "json", "BOM"),
    (b'{"b":"\xff"}', "utf8", "0xff"),
    (b'{"z":' + DEEP + b"}", "json", "recursion"),
    (b'{"a":"1"}', "type", "field a is bigint, found string"),
    (b'{"a":1.0}', "type", "field a is bigint, found double"),
    (b'{"a":9223372036854775808}', "type", "9223372036854775808"),
    (b'{"b":1,"s":{"x":"y"}}', "type", "field b is string, found bigint; field s.x is double, found string"),
    (b'{"l":[[["q"]]]}', "type", r"field l\[\]\[\]\[\] is int, found string"),
    (b'{"c":"2026-02-30"}', "type", "2026-02-30"),
    (b'{"d":12345.678}', "type", "12345.678"),
    (b'{"a":1,"a":2}', "type", "twice"),
    (b"[]", "type", "is struct, found array"),
    (b"5", "type", "is struct, found bigint"),
]


@pytest.mark.parametrize(("value", "cause", "detail"), BAD)
def test_bad_value_costs_only_its_own_row(value: bytes, cause: str, detail: str) -> None:
    good = [b'{"a":%d}' % number for number in range(9)]
    decoded = decode([*good[:5], value, *good[5:]], value="json", schema=DECLARED)
    assert decoded.rows.column("a").to_pylist() == list(range(9))
    assert decoded.rows.column("_offset").to_pylist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert dead(decoded) == [(5, "value", cause)]
    assert decoded.dead is not None and decoded.dead.column("value").to_pylist() == [value]
    (letter,) = decoded.dead.to_pylist()
    assert re.search(detail, letter["detail"]), letter["detail"]


def test_many_bad_values_among_good_ones() -> None:
    chosen = random.Random(7)
    values, good = [], {}
    for offset in range(6000):
        if chosen.random() < 0.05:
            values.append(chosen.choice(BAD)[0] if chosen.random() < 0.9 else b'{"a":1.5}')
        else:
            good[offset] = chosen.randrange(1 << 40)
            values.append(b'{"a":%d,"x":%s}' % (good[offset], chosen.choice([b"1", b'"1"', b"[]", b"{}"])))
    decoded = decode(values, value="json", schema=DECLARED)
    assert dict(zip(*(decoded.rows.column(name).to_pylist() for name in ("_offset", "a")), strict=True)) == good
    assert {row for row, _, _ in dead(decoded)} == set(range(6000)) - set(good)


@pytest.mark.parametrize("bad", [b"{", b'{"a":"x"}', b'{"a":99999999999999999999}', b'{"a":1}{"a":2}'])
def test_a_bad_value_costs_one_more_reading_of_the_others(bad: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[int, str]] = []

    def read(lines: pyarrow.StringArray, data_type: pyarrow.StructType, beyond: str) -> pyarrow.StructArray:
        reads.append((len(lines), beyond))
        return json_lines.read_objects(lines, data_type, beyond)

    monkeypatch.setattr(json_rows, "read_objects", read)
    values = [b'{"a":%d}' % row for row in range(20_000)]
    values[-1] = bad
    assert [row for row, _, _ in dead(decode(values, value="json", schema="a bigint"))] == [19_999]
    assert "infer" not in {beyond for _, beyond in reads}  # it would fail as the first one
    assert len(reads) < 40 and sum(rows for rows, _ in reads) < 50_000


def test_tombstones_differ_from_empty_objects() -> None:
    decoded = decode([None, b"{}", b"null"], value="json", schema="a int")
    assert decoded.rows.column("_tombstone").to_pylist() == [True, False, False]
    nested = decode([None, b"{}", b'{"a":1}'], value="json", schema="a int", nested=True)
    assert nested.rows.column("value").to_pylist() == [None, {"a": None}, {"a": 1}]


def test_field_with_the_name_of_a_column_of_the_table_is_rejected() -> None:
    with pytest.raises(SchemaMisfitError, match=r"field Key of values has the name of a column.*nested=True"):
        decoder(value="json", schema="Key int").schema()
    schema = decoder(value="json", schema="key int", nested=True).schema()
    assert schema is not None and schema.names[4:] == ["key", "value", "headers"]


def test_declared_schema_grows_at_its_end_and_keeps_types() -> None:
    known = decode([b"{}"], value="json", schema="a bigint, b string").rows.schema
    grown = decode([b'{"a":1,"c":2}'], ddl_text(known), value="json", schema="c int, a int")
    assert grown.rows.schema.names[-3:] == ["a", "b", "c"]
    assert grown.rows.select(["a", "b", "c"]).to_pylist() == [{"a": 1, "b": None, "c": 2}]
    with pytest.raises(SchemaMisfitError, match="column b is string, in the data date"):
        decoder(ddl_text(known), value="json", schema="b date").schema()


@pytest.mark.parametrize("schema", ["a number", "a map<string, int>", "a struct<b binary>", ""])
def test_schema_that_json_cannot_have_is_rejected(schema: str) -> None:
    with pytest.raises(OptionError, match="option schema: "):
        decoder(value="json", schema=schema)


def test_drift_counts_added_fields_and_other_types() -> None:
    values = [b'{"a":1,"x":1}', b'{"x":2,"y":{"z":1}}', b'{"l":[{"q":"t","n":1},{"q":null}]}', b'{"a":null,"x":null}']
    counting = decoder(value="json", schema="a bigint, l array<struct<n int>>")
    assert counting.decode(records(values)).dead is None
    assert counting.drift.values == 4
    assert counting.drift.added == {("x", "bigint"): 2, ("y", "struct"): 1, ("l[].q", "string"): 1}
    counting.decode(records([b'{"x":"now text"}', b'{"x":1}', b'{"a":"text"}', b'{"a":true}', None]))
    assert counting.drift.values == 8
    assert counting.drift.added["x", "bigint"] == 3 and counting.drift.added["x", "string"] == 1
    assert counting.drift.differing == {("a", "bigint", "string"): 1, ("a", "bigint", "boolean"): 1}
    total = Drift.from_json(counting.drift.to_json())
    total.add(Drift.from_json(counting.drift.to_json()))
    assert total.added["l[].q", "string"] == 2 and total.values == 16


def test_json_without_a_schema_is_validated_text() -> None:
    good = [b'{"a":[1,{}]}', b" 5\n", b'"x"', None, b"null", b"[[[1]]]", DEEP[:90] + DEEP[-90:]]
    bad = [b"", b"{", b"1 2", b'1,"x":2', b"1],2:[", b'{"a":1}}', b"\xff", b'"a\nb"', b"]", b"1]"]
    decoded = decode([*good, *bad, *good], value="json")
    expected = [None if each is None else each.decode() for each in good]
    assert decoded.rows.column("value").to_pylist() == expected * 2
    assert [row for row, _, _ in dead(decoded)] == list(range(len(good), len(good) + len(bad)))


def test_deeply_nested_field_beyond_the_schema_does_not_end_the_process() -> None:
    value = b'{"z":' + b'{"y":' * 30_000 + b"1" + b"}" * 30_000 + b',"a":1}'
    decoded = decode([value, b'{"a":2}'], value="json", schema="a int")
    assert decoded.rows.column("a").to_pylist() == [1, 2]


@pytest.mark.parametrize("chosen", [{"value": "string"}, {"value": "json", "nested": True}])
def test_bad_text_in_any_group_of_rows_costs_only_its_own_row(chosen: dict[str, Any]) -> None:
    values: list[bytes | None] = [b'"%d"' % row for row in range(1000)]
    for row in (0, 255, 256, 700, 999):
        values[row] = b"\xff"
    values[3] = None
    found = decode(values, **chosen)
    assert dead(found) == [(row, "value", "utf8") for row in (0, 255, 256, 700, 999)]
    expected = [None if value is None else value.decode() for value in values if value != b"\xff"]
    assert found.rows.column("value").to_pylist() == expected
