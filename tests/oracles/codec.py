"""The message codec in plain Python: closures made from a `Layout`. Slow, short, and the oracle of the tests.

It obeys the same laws as `_speedups.codec` and `_speedups.encoder` and gives the same verdicts: equal values, equal
bytes, and for bad input a DecodeError of equal kind, position and field. Nothing outside the tests uses it.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from kafkalite.errors import DecodeError, EncodeError
from kafkalite.protocol.schema import Layout, Message, Slot, Wire

__all__ = ["decode", "encode"]

ELEMENTS_MAX = 4_000_000
STRING_MAX = 32767  # bytes, in every version as in Kafka: what was read can also be written
SIZE_MAX = 2**31 - 2
NUMBERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
STRUCTS = {kind: struct.Struct(">" + letter) for kind, letter in NUMBERS.items()}


class Reader:
    """A position in the input, and the path of the field being read."""

    def __init__(self, data: memoryview, elements_max: int) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)
        self.elements_left = elements_max
        self.path: list[str] = []

    def fail(self, kind: str, detail: str) -> DecodeError:
        return DecodeError(kind, detail, self.at, ".".join(self.path))

    def take(self, n: int) -> memoryview:
        if n > self.end - self.at:
            raise self.fail("truncated", f"{n} bytes are needed, {self.end - self.at} are left")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, kind: str) -> Any:
        packed = STRUCTS[kind]
        return packed.unpack(self.take(packed.size))[0]

    def uvarint(self) -> int:
        value = 0
        for i in range(min(5, self.end - self.at)):
            byte = self.data[self.at + i]
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    raise self.fail("varint", "a varint exceeds 32 bits")
                self.at += i + 1
                return value
        if self.end - self.at < 5:
            raise self.fail("truncated", "the bytes end inside a varint")
        raise self.fail("varint", "a varint is longer than 5 bytes")

    def size(self, kind: str, flexible: bool, nullable: bool) -> int:
        n: int = self.uvarint() - 1 if flexible else self.number("int16" if kind == "string" else "int32")
        if n < -1:
            raise self.fail("negative length", f"a {kind} has length {n}")
        if n == -1 and not nullable:
            raise self.fail("null", f"a {kind} that may not be null is null")
        if n > STRING_MAX and kind == "string":
            raise self.fail("string length", f"a string of {n} bytes is too long")
        return n


Read = Callable[[Reader], Any]


def _read_text(reader: Reader, n: int) -> str:
    begin = reader.at
    raw = bytes(reader.take(n))
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        reader.at = begin
        raise reader.fail("utf-8", f"byte {error.start} of the string is not UTF-8") from None


def _sized(kind: str, flexible: bool, nullable: bool, read: Callable[[Reader, int], Any]) -> Read:
    def sized(reader: Reader) -> Any:
        n = reader.size(kind, flexible, nullable)
        return None if n < 0 else read(reader, n)

    return sized


def _reader(wire: Wire, inner: Layout | None, flexible: bool, nullable: bool) -> Read:
    """The function that reads a value of a type that is no array."""
    kind = wire.kind
    if kind in NUMBERS:
        return lambda reader: reader.number(kind)
    if kind == "boolean":
        return lambda reader: reader.take(1)[0] != 0
    if kind == "uuid":
        return lambda reader: bytes(reader.take(16))
    if kind == "struct":
        assert inner is not None
        read = struct_reader(inner)
        return _nullable_struct(read) if nullable else read
    if kind == "string":
        return _sized(kind, flexible, nullable, _read_text)
    if kind == "binary":
        return _sized(kind, flexible, nullable, lambda reader, n: bytes(reader.take(n)))
    return _sized(kind, flexible, nullable, lambda reader, n: reader.take(n))


def _nullable_struct(read: Read) -> Read:
    def nullable(reader: Reader) -> Any:
        presence = reader.number("int8")
        if presence not in (-1, 1):
            raise reader.fail("presence", f"a nullable struct begins with {presence}, not with -1 or 1")
        return None if presence == -1 else read(reader)

    return nullable


def _array_reader(slot: Slot, flexible: bool) -> Read:
    assert slot.wire.element is not None
    read = _reader(slot.wire.element, slot.struct, flexible, False)

    def read_elements(reader: Reader, n: int) -> list[Any]:
        left = reader.end - reader.at
        if n > left // slot.element_size_min:
            raise reader.fail("array length", f"{n} elements do not fit into the {left} bytes left")
        if n > reader.elements_left:
            raise reader.fail("array length", "the message has more array elements than allowed")
        reader.elements_left -= n
        found = []
        for i in range(n):
            reader.path[-1] = f"{slot.name}[{i}]"
            found.append(read(reader))
        reader.path[-1] = slot.name
        return found

    return _sized("array", flexible, slot.nullable, read_elements)


def _slot_reader(slot: Slot, flexible: bool) -> Read:
    if slot.wire.kind == "array":
        return _array_reader(slot, flexible)
    return _reader(slot.wire, slot.struct, flexible, slot.nullable)


def _tagged_reader(slot: Slot) -> Read:
    if slot.wire.kind != "struct" or not slot.nullable:
        return _slot_reader(slot, True)
    assert slot.struct is not None
    read = struct_reader(slot.struct)

    def nullable(reader: Reader) -> Any:
        presence = reader.uvarint()
        if presence > 1:
            raise reader.fail("presence", f"a nullable tagged struct begins with {presence}, not with 0 or 1")
        return read(reader) if presence else None

    return nullable


def _fresh(default: Any) -> Any:
    return [] if isinstance(default, list) else default


def _unsent(slot: Slot) -> Any:
    """What a tagged field is when it is not sent: its default, or where a struct may be null one of defaults."""
    if slot.wire.kind == "struct" and slot.nullable:
        assert slot.struct is not None
        return slot.struct.cls()
    return _fresh(slot.default)


@cache
def struct_reader(layout: Layout) -> Read:
    """The function that reads a struct: its fields in order, then its tags."""
    fields = [(slot.name, _slot_reader(slot, layout.flexible)) for slot in layout.fields]
    tagged = {slot.tag: (slot.name, _tagged_reader(slot)) for slot in layout.tagged}

    def read(reader: Reader) -> Any:
        values = {name: _fresh(default) for name, default in layout.absent}
        values.update((slot.name, _unsent(slot)) for slot in layout.tagged)
        reader.path.append("")
        for name, read_field in fields:
            reader.path[-1] = name
            values[name] = read_field(reader)
        if layout.flexible:
            reader.path[-1] = "tags"
            _read_tags(reader, tagged, values)
        reader.path.pop()
        return layout.cls(**values)

    return read


def _read_tags(reader: Reader, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]) -> None:
    previous = -1
    count = reader.uvarint()
    if count > reader.elements_left:
        raise reader.fail("tag count", f"{count} tagged fields are more than allowed")
    reader.elements_left -= count
    for _ in range(count):
        tag = reader.uvarint()
        if tag <= previous:
            raise reader.fail("tag order", f"tag {tag} follows tag {previous}")
        previous = tag
        size, left = reader.uvarint(), reader.end - reader.at
        if size > left:
            raise reader.fail("truncated", f"tag {tag} has {size} bytes, {left} are left")
        if tag in tagged:
            name, read = tagged[tag]
            reader.path[-1] = name
            values[name] = _read_exactly(reader, read, size)
            reader.path[-1] = "tags"
        else:
            reader.take(size)


def _read_exactly(reader: Reader, read: Read, size: int) -> Any:
    end, reader.end = reader.end, reader.at + size
    value = read(reader)
    if reader.at != reader.end:
        raise reader.fail("tag size", f"{reader.end - reader.at} of {size} bytes are left over")
    reader.end = end
    return value


AnyMessage = TypeVar("AnyMessage", bound=Message)


@cache
def layout_of(cls: type[Message], version: int) -> Layout | None:
    """The layout of a message, compiled once."""
    return cls.__layout__(version)


def decode(
    cls: type[AnyMessage],
    version: int,
    body: bytes | bytearray | memoryview,
    exact: bool = True,
    elements_max: int = ELEMENTS_MAX,
) -> AnyMessage:
    """Decode a whole message; as `_speedups.codec.decode`."""
    layout = layout_of(cls, version)
    if layout is None:
        raise DecodeError("version", f"{cls.__name__} has no version {version}")
    reader = Reader(memoryview(body), elements_max)
    message: AnyMessage = struct_reader(layout)(reader)
    if exact and reader.at != reader.end:
        left = reader.end - reader.at
        raise reader.fail("trailing bytes", f"{left} bytes follow the end of {cls.__name__} v{version}")
    return message


# ---- writing --------------------------------------------------------------------------------------------------------

Write = Callable[[list[str], Any], bytes]


def _fail(path: list[str], detail: str) -> EncodeError:
    return EncodeError(detail, ".".join(path))


def _wrong_type(path: list[str], value: Any, kind: str) -> EncodeError:
    return _fail(path, f"a {type(value).__name__} is not a {kind}")


def uvarint(value: int) -> bytes:
    """LEB128 of a number that is not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _size(path: list[str], kind: str, flexible: bool, n: int) -> bytes:
    if n > (STRING_MAX if kind == "string" else SIZE_MAX):
        raise _fail(path, f"{n} bytes or elements are too many for a {kind}")
    if flexible:
        return uvarint(n + 1)
    return STRUCTS["int16" if kind == "string" else "int32"].pack(n)


