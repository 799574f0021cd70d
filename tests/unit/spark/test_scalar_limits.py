"""Avro and Protobuf scalars at the limits of their types are those of fastavro and protobuf, or dead letters.

A datetime of Python ends with the year 9999, and columns do not: there the oracle is the number that is encoded.
"""

import io
import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import fastavro
import pyarrow
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from kafkalite_sdk.registry import Schema
from pyspark_kafkalite.decoding.avro import Avro
from pyspark_kafkalite.decoding.errors import SchemaMisfitError

from tests.unit.spark.decoded import dead, decode

INTS = [0, 1, -1, 127, -128, 2**31 - 1, -(2**31)]
LONGS = [*INTS, 2**31, 2**53 + 1, 253402300799_999, 253402300800_000, 2**62, -(2**62), 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, 1e-45, 3.4028234663852886e38, -3.4028234663852886e38, math.inf, -math.inf]
DOUBLES = [*FLOATS, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308]
TEXTS = ["", "\x00", "\u20ac", "\U0010ffff", "x" * 10_000]
BYTES = [b"", b"\x00", bytes(range(256)), b"\xff" * 10_000]
LOGICAL = {
    "date": ("int", pyarrow.date32(), 1),
    "timestamp-millis": ("long", pyarrow.timestamp("us", "UTC"), 1000),
    "timestamp-micros": ("long", pyarrow.timestamp("us", "UTC"), 1),
    "local-timestamp-millis": ("long", pyarrow.timestamp("us"), 1000),
    "local-timestamp-micros": ("long", pyarrow.timestamp("us"), 1),
}
"""The type below, the type of the column, and its units for each one of the value."""


def avro_record(field_type: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "x", "type": field_type}]}


def avro_bytes(field_type: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(avro_record(field_type)), {"x": value})
    return stream.getvalue()


def avro_column(field_type: Any, data: list[bytes]) -> tuple[pyarrow.Array, list[int]]:
    """The column of decoded values, and the rows that are dead letters."""
    found = decode(data, value="avro", schema=json.dumps(avro_record(field_type)))
    return found.rows.column("x"), [row for row, _, _ in dead(found)]


def same(one: Any, other: Any) -> bool:
    """Whether values are equal; zeros and NaN by their bits, decimals and integers by their number."""
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return (type(one) is type(other) or isinstance(one, Decimal)) and bool(one == other)


@pytest.mark.parametrize(
    ("field_type", "values"),
    [
        ("boolean", [True, False]),
        ("int", INTS),
        ("long", LONGS),
        ("float", [*FLOATS, math.nan]),
        ("double", [*DOUBLES, math.nan]),
        ("bytes", BYTES),
        ("string", TEXTS),
        ({"type": "fixed", "name": "f", "size": 4}, [b"\x00" * 4, b"\xff" * 4]),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["A", "B"]),
        (["null", "long"], [None, *LONGS]),
        (["int", "long"], LONGS),
    ],
)
def test_avro_scalars_are_those_of_fastavro(field_type: Any, values: list[Any]) -> None:
    parsed = fastavro.parse_schema(avro_record(field_type))
    data = [avro_bytes(field_type, each) for each in values]
    expected = [fastavro.schemaless_reader(io.BytesIO(each), parsed, None) for each in data]
    column, bad = avro_column(field_type, data)
    assert bad == []
    assert all(same(each, value["x"]) for each, value in zip(column.to_pylist(), expected, strict=True))


@pytest.mark.parametrize("form", ["bytes", "fixed"])
@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (5, 2), (18, 18), (38, 0), (38, 37)])
def test_avro_decimals_are_those_of_fastavro(form: str, precision: int, scale: int) -> None:
    below: dict[str, Any] = {"type": "bytes"} if form == "bytes" else {"type": "fixed", "name": "f", "size": 17}
    field_type = {**below, "logicalType": "decimal", "precision": precision, "scale": scale}
    parsed = fastavro.parse_schema(avro_record(field_type))
    limit = 10**precision - 1
    with localcontext(prec=60):
        values = [Decimal(each).scaleb(-scale) for each in (0, 1, -1, limit, -limit)]
    data = [avro_bytes(field_type, each) for each in values]
    column, bad = avro_column(field_type, data)
    expected = [fastavro.schemaless_reader(io.BytesIO(each), parsed, None) for each in data]
    assert bad == [] and column.to_pylist() == [each["x"] for each in expected] == values


