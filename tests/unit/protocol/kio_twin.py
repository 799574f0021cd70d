"""Our messages as kio's, and bytes through kio's codec.

kio has one class per message and version, with the fields in Kafka's order, so fields are paired by position and their
names compared. It turns some integers into richer types; `kio_scalar` draws values that these can hold.
"""

import dataclasses
import datetime
import io
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kafkalite.protocol.schema import ZERO_UUID, Layout, Message, Request, Slot
from tests.kit.message_versions import EXTENSIONS_FROM

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def kio_class(cls: type[Message], version: int) -> type[Any]:
    load = load_request_schema if issubclass(cls, Request) else load_response_schema
    found: type[Any] = load(cls.api_key, version)  # type: ignore[attr-defined]
    return found


def pairs(layout: Layout, theirs: type[Any]) -> Iterator[tuple[Slot, "dataclasses.Field[Any]"]]:
    """Our slots beside kio's fields, in the order of the declaration; a missing or extra one is an AssertionError."""
    by_name = {slot.name: slot for slot in (*layout.fields, *layout.tagged) if slot.tag < EXTENSIONS_FROM}
    ours = [by_name[each.name] for each in layout.cls.__fields__ if each.name in by_name]
    fields = dataclasses.fields(theirs)
    assert len(ours) == len(fields), (layout.cls, [slot.name for slot in ours], [each.name for each in fields])
    for slot, each in zip(ours, fields, strict=True):
        assert slot.name.removesuffix("_ms") == each.name.removesuffix("_ms"), (layout.cls, slot.name, each.name)
        assert slot.tag == each.metadata.get("tag", -1), (layout.cls, slot.name)
        yield slot, each


def struct_class(each: "dataclasses.Field[Any]") -> type[Any]:
    """The dataclass inside `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    found = [each.type]
    while found:
        kind = found.pop()
        if dataclasses.is_dataclass(kind):
            return kind  # type: ignore[return-value]
        found += typing.get_args(kind)
    raise AssertionError(each)


def to_kio(layout: Layout, theirs: type[Any], message: Any) -> Any:
    """The same message as kio has it."""
    values = {}
    for slot, each in pairs(layout, theirs):
        value = getattr(message, slot.name)
        if slot.struct is None:
            values[each.name] = _plain(each.metadata["kafka_type"], value)
        elif slot.wire.kind == "struct" and value is None and slot.tag >= 0 and not slot.nullable:
            continue  # kio has the default here
        elif isinstance(value, list):
            values[each.name] = tuple(to_kio(slot.struct, struct_class(each), one) for one in value)
        else:
            values[each.name] = None if value is None else to_kio(slot.struct, struct_class(each), value)
    return theirs(**values)


def _plain(kind: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_plain(kind, one) for one in value)
    if value is None:
        return None
    if kind == "uuid":
        return None if value == ZERO_UUID else uuid.UUID(bytes=value)
    if kind == "error_code":
        return ErrorCode(value)
    if kind.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if kind.startswith("datetime"):
        return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
    return value


def limits(layout: Layout, theirs: type[Any], message: Any) -> Any:
    """Bring the values of a random message into what kio's richer types can hold. Changes and returns `message`.

    Fields that are not Kafka's are not sent.
    """
    for slot in layout.tagged:
        if slot.tag >= EXTENSIONS_FROM:
            setattr(message, slot.name, [])
    for slot, each in pairs(layout, theirs):
        value = getattr(message, slot.name)
        if slot.struct is not None and value is not None:
            for one in value if isinstance(value, list) else [value]:
                limits(slot.struct, struct_class(each), one)
        elif each.metadata.get("kafka_type") == "error_code":
            setattr(message, slot.name, value % 130)
        elif each.metadata.get("kafka_type", "").startswith("datetime"):
            setattr(message, slot.name, abs(value) % 4_000_000_000_000)
        elif each.metadata.get("kafka_type") == "timedelta_i64":
            setattr(message, slot.name, value % 4_000_000_000_000)
    return message


def kio_encode(theirs: type[Any], entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(theirs)(buffer, entity)
    return buffer.getvalue()


def kio_decode(theirs: type[Any], data: bytes) -> Any:
    entity, size = entity_reader(theirs)(data, 0)
    assert size == len(data), (size, len(data))
    return entity
