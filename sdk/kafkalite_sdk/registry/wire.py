"""The wire format of schema registries: which schema a key or a value has.

Pure. In front of the data: byte 0 and the id of the schema (int32). In a header `__key_schema_id` or
`__value_schema_id`: byte 0 and the id, or byte 1 and the GUID (16 bytes). For Protobuf the indexes of the message
follow: their number and each of them as zigzag varints; a single 0 is the byte 0.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from kafkalite.errors import SchemaError

ID_MAGIC, GUID_MAGIC = b"\x00", b"\x01"
INDEXES_MAX = 64
"""Depth of nested messages."""

Key = int | UUID
"""The id of a schema, or its GUID."""


class Framed(NamedTuple):
    """The schema of some data.

    Attributes:
        key: of the schema.
        indexes: of the message; empty without Protobuf.
        data: the serialized object.
    """

    key: Key
    indexes: tuple[int, ...]
    data: bytes


def header_name(*, key: bool) -> str:
    """Return the name of the header with the schema of a key or a value."""
    return "__key_schema_id" if key else "__value_schema_id"


def prefix(key: Key, indexes: Sequence[int] = ()) -> bytes:
    """Encode the reference to a schema."""
    reference = ID_MAGIC + key.to_bytes(4, "big") if isinstance(key, int) else GUID_MAGIC + key.bytes
    return reference + (encode_indexes(indexes) if indexes else b"")


def read(data: bytes, headers: Iterable[tuple[str, bytes | None]], *, key: bool, indexes: bool = False) -> Framed:
    """Read the reference to the schema from the header, else from the data.

    Arguments:
        data: of the key or the value.
        headers: of the record.
        key: it is the key of a record.
        indexes: the indexes of a Protobuf message follow.

    Raises:
        SchemaError: there is no reference, or it is malformed.
    """
    name = header_name(key=key)
    for each, value in headers:
        if each == name and value is not None:
            schema, at = _reference(value)
            return Framed(schema, _indexes(value, at)[0] if indexes else (), data)
    schema, at = _reference(data)
    found: tuple[int, ...] = ()
    if indexes:
        found, at = _indexes(data, at)
    return Framed(schema, found, data[at:])


def _reference(data: bytes) -> tuple[Key, int]:
    if data[:1] == ID_MAGIC and len(data) >= 5:
        return int.from_bytes(data[1:5], "big"), 5
    if data[:1] == GUID_MAGIC and len(data) >= 17:
        return UUID(bytes=bytes(data[1:17])), 17
    raise SchemaError(f"{data[:5].hex(' ') or 'no byte'} is no id of a schema; was the record serialized without one?")


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Encode the indexes of a message from the outermost one on."""
    return b"\x00" if list(indexes) == [0] else b"".join(map(_varint, (len(indexes), *indexes)))


def _varint(number: int) -> bytes:
    left = number << 1
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _read_varint(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise SchemaError(f"{count} indexes of a message, expected 1 to {INDEXES_MAX}")
    found = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        found.append(index)
    return tuple(found), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise SchemaError("the indexes of a message are malformed")