def test_avro_decimals_beyond_their_precision_are_dead_letters() -> None:
    field_type = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
    column, bad = avro_column(
        field_type, [avro_bytes("bytes", each) for each in (b"\x03\xe7", b"\x03\xe8", b"\x7f" * 40)]
    )
    assert bad == [1, 2] and column.to_pylist() == [Decimal("99.9")]


@pytest.mark.parametrize("logical", LOGICAL)
def test_avro_times_are_the_numbers_that_are_encoded(logical: str) -> None:
    below, data_type, factor = LOGICAL[logical]
    numbers = INTS if below == "int" else LONGS
    column, bad = avro_column({"type": below, "logicalType": logical}, [avro_bytes(below, each) for each in numbers])
    fit = [each * factor for each in numbers if -(2**63) <= each * factor < 2**63]
    assert column.cast(pyarrow.int32() if below == "int" else pyarrow.int64()).to_pylist() == fit
    assert column.type == data_type
    assert bad == [row for row, each in enumerate(numbers) if not -(2**63) <= each * factor < 2**63]


@pytest.mark.parametrize("logical", LOGICAL)
def test_avro_times_are_those_of_fastavro_where_it_has_them(logical: str) -> None:
    below, _, _ = LOGICAL[logical]
    field_type = {"type": below, "logicalType": logical}
    first, last = (date.min, date.max) if below == "int" else (datetime.min, datetime.max - timedelta(microseconds=999))
    if logical.startswith("timestamp"):
        first, last = (each.replace(tzinfo=UTC) for each in (first, last))  # type: ignore[call-arg]
    data = [avro_bytes(field_type, each) for each in (first, last)]
    parsed = fastavro.parse_schema(avro_record(field_type))
    expected = [fastavro.schemaless_reader(io.BytesIO(each), parsed, None)["x"] for each in data]
    column, bad = avro_column(field_type, data)
    assert bad == [] and column.to_pylist() == expected == [first, last]


def test_avro_times_of_another_unit_are_converted() -> None:
    """The writer counts milliseconds, the schema that is declared microseconds."""
    units = ({"type": "long", "logicalType": f"timestamp-{each}"} for each in ("millis", "micros"))
    writer, reader = (json.dumps(avro_record(each)) for each in units)
    value = Avro(reader).reader(Schema(writer, "AVRO", {}), ()).read(avro_bytes("long", 5))["x"]
    assert pyarrow.array([value], pyarrow.timestamp("us", "UTC")).cast("int64").to_pylist() == [5000]


def avro_time(logical: Any, below: str = "long") -> dict[str, Any]:
    return {"type": below, "logicalType": logical}


def avro_reader(writer: Any, declared: Any) -> Any:
    """The reader of a writer's values with a declared schema, as a job makes it."""
    return Avro(json.dumps(declared)).reader(Schema(json.dumps(writer), "AVRO", {}), ())


NESTED: dict[str, Callable[[Any], Any]] = {
    "field": lambda each: each,
    "nullable": lambda each: ["null", each],
    "array": lambda each: {"type": "array", "items": each},
    "map": lambda each: {"type": "map", "values": ["null", each]},
    "record": lambda each: {"type": "record", "name": "below", "fields": [{"name": "y", "type": each}]},
}


@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize(
    ("writer", "declared"),
    [
        (avro_time("timestamp-millis"), "long"),
        (avro_time("timestamp-millis"), "double"),
        (avro_time("timestamp-micros"), ["null", "long"]),
        (avro_time("local-timestamp-millis"), "long"),
        (avro_time("date", "int"), "int"),
        (avro_time("date", "int"), avro_time("timestamp-millis")),
        (avro_time("date", "int"), avro_time("timestamp-micros")),
        ("int", avro_time("timestamp-millis")),
        ("long", avro_time("timestamp-millis")),
        (["null", "long"], avro_time("local-timestamp-micros")),
        ("int", avro_time("date", "int")),
        (avro_time("unknown"), avro_time("timestamp-micros")),
    ],
)
def test_avro_times_are_not_read_as_another_kind_of_number(writer: Any, declared: Any, nested: str) -> None:
    if nested in ("nullable", "map") and isinstance(writer, list):
        writer = writer[1]
    if nested in ("nullable", "map") and isinstance(declared, list):
        declared = declared[1]
    with pytest.raises(SchemaMisfitError, match="of the writer is a"):
        avro_reader(avro_record(NESTED[nested](writer)), avro_record(NESTED[nested](declared)))


