"""Reads and prints records as lines and as JSON, for `produce` and `consume`.

In JSON, bytes are a string if they are UTF-8, else {"base64": "..."}; `produce --json` reads the output of
`consume --json`. Headers are pairs, as a name may occur twice; an object is accepted, too. Other JSON values are sent
as JSON, numbers with all their digits; a value that cannot be sent unchanged is rejected (`exact_json`).
"""

import asyncio
import base64
import json
import math
import os
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

from kafkalite.cli.failure import Failure

if TYPE_CHECKING:
    from kafkalite_sdk import Record

CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 100 << 20
INT64 = range(-(2**63), 2**63)
# The first five are sent; topic and offset are accepted because `consume --json` prints them.
KNOWN = ("key", "value", "headers", "partition", "timestamp", "topic", "offset")

Headers = list[tuple[str, bytes | None]]


class RecordLine(NamedTuple):
    """One record to send; None = null for key and value, not given for the others."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


class LineFailure(Failure):
    """A line of the input cannot be sent; those before it can."""


def bad_line(text: str) -> NoReturn:
    """End the command because of a line, which the text names."""
    raise LineFailure(text)


async def chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the bytes of a file, pipe or terminal as they arrive; the loop runs meanwhile and handles Ctrl-C."""
    fd = source.fileno()
    try:
        await readable(fd)
    except PermissionError:  # a regular file is always readable, and selectors reject it
        while data := os.read(fd, CHUNK_BYTES * 16):
            yield data
        return
    while data := os.read(fd, CHUNK_BYTES):
        yield data
        await readable(fd)


async def readable(fd: int) -> None:
    """Wait until a read would not block. The watch is for one read: an event from before a read would be outdated.

    Raises PermissionError for a regular file.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def blocks(source: BinaryIO, *, keep_cr: bool = False) -> AsyncIterator[list[bytes]]:
    """Yield the complete lines of each chunk, without line ends; the last line does not need a line end.

    A carriage return before the line feed is part of the line end, as in Kafka's console producer, unless `keep_cr`.
    """
    parts: list[bytes] = []
    size = number = 0
    async for data in chunks(source):
        head, *rest = data.split(b"\n")
        parts.append(head)
        size += len(head)
        if size > LINE_BYTES_MAX:
            bad_line(f"line {number + 1} exceeds {LINE_BYTES_MAX} bytes, the limit of a record")
        if rest:
            whole = [b"".join(parts), *rest[:-1]]
            parts, size = [rest[-1]], len(rest[-1])
            number += len(whole)
            yield whole if keep_cr else [line.removesuffix(b"\r") for line in whole]
    if last := b"".join(parts):
        yield [last]


def plain_reader(separator: str | None) -> Callable[[bytes, int], RecordLine]:
    """Return the function that converts a plain line to a record; `separator` ends the key, None = no key."""
    split = separator.encode() if separator else None

    def read(text: bytes, number: int) -> RecordLine:
        if split is None:
            return RecordLine(None, text, [], None, None)
        key, found, value = text.partition(split)
        if not found:
            bad_line(f"line {number} has no separator {separator!r} between key and value")
        return RecordLine(key, value, [], None, None)

    return read


def json_line(text: bytes, number: int) -> RecordLine:
    """Convert a JSON object to a record; ends the command if it is invalid or cannot be sent unchanged."""
    try:
        fields = exact_json(text)
        if isinstance(fields, dict) and (unknown := fields.keys() - KNOWN):
            keys = f"unknown key{'' if len(unknown) == 1 else 's'} {', '.join(map(json.dumps, sorted(unknown)))}"
            raise ValueError(f"{keys}; known keys are {', '.join(KNOWN)}")
        if not isinstance(fields, dict) or "value" not in fields:
            raise ValueError('expected an object with a "value"')
        return RecordLine(
            to_bytes(fields.get("key")),
            to_bytes(fields["value"]),
            read_headers(fields.get("headers")),
            read_int(fields, "partition"),
            read_timestamp(fields),
        )
    except json.JSONDecodeError as error:
        bad_line(f"line {number} is not a JSON record: column {error.pos + 1}: {error.msg}")
    except (ValueError, RecursionError) as error:
        bad_line(f"line {number} is not a JSON record: {error}")


class WrittenNumber(float):
    """A number of JSON that remembers how it was written."""

    text: str


def written_number(text: str) -> WrittenNumber:
    """Read a number; raises ValueError when a 64-bit float, as readers of JSON use it, would be another number."""
    number = WrittenNumber(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is larger than any 64-bit float; send it as a string")
    if Decimal(text) != Decimal(float.__repr__(number)):
        raise ValueError(f"{text} has more digits than a 64-bit float, which is {float(number)!r}; send it as a string")
    number.text = text
    return number


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; raises ValueError for a duplicate key."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key!r} in an object")
        found[key] = value
    return found


def reject_constant(name: str) -> Any:
    """Raise ValueError for NaN and Infinity, which Python reads."""
    raise ValueError(f"{name} is not JSON")


EXACT_DECODER = json.JSONDecoder(
    object_pairs_hook=unique_keys,
    parse_float=written_number,
    parse_int=lambda digits: written_number(digits) if digits == "-0" else int(digits),
    parse_constant=reject_constant,
)


def exact_json(text: bytes) -> Any:
    """Read JSON whose values do not change; raises ValueError for NaN, lost digits, a duplicate key."""
    return EXACT_DECODER.decode(text.decode("utf-8-sig"))


def json_text(value: Any) -> str:
    """A value that `exact_json` read, as JSON; its numbers as they were written."""
    if isinstance(value, WrittenNumber):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json_text(key)}: {json_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def read_timestamp(fields: dict[str, Any]) -> int | None:
    """The time in ms since 1970; raises ValueError for a negative one."""
    value = read_int(fields, "timestamp")
    if value is not None and value < 0:
        raise ValueError(f"its timestamp is {value}, expected milliseconds since 1970 (0 or more)")
    return value


def read_int(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value not in INT64):
        raise ValueError(f"its {name} is {value!r}, expected a 64-bit integer")
    return value


def read_headers(value: Any) -> Headers:
    pairs = list(value.items()) if isinstance(value, dict) else value or []
    if not isinstance(pairs, list) or not all(is_pair(pair) for pair in pairs):
        raise ValueError("its headers are neither an object nor a list of [name, value] pairs")
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
    return json_text(value).encode()


def to_text(data: bytes | None) -> Any:
    """Bytes as a JSON value, see `to_bytes`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def describe_record(record: "Record[bytes, bytes]") -> dict[str, Any]:
    """A record with its metadata, ready for JSON; the timestamp is in milliseconds, None where the record has none."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "key": to_text(record.raw_key),
        "value": to_text(record.raw_value),
        "headers": [[name, to_text(value)] for name, value in record.headers],
    }
