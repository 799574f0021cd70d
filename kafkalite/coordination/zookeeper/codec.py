"""Compiles aiozk's declarations of ZooKeeper's records into encoders and decoders for both sides.

aiozk declares a record as a list of named parts (`Part.parts`); its own `render` and `parse` build a `struct` for each
value. Here consecutive parts of fixed size are one `struct.Struct`, and a record is a NamedTuple of ours with the parts
in their order (zookeeper.jute). Everything that a peer sends is checked: a decoder raises ProtocolError, nothing else.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from aiozk.protocol.part import Part  # type: ignore[import-untyped]
from aiozk.protocol.primitives import Buffer, Int, UString  # type: ignore[import-untyped]

Parts: TypeAlias = Sequence[tuple[str, Any]]
Decode: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Encode: TypeAlias = Callable[[list[bytes], Any], None]

SIZE = struct.Struct("!" + Int.fmt)
NULL = SIZE.pack(-1)


class ProtocolError(Exception):
    """The bytes of a peer, or a value to send, do not fit ZooKeeper's protocol; the text says why."""


class Codec(NamedTuple):
    """Encoder and decoder of one type.

    Attributes:
        encode: appends the bytes of a value to a list. Raises ProtocolError.
        decode: returns the value at an offset, and the offset behind it. Raises ProtocolError or struct.error;
            `decode_value` raises ProtocolError for both.
    """

    encode: Encode
    decode: Decode


def decode_value(codec: Codec, data: bytes, offset: int = 0) -> Any:
    """Return the value at an offset; later bytes are ignored, as newer versions may append fields.

    Raises ProtocolError.
    """
    try:
        return codec.decode(data, offset)[0]
    except struct.error as error:
        raise ProtocolError(f"{len(data)} bytes end within a record") from error


def encode_value(codec: Codec, value: Any) -> bytes:
    """Return the bytes of a value. Raises ProtocolError: it does not fit the declared types."""
    out: list[bytes] = []
    try:
        codec.encode(out, value)
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"{type(value).__name__} cannot be encoded: {error}") from error
    return b"".join(out)


def record_codec(parts: Parts, record: Any, records: dict[Any, Any]) -> Codec:
    """Compile a record.

    Arguments:
        parts: the declared names and types.
        record: its NamedTuple, with the parts in their order.
        records: NamedTuples of declared records within records.
    """
    if len(record._fields) != len(parts):
        raise TypeError(f"{record.__name__} has {len(record._fields)} fields, aiozk declares {len(parts)}")
    steps = _steps(parts, records)
    make = record._make

    def encode(out: list[bytes], value: Any) -> None:
        at = 0
        for fixed, count, codec in steps:
            if fixed is not None:
                out.append(fixed.pack(*value[at : at + count]))
            else:
                codec.encode(out, value[at])
            at += count

    def decode(data: bytes, offset: int) -> tuple[Any, int]:
        values: list[Any] = []
        for fixed, _, codec in steps:
            if fixed is not None:
                values += fixed.unpack_from(data, offset)
                offset += fixed.size
            else:
                value, offset = codec.decode(data, offset)
                values.append(value)
        return make(values), offset

    return Codec(encode, decode)


def _steps(parts: Parts, records: dict[Any, Any]) -> list[tuple[struct.Struct | None, int, Any]]:
    """(Struct, number of values, None) for parts of fixed size, (None, 1, Codec) for each other part."""
    steps: list[tuple[struct.Struct | None, int, Any]] = []
    formats = ""
    for _, part in parts:
        if (form := getattr(part, "fmt", None)) is not None:
            formats += form
            continue
        if formats:
            steps.append((struct.Struct("!" + formats), len(formats), None))
            formats = ""
        steps.append((None, 1, _codec_of(part, records)))
    if formats:
        steps.append((struct.Struct("!" + formats), len(formats), None))
    return steps


def _codec_of(part: Any, records: dict[Any, Any]) -> Codec:
    if issubclass(part, Part):
        return record_codec(part.parts, records[part], records)
    if getattr(part, "item_class", None) is not None:  # `Vector.of` returns no subclass of Vector
        codec = _vector_codec(_codec_of(part.item_class, records))
        return codec._replace(decode=_decode_texts) if issubclass(part.item_class, UString) else codec
    if issubclass(part, UString):
        return Codec(_encode_text, _decode_text)
    if issubclass(part, Buffer):
        return Codec(_encode_buffer, _decode_buffer)
    raise TypeError(f"no codec for {part.__name__}")


def _encode_buffer(out: list[bytes], value: bytes | None) -> None:
    if value is None:
        out.append(NULL)
    else:
        out.append(SIZE.pack(len(value)))
        out.append(value)


def _decode_buffer(data: bytes, offset: int) -> tuple[bytes | None, int]:
    size = _size_at(data, offset)
    offset += SIZE.size
    if size == -1:
        return None, offset
    return bytes(data[offset : offset + size]), offset + size


def _encode_text(out: list[bytes], value: str | None) -> None:
    _encode_buffer(out, None if value is None else value.encode())


def _decode_text(data: bytes, offset: int) -> tuple[str, int]:
    """Return a text; null is the empty one, as no field of the protocol distinguishes them."""
    raw, offset = _decode_buffer(data, offset)
    try:
        return "" if raw is None else raw.decode(), offset
    except UnicodeDecodeError as error:
        raise ProtocolError("a text is not UTF-8") from error


def _decode_texts(data: bytes, offset: int) -> tuple[tuple[str, ...], int]:
    """Decode each text of a vector as `_decode_text` does, in one loop: a list of children may have thousands."""
    count, unpack, size_bytes = _size_at(data, offset), SIZE.unpack_from, SIZE.size
    at, texts = offset + size_bytes, []
    try:
        for _ in range(count):
            (size,) = unpack(data, at)
            at += size_bytes
            if not -1 <= size <= len(data) - at:
                raise ProtocolError(f"a size of {size} in a frame with {len(data) - at} bytes left")
            if size > 0:
                texts.append(str(data[at : at + size], "utf-8"))
                at += size
            else:
                texts.append("")
    except UnicodeDecodeError as error:
        raise ProtocolError("a text is not UTF-8") from error
    return tuple(texts), at


def _size_at(data: bytes, offset: int) -> int:
    """Return the size or count at an offset, -1 = null. Raises ProtocolError if more is declared than there is."""
    size: int = SIZE.unpack_from(data, offset)[0]
    if not -1 <= size <= len(data) - offset - SIZE.size:
        raise ProtocolError(f"a size of {size} in a frame with {len(data) - offset - SIZE.size} bytes left")
    return size


def _vector_codec(item: Codec) -> Codec:
    def encode(out: list[bytes], values: Sequence[Any] | None) -> None:
        out.append(SIZE.pack(-1 if values is None else len(values)))
        for value in values or ():
            item.encode(out, value)

    def decode(data: bytes, offset: int) -> tuple[tuple[Any, ...], int]:
        count = _size_at(data, offset)
        offset += SIZE.size
        values = []
        for _ in range(count):
            value, offset = item.decode(data, offset)
            values.append(value)
        return tuple(values), offset

    return Codec(encode, decode)