def test_avro_times_of_another_kind_are_found_behind_aliases_and_names() -> None:
    renamed = {**avro_record("long"), "fields": [{"name": "z", "aliases": ["x"], "type": "long"}]}
    with pytest.raises(SchemaMisfitError, match="timestamp of the writer is a number"):
        avro_reader(avro_record(avro_time("timestamp-millis")), renamed)
    below = avro_record(avro_time("timestamp-millis")) | {"name": "s"}
    twice = avro_record("s") | {"fields": [{"name": "w", "type": below}, {"name": "x", "type": "s"}]}
    with pytest.raises(SchemaMisfitError, match="timestamp of the writer is a number"):
        avro_reader(twice, avro_record(avro_record("long") | {"name": "s"}))


@pytest.mark.parametrize("logical", [None, [], ["date"], {}, 1, "unknown"])
def test_unknown_logical_types_of_avro_are_ignored(logical: Any) -> None:
    column, bad = avro_column(avro_time(logical), [avro_bytes("long", 1000)])
    assert bad == [] and column.type == pyarrow.int64() and column.to_pylist() == [1000]
    assert avro_reader(avro_record(avro_time(logical)), avro_record("long")).read(avro_bytes("long", 5)) == {"x": 5}


FIELD = descriptor_pb2.FieldDescriptorProto
UNSIGNED, LONGS_UNSIGNED = [0, 1, 2**31, 2**32 - 1], [0, 1, 2**32, 2**63 - 1]
PROTOBUF = {
    "INT32": INTS, "SINT32": INTS, "SFIXED32": INTS, "UINT32": UNSIGNED, "FIXED32": UNSIGNED,
    "INT64": LONGS, "SINT64": LONGS, "SFIXED64": LONGS, "UINT64": LONGS_UNSIGNED, "FIXED64": LONGS_UNSIGNED,
    "FLOAT": [*FLOATS, math.nan], "DOUBLE": [*DOUBLES, math.nan], "BOOL": [True, False], "STRING": TEXTS,
    "BYTES": BYTES,
}  # fmt: skip


def protobuf_file(field_type: str, syntax: str = "proto2") -> descriptor_pb2.FileDescriptorSet:
    """A message with one optional field `x`."""
    field = FIELD(name="x", number=1, type=getattr(FIELD, f"TYPE_{field_type}"), label=FIELD.LABEL_OPTIONAL)
    message = descriptor_pb2.DescriptorProto(name="M", field=[field])
    return descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax=syntax, message_type=[message])]
    )


def protobuf_class(files: descriptor_pb2.FileDescriptorSet) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(files.file[0])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))


@pytest.mark.parametrize("field_type", PROTOBUF)
def test_protobuf_scalars_are_those_of_protobuf(field_type: str) -> None:
    files = protobuf_file(field_type)
    message = protobuf_class(files)
    data = [message(x=each).SerializeToString() for each in PROTOBUF[field_type]]
    found = decode(data, value="protobuf", schema=files.SerializeToString(), message="p.M")
    assert dead(found) == []
    pairs = zip(found.rows.column("x").to_pylist(), data, strict=True)
    assert all(same(value, message.FromString(each).x) for value, each in pairs)


@pytest.mark.parametrize("field_type", ["UINT64", "FIXED64"])
def test_unsigned_protobuf_numbers_beyond_63_bits_are_the_same_or_dead_letters(field_type: str) -> None:
    files = protobuf_file(field_type)
    message = protobuf_class(files)
    data = [message(x=each).SerializeToString() for each in (2**63, 2**64 - 1)]
    found = decode(data, value="protobuf", schema=files.SerializeToString(), message="p.M")
    values = dict(zip(found.rows.column("_offset").to_pylist(), found.rows.column("x").to_pylist(), strict=True))
    bad = {row for row, _, _ in dead(found)}
    assert bad | values.keys() == {0, 1} and not bad & values.keys()
    assert all(int(value) == message.FromString(data[row]).x for row, value in values.items())
