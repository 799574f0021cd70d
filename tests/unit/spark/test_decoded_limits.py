"""Decoded values at the limits of their types are those of Python's json and decimal, or dead letters; never others.

Memory of the decoders is bounded by their input.
"""

import json
import math
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

import numpy
import pyarrow
import pytest
from pyspark_kafkalite.decoding.drift import NAMES_MAX, Drift
from pyspark_kafkalite.decoding.validation import invalid_rows
from pyspark_kafkalite.errors import OptionError

from tests.unit.spark.decoded import dead, decode, decoder, records

INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
DECIMALS = {"decimal(1,0)": (1, 0), "decimal(5,2)": (5, 2), "decimal(18,2)": (18, 2), "decimal(38,37)": (38, 37)}
NUMBERS = [
    "0", "-0", "1", "-1", "127", "128", "-128", "-129", "32767", "32768", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "9", "10", "9.9", "99999", "90000", "-99999", "999.99", "-999.99", "1000", "999.999", "1234.5", "0.001", "1e2",
    "1e3", "9999999999999999.99", "999999999999999999", "10000000000000000", "9.9999999999999999999999999999999999999",
]  # fmt: skip


BAD = object()


def _decoded(data_type: str, texts: list[str]) -> list[Any]:
    """The value of a column for each text, or BAD."""
    found = decode([b'{"x":%s}' % text.encode() for text in texts], value="json", schema=f"x {data_type}")
    values = dict(zip(found.rows.column("_offset").to_pylist(), found.rows.column("x").to_pylist(), strict=True))
    assert set(values).isdisjoint(row for row, _, _ in dead(found)), "a row is in the table and a dead letter"
    return [values.get(row, BAD) for row in range(len(texts))]


@pytest.mark.parametrize("data_type", INTEGERS)
def test_integers_are_those_of_python_or_bad(data_type: str) -> None:
    limit = 1 << INTEGERS[data_type]
    values = [json.loads(text) for text in NUMBERS]
    expected = [value if isinstance(value, int) and -limit <= value < limit else BAD for value in values]
    assert _decoded(data_type, NUMBERS) == expected


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("data_type", DECIMALS)
def test_decimals_are_those_of_python_or_bad(data_type: str, quote: str) -> None:
    precision, scale = DECIMALS[data_type]
    expected: list[Any] = []
    with localcontext(prec=200):
        for text in NUMBERS:
            scaled = Decimal(text).scaleb(scale)
            expected.append(Decimal(text) if scaled == int(scaled) and abs(int(scaled)) < 10**precision else BAD)
    assert _decoded(data_type, [quote + text + quote for text in NUMBERS]) == expected


NESTINGS = {
    "array<{}>": ("[{},null]", lambda value: [value, None]),
    "struct<y {}>": ('{{"y":{}}}', lambda value: {"y": value}),
}


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("data_type", [*INTEGERS, *DECIMALS])
def test_nested_numbers_are_those_that_are_not_nested(data_type: str, nesting: str) -> None:
    form, wrapped = NESTINGS[nesting]
    expected = [each if each is BAD else wrapped(each) for each in _decoded(data_type, NUMBERS)]
    assert _decoded(nesting.format(data_type), [form.format(text) for text in NUMBERS]) == expected


TEXTS = ["true", "false", "null", "0", "1", '""', '"true"', '"a\\u0000\\ud83d\\ude00"', '"\\\\"', "[]", "{}", "[true]"]


@pytest.mark.parametrize(("data_type", "python_type"), [("boolean", bool), ("string", str)])
def test_booleans_and_strings_are_those_of_python_or_bad(data_type: str, python_type: type) -> None:
    values = [json.loads(text) for text in TEXTS]
    expected = [each if each is None or isinstance(each, python_type) else BAD for each in values]
    assert _decoded(data_type, TEXTS) == expected


@pytest.mark.parametrize("data_type", ["double", "float"])
def test_doubles_and_floats_are_those_of_python_or_bad(data_type: str) -> None:
    texts = [*NUMBERS, "1e308", "-1e-400", "5e-324", "1e38", "0.1", "123456789.123456789", "4.9e-325", "1e309"]
    expected: list[Any] = []
    for text in texts:
        value = float(text)
        if data_type == "float":
            value = float(numpy.float32(value)) if abs(value) < 3.4028235677973366e38 else math.inf
        expected.append(value if math.isfinite(value) else BAD)
    assert _decoded(data_type, texts) == expected


