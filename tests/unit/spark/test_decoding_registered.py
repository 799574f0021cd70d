"""Avro and Protobuf are decoded with the schemas of their writers; the schema of a table grows with them."""

import base64
import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from kafkalite_sdk.registry import Schema, wire
from kafkalite_sdk.registry.client import SchemaNotFoundError
from pyspark_kafkalite.decoding import registry
from pyspark_kafkalite.decoding.errors import SchemaMisfitError
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.tables.ddl import ddl_text

from kafkalite.errors import SchemaError
from tests.unit.spark.decoded import dead, decode, decoder, records

URL = "http://registry"
FIRST = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
SECOND = [*FIRST, {"name": "tags", "type": {"type": "array", "items": "string"}}]
CHANGED = [{"name": "id", "type": "string"}]


class FakeRegistry:
    """The schemas of a registry, by id from 1 on; `down` = it does not respond."""

    def __init__(self) -> None:
        self.schemas: list[Schema] = []
        self.down = False

    def get(self, key: wire.Key) -> Schema:
        """As `Schemas.get`."""
        if self.down:
            raise SchemaError("no response")
        if key not in range(1, len(self.schemas) + 1):
            raise SchemaNotFoundError(f"schema {key} does not exist")
        return self.schemas[int(key) - 1]


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    fake = FakeRegistry()
    monkeypatch.setattr(registry, "schemas_of", lambda url, auth: fake)
    return fake


def record(fields: list[Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


def avro(schema: str, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), value)
    return stream.getvalue()


def framed(number: int, schema: str, value: Any) -> bytes:
    return wire.prefix(number) + avro(schema, value)


def add_avro(schemas: FakeRegistry, *fields: list[Any]) -> list[Callable[[Any], bytes]]:
    """Register schemas; returns a function for each, which encodes a value."""
    schemas.schemas += [Schema(record(each), "AVRO", {}) for each in fields]
    return [
        lambda value, number=number, each=each: framed(number, record(each), value)
        for number, each in enumerate(fields, 1)
    ]


def test_schema_that_grows_adds_columns(schemas: FakeRegistry) -> None:
    first, second = add_avro(schemas, FIRST, SECOND)
    growing = decoder(value="avro", registry_url=URL)
    assert growing.schema() is None
    rows = growing.decode(records([first({"id": 1, "name": "a"}), None])).rows
    assert rows.schema.names[-3:] == ["_tombstone", "id", "name"]
    assert rows.select([6, 7, 8]).to_pylist() == [
        {"_tombstone": False, "id": 1, "name": "a"},
        {"_tombstone": True, "id": None, "name": None},
    ]
    rows = growing.decode(records([second({"id": 2, "tags": ["x"]}), first({"id": 3})])).rows
    assert rows.select(["id", "name", "tags"]).to_pylist() == [
        {"id": 2, "name": None, "tags": ["x"]},
        {"id": 3, "name": None, "tags": None},
    ]
    known = ddl_text(rows.schema)
    again = decode([first({"id": 4})], known, value="avro", registry_url=URL).rows
    assert again.schema == rows.schema


def test_schema_that_does_not_fit_stops_or_is_a_dead_letter(schemas: FakeRegistry) -> None:
    first, changed = add_avro(schemas, FIRST, CHANGED)
    values = [first({"id": 1}), changed({"id": "x"}), first({"id": 2})]
    with pytest.raises(SchemaMisfitError, match="schema 2 of the registry does not fit the table: column id is bigint"):
        decode(values, value="avro", registry_url=URL)
    decoded = decode(values, value="avro", registry_url=URL, misfits="dead_letters")
    assert decoded.rows.column("id").to_pylist() == [1, 2] and dead(decoded) == [(1, "value", "schema")]


def test_bad_avro_costs_only_its_own_row(schemas: FakeRegistry) -> None:
    (first,) = add_avro(schemas, FIRST)
    good = first({"id": 1})
    bad = [b"", b"x", b"\x00\x00\x00\x00\x09abc", good[:-1], good + b"\x00", wire.prefix(1) + b"\xff" * 11]
    decoded = decode([good, *bad, good], value="avro", registry_url=URL)
    assert decoded.rows.column("id").to_pylist() == [1, 1]
    assert [cause for _, _, cause in dead(decoded)] == ["framing", "framing", "schema", "avro", "avro", "avro"]
    schemas.down = True
    with pytest.raises(SchemaError, match="no response"):
        decode([good], value="avro", registry_url=URL)


AVRO_FIELDS: list[dict[str, Any]] = [
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
    {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}},
    {"name": "inners", "type": {"type": "array", "items": "Inner"}},
    {"name": "number", "type": ["int", "long"]},
]
AVRO_VALUE = {
    "day": datetime.date(2026, 1, 2),
    "at": datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC),
    "local": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    "clock": 7,
    "price": Decimal("12.34"),
    "uuid": "b5e2",
    "kind": "B",
    "hash": b"ab",
    "counts": {"a": 1},
    "inner": {"x": 0.5},
    "inners": [{"x": 1.5}],
    "number": 1 << 40,
}


def test_types_of_avro_become_those_of_tables() -> None:
    plain = [each if each["name"] not in ("clock", "uuid") else {**each, "type": _base(each)} for each in AVRO_FIELDS]
    data = avro(record(plain), AVRO_VALUE)
    decoded = decode([data], value="avro", schema=record(AVRO_FIELDS), nested=True)
    (row,) = decoded.rows.column("value").to_pylist()
    assert row == {**AVRO_VALUE, "counts": [("a", 1)]}
    with pytest.raises(OptionError, match=r"option schema: a union of Avro has the branches int, string"):
        decoder(value="avro", schema=record([{"name": "x", "type": ["int", "string"]}]))
    with pytest.raises(OptionError, match="record Tree of Avro contains itself"):
        decoder(value="avro", schema=record([{"name": "below", "type": ["null", "Tree"]}], "Tree"))


