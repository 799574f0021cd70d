"""Records as lines and as JSON: what `produce` reads and `consume` prints.

In JSON, bytes are a string where they are UTF-8, else {"base64": "..."}; so what `consume --json` prints is what
`produce --json` reads. Headers are pairs, as a name may come twice; an object is read as well.
"""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, BinaryIO, NamedTuple

from kafkalite.cli.failure import fail
from kafkalite.records import Record

CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 100 << 20
INT64 = range(-(2**63), 2**63)
# The first five are sent; topic and offset are there for what `consume --json` has printed.
KNOWN = ("key", "value", "headers", "partition", "timestamp", "topic", "offset")

Headers = list[tuple[str, bytes | None]]


class Line(NamedTuple):
    """One record to send; None = null for key and value, not given for the others."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


async def chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """The bytes of a file, pipe or terminal as they come; the loop goes on meanwhile and Ctrl-C is heard."""
    fd = source.fileno()
    try:
        await readable(fd)
    except PermissionError:  # a regular file is always ready, and no selector takes it
        while data := os.read(fd, CHUNK_BYTES * 16):
            yield data
        return
    while data := os.read(fd, CHUNK_BYTES):
        yield data
        await readable(fd)


async def readable(fd: int) -> None:
    """Until a read would not block. Watches for one read only: a note from before a read would let the next one block.

    Raises PermissionError for a regular file.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def blocks(source: BinaryIO) -> AsyncIterator[list[bytes]]:
    """The whole lines in each chunk, without their ends; a last line without an end counts too."""
    parts: list[bytes] = []
    size = 0
    async for data in chunks(source):
        head, *rest = data.split(b"\n")
        parts.append(head)
        size += len(head)
        if size > LINE_BYTES_MAX:
            fail(f"a line of more than {LINE_BYTES_MAX} bytes is no record")
        if rest:
            whole = [b"".join(parts), *rest[:-1]]
            parts, size = [rest[-1]], len(rest[-1])
            yield [line.removesuffix(b"\r") for line in whole]
    if last := b"".join(parts):
        yield [last]


def plain_reader(separator: str | None) -> Callable[[bytes, int], Line]:
    """How a plain line becomes a record, with or without a key in front."""
    split = separator.encode() if separator else None

    def read(text: bytes, number: int) -> Line:
        if split is None:
            return Line(None, text, [], None, None)
        key, found, value = text.partition(split)
        if not found:
            fail(f"line {number} has no {separator!r} between key and value")
        return Line(key, value, [], None, None)

    return read


def json_line(text: bytes, number: int) -> Line:
    """A JSON object as a record; ends the command when it is none."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict) or "value" not in fields:
            raise ValueError('it is no object with a "value"')
        if unknown := fields.keys() - KNOWN:
            raise ValueError(f"{', '.join(sorted(unknown))} means nothing there; known are {', '.join(KNOWN)}")
        return Line(
            to_bytes(fields.get("key")),
            to_bytes(fields["value"]),
            read_headers(fields.get("headers")),
            read_int(fields, "partition"),
            read_int(fields, "timestamp"),
        )
    except (ValueError, RecursionError) as error:
        fail(f"line {number} is no record in JSON: {error}")


def read_int(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value not in INT64):
        raise ValueError(f"its {name} is {value!r}, not a whole number of 64 bits")
    return value


def read_headers(value: Any) -> Headers:
    pairs = list(value.items()) if isinstance(value, dict) else value or []
    if not isinstance(pairs, list) or not all(is_pair(pair) for pair in pairs):
        raise ValueError("its headers are neither an object nor a list of [name, value]")
    return [(name, to_bytes(content)) for name, content in pairs]


def is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str)


def to_bytes(value: Any) -> bytes | None:
    """A JSON value as bytes: strings as UTF-8, {"base64": ...} decoded, null as null, all else as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        return base64.b64decode(value["base64"], validate=True)
    return json.dumps(value, ensure_ascii=False).encode()


def to_text(data: bytes | None) -> Any:
    """Bytes as a JSON value, see `to_bytes`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def described(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """A record with its metadata, ready for JSON; the timestamp is in milliseconds."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": to_text(record.key),
        "value": to_text(record.value),
        "headers": [[name, to_text(value)] for name, value in record.headers],
    }
