"""Schema registries: we read what confluent-kafka's serializers write, and they read what we write; bad registries."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry import avro as their_avro
from confluent_kafka.schema_registry import json_schema as their_json
from confluent_kafka.schema_registry import protobuf as their_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.api.http_pb2 import HttpRule
from google.rpc.error_details_pb2 import QuotaFailure
from kafkalite_sdk import Consumer, Producer, TopicPartition
from kafkalite_sdk.consumer.poison import DeserializerNotReady
from kafkalite_sdk.registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryAccessError,
    SchemaRegistry,
    client,
    wire,
)
from kafkalite_sdk.registry.avro_schemas import parse
from kafkalite_sdk.registry.client import Registered

from kafkalite.errors import ClientUseError, SchemaError
from tests.kit.brokers import broker_under_test
from tests.kit.registry_server import Registry, schema_registry

FIELDS = [{"name": "number", "type": "int"}, {"name": "customer", "type": "string"}]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"number": {"type": "integer"}}})
ORDER = {"number": 7, "customer": "customer-1"}
MESSAGES = [HttpRule(selector="orders"), QuotaFailure.Violation(subject="customer-1")]


async def deserialized(deserializer: Any, headers: list[Any], data: bytes) -> Any:
    """What a consumer does: wait while the deserializer is not ready."""
    while True:
        try:
            return deserializer.deserialize("orders", tuple(headers), data)
        except DeserializerNotReady as error:
            await asyncio.wait([error.future])


async def both_directions(
    header: bool, ours: tuple[Any, Any], theirs: tuple[Callable[..., Any], Callable[..., Any]], value: Any
) -> None:
    """Write with each and read with each."""
    headers: list[Any] = []
    context = SerializationContext("orders", MessageField.VALUE, headers)
    written = await asyncio.to_thread(theirs[0], value, context)
    assert bool(headers) == header
    assert await deserialized(ours[1], headers, written) == value
    await ours[0].prepare("orders")
    our_headers: list[Any] = []
    data = ours[0].serialize("orders", our_headers, value)
    assert [name for name, _ in our_headers] == [name for name, _ in headers]
    context = SerializationContext("orders", MessageField.VALUE, our_headers)
    assert await asyncio.to_thread(theirs[1], data, context) == value


@pytest.mark.parametrize("header", [False, True], ids=["prefix", "header"])
@pytest.mark.parametrize("kind", ["avro", "json", "protobuf", "protobuf-nested"])
async def test_confluent_reads_what_we_write_and_we_read_what_it_writes(kind: str, header: bool) -> None:
    conf = {"schema.id.serializer": header_schema_id_serializer} if header else {}
    async with schema_registry() as server, SchemaRegistry(server.url) as registry:
        with SchemaRegistryClient({"url": server.url}) as client:
            if kind == "avro":
                ours: Any = AvroSerializer(registry, AVRO, header=header), AvroDeserializer(registry)
                theirs: Any = their_avro.AvroSerializer(client, AVRO, conf=conf), their_avro.AvroDeserializer(client)
                value: Any = ORDER
            elif kind == "json":
                ours = JsonSerializer(registry, JSON, header=header), JsonDeserializer(registry)
                theirs = (
                    their_json.JSONSerializer(JSON, client, conf=conf),
                    their_json.JSONDeserializer(None, schema_registry_client=client),
                )
                value = ORDER
            else:
                value = MESSAGES[kind == "protobuf-nested"]
                message = type(value)
                ours = ProtobufSerializer(registry, message, header=header), ProtobufDeserializer(message)
                theirs = (
                    their_protobuf.ProtobufSerializer(message, client, {**conf, "use.deprecated.format": False}),
                    their_protobuf.ProtobufDeserializer(message, {"use.deprecated.format": False}, client),
                )
            await both_directions(header, ours, theirs, value)


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (2, 1, 300)])
def test_references_to_schemas_are_read_as_they_are_written(indexes: tuple[int, ...]) -> None:
    guid = UUID(int=5)
    for key in (7, guid):
        framed = wire.prefix(key, indexes) + b"data"
        assert wire.read(framed, (), key=False, indexes=True) == (key, indexes, b"data")
        headers = ((wire.header_name(key=True), wire.prefix(key, indexes)),)
        assert wire.read(b"data", headers, key=True, indexes=True) == (key, indexes, b"data")


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x00\x00\x00\x01", b"\x01abc", b"\x02abcdefgh", b"\x00\x00\x00\x00\x01" + b"\xff" * 6],
)
def test_malformed_references_are_schema_errors(data: bytes) -> None:
    with pytest.raises(SchemaError):
        wire.read(data, (), key=False, indexes=True)


async def test_schema_is_requested_once() -> None:
    async with schema_registry() as server, SchemaRegistry(server.url) as registry:
        server.add("orders-value", {"schema": AVRO})
        found = await asyncio.gather(*(registry.fetch(1) for _ in range(10)))
        assert len({id(each) for each in found}) == 1
        assert (await registry.fetch(1)).text == AVRO
        assert server.requests == ["/schemas/ids/1"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("slow", "no response within"),
        ("large", "more than 1000000 bytes"),
        ("short", "."),
        ("broken", "no JSON"),
        ("down", "status 500: no leader"),
    ],
)
async def test_bad_registry_is_bounded_and_reported_once(
    fault: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with schema_registry() as server:
        registry = SchemaRegistry(server.url, timeout_s=0.5 if fault == "slow" else 30.0, response_bytes_max=1_000_000)
        server.add("orders-value", {"schema": AVRO})
        server.fault = fault
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                with pytest.raises(SchemaError, match=reason):
                    await registry.fetch(1)
        assert len(server.requests) == len(caplog.records) == 1
        await registry.close()


@pytest.mark.parametrize("url", ["user:TOPSECRET@registry", "ftp://user:TOPSECRET@registry", "http://user:TOPSECRET@"])
def test_address_that_is_not_valid_is_rejected_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="expected http://HOST:PORT") as raised:
        SchemaRegistry(url)
    assert "TOPSECRET" not in str(raised.value)


async def test_unavailable_registry_is_a_schema_error_and_close_leaves_no_task() -> None:
    async with schema_registry() as server:
        url = server.url
    async with SchemaRegistry(url) as registry:
        with pytest.raises(SchemaError, match="Cannot connect"):
            await registry.fetch(1)
    async with schema_registry() as server:
        server.fault = "slow"
        registry = SchemaRegistry(server.url)
        with pytest.raises(DeserializerNotReady):
            registry.schema(1)
        await registry.close()
        assert registry._loading == {}


async def test_any_error_of_a_load_is_a_schema_error_and_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with schema_registry() as server, SchemaRegistry(server.url) as registry:
        server.add("orders-value", {"schema": AVRO})
        monkeypatch.setattr(SchemaRegistry, "_resolved", lambda _self, _response: 1 // 0)
        for _ in range(5):
            with pytest.raises(SchemaError, match="schema 1: ZeroDivisionError") as raised:
                await registry.fetch(1)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert len(server.requests) == len(caplog.records) == 1


async def test_close_ends_an_open_fetch_and_later_ones() -> None:
    async with schema_registry() as server:
        server.add("orders-value", {"schema": AVRO})
        registry = SchemaRegistry(server.url)
        known = await registry.fetch(1)
        server.fault = "slow"
        waiting = asyncio.ensure_future(registry.fetch(2))
        while len(server.requests) < 2:
            await asyncio.sleep(0)
        await registry.close()
        for use in (waiting, registry.fetch(3), registry.register("s", AVRO, "AVRO")):
            with pytest.raises(ClientUseError, match="was closed; create another one"):
                await use
        assert registry.schema(1) is known
        assert (len(server.requests), registry._session, registry._loading) == (2, None, {})


async def test_a_guid_that_is_none_is_a_schema_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def registered(*_: object) -> Registered:
        return Registered(1, "not-a-guid")

    monkeypatch.setattr(SchemaRegistry, "register", registered)
    async with SchemaRegistry("http://localhost:1") as registry:
        with pytest.raises(SchemaError, match="orders-value: the registry returned 'not-a-guid', which is no GUID"):
            await AvroSerializer(registry, AVRO, header=True).prepare("orders")


def chain(server: Registry, length: int) -> int:
    """Schemas that refer to each other in a circle; the id of the last one."""
    found: dict[str, Any] = {}
    for number in range(length):
        reference = {"name": f"s{number - 1}", "subject": f"s{(number - 1) % length}", "version": 1}
        found = server.add(f"s{number}", {"schema": f'{{"n": {number}}}', "references": [reference]})
    return int(found["id"])


async def test_references_in_a_circle_end() -> None:
    async with schema_registry() as server, SchemaRegistry(server.url) as registry:
        schema = await registry.fetch(chain(server, 20))
        assert len(schema.references) == 20
        assert len(server.requests) == 21
        with pytest.raises(SchemaError, match="more than 100 references"):
            await registry.fetch(chain(server, 150))


async def test_references_of_avro_are_resolved() -> None:
    async with schema_registry() as server, SchemaRegistry(server.url) as registry:
        server.add("order", {"schema": AVRO})
        outer = json.dumps({"type": "record", "name": "Cart", "fields": [{"name": "order", "type": "Order"}]})
        reference = {"name": "Order", "subject": "order", "version": 1}
        entry = server.add("carts-value", {"schema": outer, "references": [reference]})
        data = wire.prefix(entry["id"]) + b"\x0e\x14customer-1"
        assert await deserialized(AvroDeserializer(registry), [], data) == {"order": ORDER}


LIST = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "by_name", "type": {"type": "map", "values": {"type": "array", "items": "Tree"}}}],
}
ENDLESS = {"type": "record", "name": "Endless", "fields": [{"name": "inner", "type": "Endless"}]}


@pytest.mark.parametrize(
    ("schema", "data"),
    [(LIST, b"\x02" * 100_000), (TREE, b"\x02\x00\x02" * 100_000), (ENDLESS, b"")],
    ids=["list", "tree", "endless"],
)
async def test_deep_values_of_recursive_schemas_are_errors(schema: Any, data: bytes) -> None:
    """A compiled reader without a limit would end the process."""
    async with schema_registry() as server, SchemaRegistry(server.url) as registry:
        prefix = wire.prefix(server.add("nodes-value", {"schema": json.dumps(schema)})["id"])
        with pytest.raises(RecursionError):
            await deserialized(AvroDeserializer(registry), [], prefix + data)
        if schema is LIST:
            nested: Any = await deserialized(AvroDeserializer(registry), [], prefix + b"\x02" * 50 + b"\x00")
            for _ in range(51):
                nested = nested["next"]
            assert nested is None


def test_schemas_whose_types_are_used_twice_are_not_recursive() -> None:
    def record(name: str, *types: Any) -> Any:
        return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(types)]}

    schema = record("r0", "int", {"type": "enum", "name": "e", "symbols": ["A"]})
    for number in range(1, 40):  # each type twice: a walk of all paths would not end
        schema = record(f"r{number}", schema, f"r{number - 1}")
    assert parse(json.dumps(schema))[1] is fastavro.schemaless_reader
    recursive = record("outer", record("inner", ["null", "outer"]))
    assert parse(json.dumps(recursive))[1] is not fastavro.schemaless_reader
    assert parse(json.dumps(record("root", "inner")), [json.dumps(recursive)])[1] is not fastavro.schemaless_reader


async def test_serializer_names_the_next_step() -> None:
    async with schema_registry() as server, SchemaRegistry(server.url) as registry:
        with pytest.raises(SchemaError, match=r"await serializer.prepare\('orders'\)"):
            AvroSerializer(registry, AVRO).serialize("orders", [], ORDER)
        server.fault = "down"
        with pytest.raises(SchemaError, match="status 500"):
            await AvroSerializer(registry, AVRO).prepare("orders")


@pytest.mark.parametrize("fault", ["down", "broken", "proxy"])
async def test_records_wait_while_the_registry_is_not_available(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "RETRY_S", 0.05)
    async with schema_registry() as server:
        server.add("orders-value", {"schema": AVRO})
        server.fault = fault
        url = server.url.replace("//", "//user:TOPSECRET@")
        skipped: list[Any] = []
        settings: Any = {"on_poison": lambda record, _: skipped.append(record), "auto_offset_reset": "earliest"}
        with broker_under_test(tmp_path / "broker") as broker:
            async with (
                Producer(broker.address) as producer,
                SchemaRegistry(url) as registry,
                Consumer(broker.address, value_deserializer=AvroDeserializer(registry), **settings) as consumer,
            ):
                for _ in range(3):
                    await producer.send("orders", wire.prefix(1) + b"\x0e\x14customer-1", partition=0)
                consumer.assign([TopicPartition("orders", 0)])
                while len(server.requests) < 4:
                    assert await consumer.poll(0.1) == []
                server.fault = None
                found: list[Any] = []
                while len(found) < 3:
                    found += await consumer.poll(1.0)
                assert await consumer.position(TopicPartition("orders", 0)) == 3
    assert [(record.offset, record.value) for record in found] == [(offset, ORDER) for offset in range(3)]
    assert skipped == []
    assert server.authorizations == {"Basic dXNlcjpUT1BTRUNSRVQ="}
    assert "records wait for schema 1" in caplog.text and "TOPSECRET" not in caplog.text


@pytest.mark.parametrize("fault", ["unauthorized", "forbidden"])
async def test_credentials_that_the_registry_rejects_are_an_error_of_poll_and_no_record_is_skipped(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_S", 0.05)
    partition = TopicPartition("orders", 0)
    settings: Any = {"on_poison": "skip", "auto_offset_reset": "earliest"}
    async with schema_registry() as server, SchemaRegistry(server.url, auth=("user", "TOPSECRET")) as registry:
        server.add("orders-value", {"schema": AVRO})
        server.fault = fault
        with broker_under_test(tmp_path / "broker") as broker:
            async with (
                Producer(broker.address) as producer,
                Consumer(broker.address, value_deserializer=AvroDeserializer(registry), **settings) as consumer,
            ):
                await producer.send("orders", wire.prefix(1) + b"\x0e\x14customer-1", partition=0)
                consumer.assign([partition])
                for requests in (1, 2):
                    with pytest.raises(RegistryAccessError, match="check auth, headers and the user of url") as raised:
                        while True:
                            assert await consumer.poll(1.0) == []
                    assert "TOPSECRET" not in str(raised.value) and not raised.value.retriable
                    assert await consumer.position(partition) == 0
                    while len(server.requests) == requests:  # within the pause there is no other request
                        with contextlib.suppress(RegistryAccessError):
                            await consumer.poll(0.1)
                with pytest.raises(RegistryAccessError):
                    await AvroSerializer(registry, AVRO).prepare("orders")
                server.fault = None
                found: list[Any] = []
                while not found:
                    with contextlib.suppress(RegistryAccessError):
                        found += await consumer.poll(1.0)
    assert [(record.offset, record.value) for record in found] == [(0, ORDER)]


async def test_record_without_a_schema_is_a_poison_value_and_the_consumer_continues(tmp_path: Path) -> None:
    async with schema_registry() as server, SchemaRegistry(server.url) as registry:
        serializer = AvroSerializer(registry, AVRO)
        await serializer.prepare("orders")
        with broker_under_test(tmp_path / "broker") as broker:
            async with Producer(broker.address) as producer:
                good = serializer.serialize("orders", [], ORDER)
                for value in (good, wire.prefix(999) + b"data", b"no schema", good):
                    await producer.send("orders", value, partition=0)
            settings: Any = {"on_poison": "skip", "auto_offset_reset": "earliest"}
            async with Consumer(broker.address, value_deserializer=AvroDeserializer(registry), **settings) as consumer:
                consumer.assign([TopicPartition("orders", 0)])
                found: list[Any] = []
                while len(found) < 2:
                    found += await consumer.poll(1.0)
    assert [(record.offset, record.value) for record in found] == [(0, ORDER), (3, ORDER)]