def _content(path: list[str], kind: str, value: Any) -> bytes:
    """The bytes of a string, of binary or of records, without their length."""
    if kind == "string":
        if not isinstance(value, str):
            raise _wrong_type(path, value, kind)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise _fail(path, f"the string cannot be UTF-8: {error.reason}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if kind == "records":
        pieces = value if isinstance(value, list) else [value]
        return b"".join(_piece(path, piece) for piece in pieces)
    raise _wrong_type(path, value, kind)


def _piece(path: list[str], piece: Any) -> bytes:
    if isinstance(piece, bytes | bytearray | memoryview):
        return bytes(piece)
    if not isinstance(getattr(piece, "length", None), int):
        raise _wrong_type(path, piece, "records")
    return bytes(piece.read())


def _number(path: list[str], kind: str, value: Any) -> bytes:
    if not isinstance(value, int | float if kind == "float64" else int):
        raise _wrong_type(path, value, kind)
    try:
        return STRUCTS[kind].pack(value)
    except struct.error:
        raise _fail(path, f"{value} does not fit into {kind}") from None


def _writer(wire: Wire, inner: Layout | None, flexible: bool) -> Write:
    """The function that writes a value that is neither null nor an array."""
    kind = wire.kind
    if kind in NUMBERS:
        return lambda path, value: _number(path, kind, value)
    if kind == "struct":
        assert inner is not None
        return struct_writer(inner)

    def write(path: list[str], value: Any) -> bytes:
        if kind == "boolean":
            if value is not True and value is not False:
                raise _wrong_type(path, value, kind)
            return bytes([value])
        if kind == "uuid":
            if type(value) is not bytes or len(value) != 16:
                raise _fail(path, "a uuid is a bytes object of length 16")
            return value
        content = _content(path, kind, value)
        return _size(path, kind, flexible, len(content)) + content

    return write


def _array_writer(slot: Slot, flexible: bool) -> Write:
    assert slot.wire.element is not None
    write_element = _writer(slot.wire.element, slot.struct, flexible)

    def write(path: list[str], value: Any) -> bytes:
        if not isinstance(value, list | tuple):
            raise _wrong_type(path, value, "array")
        out = [_size(path, "array", flexible, len(value))]
        for i, element in enumerate(value):
            path[-1] = f"{slot.name}[{i}]"
            out.append(write_element(path, element))
        path[-1] = slot.name
        return b"".join(out)

    return write


def _slot_writer(slot: Slot, flexible: bool) -> Write:
    kind = slot.wire.kind
    write = _array_writer(slot, flexible) if kind == "array" else _writer(slot.wire, slot.struct, flexible)

    def write_slot(path: list[str], value: Any) -> bytes:
        if value is None:
            if not slot.nullable:
                raise _fail(path, f"null is not allowed for this {kind} in this version")
            return b"\xff" if kind == "struct" else _size(path, kind, flexible, -1)
        present = b"\x01" if kind == "struct" and slot.nullable else b""
        return present + write(path, value)

    return write_slot


def _tagged_writer(slot: Slot) -> Write:
    write = _slot_writer(slot, True)
    if slot.wire.kind != "struct" or not slot.nullable:
        return write
    return lambda path, value: b"\0" if value is None else write(path, value)


def _is_default(slot: Slot, value: Any) -> bool:
    if slot.struct is not None and slot.wire.kind == "struct":
        return (value is None and not slot.nullable) or value == slot.struct.cls()
    return bool(value == slot.default)


@cache
def struct_writer(layout: Layout) -> Write:
    """The function that writes a struct: its fields in order, then those tags that differ from their default."""
    fields = [(slot, _slot_writer(slot, layout.flexible)) for slot in layout.fields]
    tagged = [(slot, _tagged_writer(slot)) for slot in layout.tagged]

    def write(path: list[str], owner: Any) -> bytes:
        if type(owner) is not layout.cls:
            detail = f"a {type(owner).__qualname__} is not a {layout.cls.__qualname__}"
            raise _fail(path, detail)
        path.append("")
        out = []
        for slot, write_field in fields:
            path[-1] = slot.name
            out.append(write_field(path, getattr(owner, slot.name)))
        if layout.flexible:
            out.append(_tags(path, owner, tagged))
        path.pop()
        return b"".join(out)

    return write


def _tags(path: list[str], owner: Any, tagged: list[tuple[Slot, Write]]) -> bytes:
    out, count = b"", 0
    for slot, write in tagged:
        path[-1] = slot.name
        value = getattr(owner, slot.name)
        if not _is_default(slot, value):
            content = write(path, value)
            out += uvarint(slot.tag) + uvarint(len(content)) + content
            count += 1
    return uvarint(count) + out


def encode(message: Message, version: int) -> bytes:
    """Encode a whole message; as `_speedups.codec.encode`."""
    layout = layout_of(type(message), version)
    if layout is None:
        raise EncodeError(f"{type(message).__name__} has no version {version}")
    return struct_writer(layout)([], message)