@pytest.mark.parametrize(
    ("data_type", "text", "expected"),
    [
        ("double", "1.7976931348623157e308", 1.7976931348623157e308),
        ("double", "1e400", BAD),
        ("double", "-1e400", BAD),
        ("double", "NaN", BAD),
        ("double", "-Infinity", BAD),
        ("float", "3.4028234663852886e38", 3.4028234663852886e38),
        ("float", "1e39", BAD),
        ("array<float>", "[1,1e39]", BAD),
        ("struct<y array<double>>", '{"y":[NaN]}', BAD),
        ("array<decimal(5,2)>", "[1,99999]", BAD),
        ("array<struct<d decimal(5,2)>>", '[{"d":1},{"d":99999}]', BAD),
        ("timestamp", '"9999-12-31T23:59:59.999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        ("timestamp", '"2020-01-01T00:00:00+02:00"', datetime(2019, 12, 31, 22, tzinfo=UTC)),
        ("timestamp", '"2020-01-01T00:00:00"', datetime(2020, 1, 1, tzinfo=UTC)),
        ("timestamp", '"2020-01-01T00:00:00.1234567Z"', BAD),
        ("timestamp_ntz", '"2020-01-01T00:00:00.123456"', datetime(2020, 1, 1, 0, 0, 0, 123456)),
        ("timestamp_ntz", '"2020-01-01T00:00:00+02:00"', BAD),
        ("timestamp_ntz", '"2020-01-01T00:00:00Z"', BAD),
        ("date", '"0001-01-01"', date(1, 1, 1)),
        ("date", '"10000-01-01"', BAD),
    ],
)
def test_other_types_at_their_limits(data_type: str, text: str, expected: Any) -> None:
    assert _decoded(data_type, [text]) == [expected]


def test_value_that_exceeds_its_type_costs_only_its_own_row() -> None:
    values = [b'{"a":%d,"d":%s}' % (row, b"99999" if row in (3, 700, 999) else b"1.5") for row in range(1000)]
    found = decode(values, value="json", schema="a bigint, d decimal(5,2)")
    assert found.rows.column("a").to_pylist() == [row for row in range(1000) if row not in (3, 700, 999)]
    assert dead(found) == [(row, "value", "type") for row in (3, 700, 999)]
    assert found.dead is not None
    assert set(found.dead.column("detail").to_pylist()) == {
        "field d: Decimal value 9999900 does not fit in precision of decimal128(5, 2)"
    }


def test_infinite_number_names_its_field() -> None:
    found = decode([b'{"s":{"l":[1,1e39]}}'], value="json", schema="s struct<l array<float>>")
    assert found.dead is not None
    assert found.dead.column("detail").to_pylist() == ["field s.l[]: not a finite number of type float"]


def test_rows_of_an_array_that_another_library_made_are_validated() -> None:
    wide = pyarrow.array([Decimal(row) for row in (1, 100, 2)], pyarrow.decimal128(3, 0))
    narrow = pyarrow.Array.from_buffers(pyarrow.decimal128(2, 0), 3, wide.buffers())
    below = pyarrow.ListArray.from_arrays(pyarrow.array([0, 1, 3], pyarrow.int32()), narrow)
    assert [row for row, _ in invalid_rows(narrow, False)] == [1]
    assert [row for row, _ in invalid_rows(pyarrow.StructArray.from_arrays([below], ["l"]), False)] == [1]
    assert list(invalid_rows(pyarrow.array([math.nan]), False)) == []


def test_invalid_value_within_a_map_names_its_field() -> None:
    wide = pyarrow.array([Decimal(row) for row in (1, 100, 2)], pyarrow.decimal128(3, 0))
    narrow = pyarrow.Array.from_buffers(pyarrow.decimal128(2, 0), 3, wide.buffers())
    keys = pyarrow.array(["a", "b", "c"])
    offsets = pyarrow.array([0, 1, 3], pyarrow.int32())
    maps = pyarrow.StructArray.from_arrays([pyarrow.MapArray.from_arrays(offsets, keys, narrow)], ["m"])
    assert list(invalid_rows(maps, False)) == [
        (1, "field m[value]: Decimal value 100 does not fit in precision of decimal128(2, 0)")
    ]
    floats = pyarrow.array([[("a", 1.0)], None, [("b", 2.0), ("c", math.inf)]], pyarrow.map_("string", "double"))
    assert list(invalid_rows(pyarrow.StructArray.from_arrays([floats], ["m"]), True)) == [
        (2, "field m[value]: not a finite number of type double")
    ]
    assert list(invalid_rows(floats.slice(0, 2), True)) == []


def test_names_of_added_fields_are_bounded() -> None:
    counting = decoder(value="json", schema="a bigint")
    counting.decode(records([b'{"a":1,"x%d":1}' % number for number in range(NAMES_MAX + 30)]))
    counting.decode(records([json.dumps({"y" * 10_000: 1}).encode()]))
    assert len(counting.drift.added) == NAMES_MAX and counting.drift.others == 31
    total = Drift()
    total.add(Drift.from_json(counting.drift.to_json()))
    total.add(counting.drift)
    assert len(total.added) == NAMES_MAX and total.others == 62


HOSTILE = {
    "a name for each row": "[json.dumps({'id': n, 'prices': {f'sku{n}': 1.5}}) for n in range(10_000)]",
    "a name for each item": "[json.dumps({'id': 1, 'l': [{f'a{n}': 1} for n in range(20_000)]})]",
    "empty objects": "[json.dumps({'id': 1, 'l': [{}] * 200_000})]",
    "long names": "[json.dumps({'id': n, 'x' * 10_000 + str(n): 1}) for n in range(400)]",
    "deep objects": "['{\"id\":1,\"z\":' + '{\"y\":' * 400 + '1' + '}' * 401 for n in range(500)]",
    "nested lists": "[json.dumps({'id': n, 'l': [[n]] * 1000}) for n in range(200)]",
}
PROGRAM = """
import json, resource
from tests.unit.spark.decoded import decode
values = [each.encode() for each in {values}]
decode([b'{{"id":1}}'], value="json", schema="id bigint")
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), resource.RLIM_INFINITY))
assert decode(values, value="json", schema="id bigint").rows.num_rows == len(values)
"""


LISTS = """
import io, json, resource
import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.unit.spark.decoded import dead, decode

ITEM = {{"type": "record", "name": "i", "fields": [{{"name": "b", "type": "boolean"}}]}}
FIELDS = [{{"name": "l", "type": {{"type": "array", "items": ITEM}}}}]
SCHEMA = json.dumps({{"type": "record", "name": "r", "fields": FIELDS}})
FILES = descriptor_pb2.FileDescriptorSet()
FILE = FILES.file.add(name="m.proto", package="p", syntax="proto3")
M = FILE.message_type.add(name="M")
M.nested_type.add(name="E").field.add(name="x", number=1, type=5, label=1)
M.field.add(name="l", number=1, type=11, label=3, type_name=".p.M.E")
OPTIONS = {{
    "avro": dict(value="avro", schema=SCHEMA),
    "protobuf": dict(value="protobuf", schema=FILES.SerializeToString(), message="p.M"),
}}


def number(value):
    value, found = value * 2 if value >= 0 else -2 * value - 1, b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


options = OPTIONS["{form}"]
values, bad = {values}
decode([b"\\x00" if "{form}" == "avro" else b""], **options)
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))
found = decode(values, **options)
assert len(dead(found)) == bad and found.rows.num_rows == len(values) - bad, dead(found)
"""
HOSTILE_LISTS = {
    "avro, small records": ("avro", "[number(500_000) + b'\\x00' * 500_000 + b'\\x00'] * 12, 0"),
    "avro, a block claims more items than it has": ("avro", "[number(1 << 50) + b'\\x00' * 1000] * 10, 10"),
    "avro, a block claims more bytes than it has": ("avro", "[number(-(1 << 50)) + number(1 << 50)] * 10, 10"),
    "protobuf, empty messages": ("protobuf", "[b'\\x0a\\x00' * 250_000] * 12, 0"),
    "protobuf, a length beyond the value": ("protobuf", "[b'\\x0a\\xff\\xff\\xff\\xff\\x07'] * 10, 10"),
    "protobuf, deep groups of an unknown field": ("protobuf", "[b'\\x1b' * 100_000] * 10, 10"),
}


@pytest.mark.parametrize("shape", HOSTILE_LISTS)
def test_memory_of_hostile_lists_is_bounded(shape: str) -> None:
    form, values = HOSTILE_LISTS[shape]
    program = LISTS.format(form=form, values=values)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


EMPTY = {"type": "record", "name": "e", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize("items", ["null", EMPTY, {"type": "fixed", "name": "f", "size": 0}])
def test_items_without_bytes_are_rejected_since_their_number_is_unbounded(items: Any) -> None:
    fields = [{"name": "l", "type": {"type": "array", "items": items}}]
    with pytest.raises(OptionError, match="have no bytes, so a value of a few bytes may have any number of them"):
        decoder(value="avro", schema=json.dumps({"type": "record", "name": "r", "fields": fields}))


@pytest.mark.parametrize("shape", HOSTILE)
def test_memory_of_hostile_values_is_bounded(shape: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(values=HOSTILE[shape])], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