def _base(field: dict[str, Any]) -> Any:
    return field["type"]["type"]


def test_schema_of_the_reader_decides(schemas: FakeRegistry) -> None:
    first, changed = add_avro(schemas, FIRST, CHANGED)
    reader = record([{"name": "name", "type": ["null", "string"]}, {"name": "more", "type": "int", "default": 7}])
    decoded = decode(
        [first({"id": 1, "name": "a"}), changed({"id": "x"})], value="avro", schema=reader, registry_url=URL
    )
    assert decoded.rows.select(["name", "more"]).to_pylist() == [{"name": "a", "more": 7}]
    assert dead(decoded) == [(1, "value", "avro")]
    with pytest.raises(SchemaMisfitError, match="values are no records but string; choose nested=True"):
        decode([avro('"string"', "x")], value="avro", schema='"string"')
    text = decode([avro('"string"', "x")], value="avro", schema='"string"', nested=True)
    assert text.rows.column("value").to_pylist() == ["x"]


def orders(*more: tuple[str, int, int]) -> descriptor_pb2.FileDescriptorProto:
    """The file orders.proto with the messages `shop.Order` and, within it, `Item`."""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.dependency.append("google/protobuf/wrappers.proto")
    order = file.message_type.add(name="Order")
    fields = descriptor_pb2.FieldDescriptorProto
    item = order.nested_type.add(name="Item")
    item.field.add(name="count", number=1, type=fields.TYPE_UINT64, label=fields.LABEL_OPTIONAL)
    color = order.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    for name, number, form in (("id", 1, fields.TYPE_INT64), ("hash", 2, fields.TYPE_BYTES), *more):
        order.field.add(name=name, number=number, type=form, label=fields.LABEL_OPTIONAL)
    named = (
        ("color", 3, fields.TYPE_ENUM, ".shop.Order.Color", fields.LABEL_OPTIONAL),
        ("items", 4, fields.TYPE_MESSAGE, ".shop.Order.Item", fields.LABEL_REPEATED),
        ("at", 5, fields.TYPE_MESSAGE, ".google.protobuf.Timestamp", fields.LABEL_OPTIONAL),
        ("note", 6, fields.TYPE_MESSAGE, ".google.protobuf.StringValue", fields.LABEL_OPTIONAL),
    )
    for name, number, form, of, label in named:
        order.field.add(name=name, number=number, type=form, type_name=of, label=label)
    return file


def message_class(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


ROW = {"id": 7, "hash": b"h", "color": "BLUE", "items": [{"count": Decimal(1 << 63)}], "note": "n"}


def order_of(file: descriptor_pb2.FileDescriptorProto, **more: Any) -> bytes:
    create = message_class(file, "shop.Order")
    order = create(id=7, hash=b"h", color=1, items=[{"count": 1 << 63}], **more)
    order.at.seconds, order.at.nanos, order.note.value = 1_700_000_000, 5_000, "n"
    data: bytes = order.SerializeToString()
    return data


def test_message_of_a_descriptor_file(schemas: FakeRegistry) -> None:
    file = orders()
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    chosen: dict[str, Any] = {"value": "protobuf", "schema": descriptors, "message": "shop.Order"}
    decoded = decode([order_of(file), b"", b"\xff\xff"], **chosen)
    first, empty = decoded.rows.select(list(ROW)).to_pylist()
    assert first == ROW
    assert empty == {"id": 0, "hash": b"", "color": "RED", "items": [], "note": None}
    assert decoded.rows.column("at")[0].as_py() == datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC).replace(
        microsecond=5
    )
    assert dead(decoded) == [(2, "value", "protobuf")]
    reference = wire.prefix(1, [0])
    with_reference = decode([reference + order_of(file)], **chosen, registry_url=URL)
    assert with_reference.rows.column("id").to_pylist() == [7]
    with pytest.raises(OptionError, match=r"option schema: message shop\.Missing"):
        decoder(**{**chosen, "message": "shop.Missing"})


def test_message_of_a_registry_grows(schemas: FakeRegistry) -> None:
    field = descriptor_pb2.FieldDescriptorProto
    files = [orders(), orders(("more", 9, field.TYPE_BOOL)), orders(("more", 9, field.TYPE_STRING))]
    texts = [base64.b64encode(each.SerializeToString()).decode() for each in files]
    schemas.schemas += [Schema(each, "PROTOBUF", {}) for each in (*texts, 'syntax = "proto3";')]
    data = [wire.prefix(number, [0]) + order_of(file) for number, file in enumerate(files, 1)]
    item = wire.prefix(1, [0, 0]) + b"\x08\x05"
    decoded = decode([data[0], data[1]], value="protobuf", registry_url=URL)
    assert decoded.rows.select(["id", "more"]).to_pylist() == [{"id": 7, "more": None}, {"id": 7, "more": False}]
    nested = decode([item], value="protobuf", registry_url=URL)
    assert nested.rows.column("count").to_pylist() == [Decimal(5)]
    misfits = [data[1], data[2], wire.prefix(4, [0]), wire.prefix(1, [5]), item[:6]]
    decoded = decode(misfits, value="protobuf", registry_url=URL, misfits="dead_letters")
    assert [cause for _, _, cause in dead(decoded)] == ["schema", "schema", "schema", "framing"]
