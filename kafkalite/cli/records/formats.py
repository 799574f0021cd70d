"""Formats records for `consume`: lines, JSON, a format string.

A format string has the tokens of kcat: %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, %h
headers, %K and %S sizes of key and value (-1 = null), %% a percent sign; and the escapes \\n, \\r, \\t, \\0 and \\xHH.
"""

import json
import re
from collections.abc import Callable

from kafkalite_sdk import Record

from kafkalite.cli.failure import fail
from kafkalite.cli.records.lines import describe_record
from kafkalite.cli.times import time_text

ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PART = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)|[^%\\]+", re.DOTALL)

Field = Callable[[Record[bytes, bytes]], bytes]
"""Returns the bytes of one part of a record."""


def headers_bytes(record: Record[bytes, bytes]) -> bytes:
    """The headers as name=value, separated by commas; a null value has no equals sign."""
    return b",".join(name.encode() if value is None else name.encode() + b"=" + value for name, value in record.headers)


def size_bytes(data: bytes | None) -> bytes:
    """The size of a key or a value, -1 for null."""
    return b"%d" % (-1 if data is None else len(data))


FIELDS: dict[str, Field] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.raw_key or b"",
    "s": lambda record: record.raw_value or b"",
    "K": lambda record: size_bytes(record.raw_key),
    "S": lambda record: size_bytes(record.raw_value),
    "h": headers_bytes,
}


def json_format(record: Record[bytes, bytes]) -> bytes:
    """Return a record with its metadata as one JSON object."""
    return json.dumps(describe_record(record), ensure_ascii=False).encode() + b"\n"


def text_format(text: str) -> Field:
    """Return the function that formats records by a format string; ends the command if the string is not valid."""
    parts = [part_of(match, text) for match in _PART.finditer(text)]
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def part_of(match: re.Match[str], text: str) -> bytes | Field:
    """Return a part of a format string: constant bytes, or the function of a token."""
    token, escape = match[1], match[2]
    if token is not None:
        if token == "%":
            return b"%"
        if token not in FIELDS:
            fail(f"--format {text!r}: %{token} is unknown, known are %{' %'.join(FIELDS)} %%")
        return FIELDS[token]
    if escape is not None:
        if len(escape) == 3:
            return bytes.fromhex(escape[1:])
        if escape not in ESCAPES:
            fail(rf"--format {text!r}: \{escape} is unknown, known are \n \r \t \0 \xHH and \\")
        return ESCAPES[escape]
    return match[0].encode()


def plain_format(key_separator: str | None, *, timestamps: bool, headers: bool) -> Field:
    """Return the function that formats records as lines: time, headers, key and value.

    Arguments:
        key_separator: between key and value; None = without keys.
        timestamps, headers: the line begins with the time, in UTC, and the headers, each followed by a tab.
    """
    parts: list[Field] = []
    if timestamps:
        parts.append(lambda record: time_text(record.timestamp_ms).encode() + b"\t")
    if headers:
        parts.append(lambda record: headers_bytes(record) + b"\t")
    if key_separator is not None:
        separator = key_separator.encode()
        parts.append(lambda record: (record.raw_key or b"") + separator)
    parts.append(lambda record: (record.raw_value or b"") + b"\n")
    return lambda record: b"".join([part(record) for part in parts])
