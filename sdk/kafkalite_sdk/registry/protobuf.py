"""Protobuf with schemas of a registry: `pip install 'kafkalite[protobuf]'`."""

import base64
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from kafkalite.errors import SchemaError
from kafkalite_sdk.registry import wire
from kafkalite_sdk.registry.client import SchemaRegistry
from kafkalite_sdk.registry.serializer import RegisteredSerializer

M = TypeVar("M")


class ProtobufSerializer(RegisteredSerializer):
    """Serializes messages of one class; `await prepare(topic)` first.

    Arguments:
        registry: where the file of the message is registered. It may import files of `google/` only.
        message: class of the messages.
        key, header: see `RegisteredSerializer`.
    """

    def __init__(self, registry: SchemaRegistry, message: Any, *, key: bool = False, header: bool = False) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        descriptor = message.DESCRIPTOR
        for each in descriptor.file.dependencies:
            if not each.name.startswith("google/"):
                raise SchemaError(f"{descriptor.file.name} imports {each.name}; only files of google/ are supported")
        file = FileDescriptorProto()
        descriptor.file.CopyToProto(file)
        text = base64.b64encode(file.SerializeToString()).decode()
        super().__init__(registry, text, "PROTOBUF", key=key, header=header, indexes=_indexes_of(descriptor))

    def encode(self, data: Any) -> bytes:
        """Return the bytes of a message."""
        encoded: bytes = data.SerializeToString()
        return encoded


class ProtobufDeserializer(Generic[M]):
    """Deserializes messages of one class. It needs no registry: the class is the schema.

    Arguments:
        message: class of the messages.
        key: it deserializes keys.
    """

    def __init__(self, message: type[M], *, key: bool = False) -> None:
        self._message = message
        self._key = key
        self._indexes = _indexes_of(message.DESCRIPTOR)  # type: ignore[attr-defined]

    def deserialize(self, _topic: str, headers: Iterable[tuple[str, bytes | None]], data: bytes, /) -> M:
        """Return the message. Raises SchemaError: it is another message of the file; DecodeError: bytes are wrong."""
        framed = wire.read(data, headers, key=self._key, indexes=True)
        if framed.indexes != self._indexes:
            name = self._message.__name__
            raise SchemaError(f"the message has the indexes {framed.indexes}, those of {name} are {self._indexes}")
        message = self._message()
        message.ParseFromString(framed.data)  # type: ignore[attr-defined]
        return message


def _indexes_of(descriptor: Any) -> tuple[int, ...]:
    """The indexes of a message in its file, from the outermost one on."""
    indexes: list[int] = []
    while (outer := descriptor.containing_type) is not None:
        indexes.insert(0, list(outer.nested_types_by_name).index(descriptor.name))
        descriptor = outer
    return (list(descriptor.file.message_types_by_name).index(descriptor.name), *indexes)
