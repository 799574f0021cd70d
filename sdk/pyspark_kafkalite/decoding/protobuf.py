"""Protobuf: messages of a registry or of a FileDescriptorSet. `pip install 'kafkalite[protobuf]'`."""

import base64
import binascii
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from kafkalite_sdk.registry import Schema

from pyspark_kafkalite.decoding.errors import SchemaMisfitError
from pyspark_kafkalite.decoding.registered import Reader
from pyspark_kafkalite.tables.ddl import SIMPLE

Convert = Callable[[Any], Any]

SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: pyarrow.int32(),
    FieldDescriptor.CPPTYPE_INT64: pyarrow.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pyarrow.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pyarrow.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pyarrow.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pyarrow.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pyarrow.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pyarrow.string(),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)


class Protobuf:
    """Protobuf with the schemas of a registry, or with one message for all values.

    Arguments:
        descriptors: bytes of a FileDescriptorSet; None = the schemas of the registry.
        message: full name of the message in it.

    Raises:
        ValueError: the descriptors are not valid, or have no such message.
    """

    cause = "protobuf"
    indexes = True

    def __init__(self, descriptors: bytes | None, message: str | None) -> None:
        self._reader: Reader | None = None
        if descriptors is None or message is None:
            return
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
            found = _pool(files.file).FindMessageTypeByName(message)
        except (DecodeError, KeyError, TypeError) as error:
            raise ValueError(f"message {message}: {error}") from error
        self._reader = _reader(found)

    def declared_reader(self) -> Reader | None:
        """The reader of the message in the descriptors."""
        return self._reader

    def reader(self, schema: Schema, indexes: tuple[int, ...]) -> Reader:
        """The reader of a message of a registry. Raises SchemaMisfitError."""
        texts = (*schema.references.values(), schema.text)
        try:
            files = [
                descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(each, validate=True)) for each in texts
            ]
        except (binascii.Error, DecodeError) as error:
            raise SchemaMisfitError(
                "the registry has the source of the message, expected its descriptor; compile it with "
                f"`protoc --include_imports --descriptor_set_out`, and declare schema_file and message ({error})"
            ) from error
        return _reader(_message(_pool(files).FindFileByName(files[-1].name), indexes))


def _message(file: Any, indexes: tuple[int, ...]) -> Any:
    """The message with these indexes in a file, from the outermost one on."""
    found = list(file.message_types_by_name.values())
    message = None
    for index in indexes:
        if index not in range(len(found)):
            raise SchemaMisfitError(f"{file.name} has no message with the indexes {indexes}")
        message = found[index]
        found = list(message.nested_types)
    return message


def _pool(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    """Files and the well-known ones that they import."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for file in files:
        for name in file.dependency:
            if name not in added and name.startswith("google/protobuf/"):
                _add_well_known(pool, name, added)
        if file.name not in added:
            pool.Add(file)
            added.add(file.name)
    return pool


def _add_well_known(pool: descriptor_pool.DescriptorPool, name: str, added: set[str]) -> None:
    from importlib import import_module

    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    added.add(name)


def _reader(message: Any) -> Reader:
    data_type, convert = _struct(message, ())
    create = message_factory.GetMessageClass(message)
    return Reader(data_type, partial(_read, create, convert))


def _read(create: Any, convert: Convert, data: bytes) -> Any:
    return convert(create.FromString(data))


def _struct(message: Any, outer: tuple[str, ...]) -> tuple[pyarrow.DataType, Convert]:
    """The type of a message, and the conversion of its values. Raises SchemaMisfitError: it contains itself."""
    if message.full_name == TIMESTAMP:
        return SIMPLE["timestamp"], _time
    if message.full_name in WRAPPERS:
        data_type, convert = _single(message.fields_by_name["value"], outer)
        return data_type, lambda value: convert(value.value)
    if message.full_name in outer:
        raise SchemaMisfitError(f"message {message.full_name} contains itself; a column cannot")
    fields = [(each, *_field(each, (*outer, message.full_name))) for each in message.fields]

    def convert_message(value: Any) -> dict[str, Any]:
        return {
            each.name: convert(getattr(value, each.name))
            for each, _, convert in fields
            if not each.has_presence or value.HasField(each.name)
        }

    return pyarrow.struct([(each.name, data_type) for each, data_type, _ in fields]), convert_message


def _field(field: Any, outer: tuple[str, ...]) -> tuple[pyarrow.DataType, Convert]:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key_type, key = _single(message.fields_by_name["key"], outer)
        item_type, item = _single(message.fields_by_name["value"], outer)
        return pyarrow.map_(key_type, item_type), lambda value: [(key(k), item(value[k])) for k in value]
    data_type, convert = _single(field, outer)
    if field.is_repeated:
        return pyarrow.list_(data_type), lambda value: [convert(each) for each in value]
    return data_type, convert


def _single(field: Any, outer: tuple[str, ...]) -> tuple[pyarrow.DataType, Convert]:
    """The type of one value of a field, and its conversion."""
    if field.message_type is not None:
        return _struct(field.message_type, outer)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pyarrow.binary() if field.type == FieldDescriptor.TYPE_BYTES else pyarrow.string(), _same
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return pyarrow.string(), lambda value: names.get(value, str(value))
    return SCALARS[field.cpp_type], Decimal if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else _same


def _same(value: Any) -> Any:
    return value


def _time(value: Any) -> int:
    """Microseconds since 1970, as a datetime ends with the year 9999."""
    return int(value.seconds) * 1_000_000 + int(value.nanos) // 1000
