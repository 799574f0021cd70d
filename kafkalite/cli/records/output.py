"""Writes the records of a consumer to standard output: as lines without an object per record, or formatted."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol

from kafkalite_sdk import Consumer, Record

LINES_BYTES = 256 * 1024  # of one write: the allocator keeps the memory, and the processor's cache holds it
LINES_MAX = 2**31 - 1  # of one write, as `Consumer.poll_lines` allows
RECORDS_MAX = 10_000  # of one poll; each is an object
FORMAT_HELP = (
    "Format of each record: %t topic, %p partition, %o offset, %T timestamp (ms), %k key, %s value, %h headers, "
    r"%K and %S their sizes (-1: null), %%, and the escapes \n \r \t \0 \xHH."
)

Write = Callable[[bytes | memoryview], Awaitable[None]]


class Output(Protocol):
    """Prints the records of a consumer."""

    async def print_next(self, consumer: Consumer, timeout_s: float, count: int | None) -> int:
        """Poll, and print at most `count` records, None = any number. Return how many there were."""


class Lines:
    """Prints values, or keys and values, as lines.

    Arguments:
        key_separator: between key and value, None = without keys.
        write: writes to standard output.
    """

    def __init__(self, key_separator: str | None, write: Write) -> None:
        self._write = write
        self._key_separator = None if key_separator is None else key_separator.encode()

    async def print_next(self, consumer: Consumer, timeout_s: float, count: int | None) -> int:
        """See `Output`."""
        records_max = LINES_MAX if count is None else count
        lines = await consumer.poll_lines(
            timeout_s, records_max, max_bytes=LINES_BYTES, key_separator=self._key_separator
        )
        await self._write(lines.value_bytes)
        return len(lines)


class Formatted:
    """Prints records in a format.

    Arguments:
        form: returns the text of a record.
        write: writes to standard output.
    """

    def __init__(self, form: Callable[[Record[bytes, bytes]], bytes], write: Write) -> None:
        self._form = form
        self._write = write

    async def print_next(self, consumer: Consumer, timeout_s: float, count: int | None) -> int:
        """See `Output`."""
        records = await consumer.poll(timeout_s, RECORDS_MAX if count is None else min(count, RECORDS_MAX))
        await self._write(b"".join(map(self._form, records)))
        return len(records)


def write_now(data: bytes | memoryview) -> None:
    """Write to standard output at once; an unbuffered one (PYTHONUNBUFFERED) may write a part at a time."""
    stream, left = sys.stdout.buffer, memoryview(data)
    while left:
        left = left[stream.write(left) :]
    stream.flush()


async def write(data: bytes | memoryview) -> None:
    """Write to standard output. A pipe that is not read blocks the loop."""
    write_now(data)


async def write_in_thread(data: bytes | memoryview) -> None:
    """Write to standard output while the loop runs: a member of a group sends heartbeats although a pipe is not read.

    A cancellation waits for the end of the write, too: what is printed is complete.
    """
    if not data:
        return
    writing = asyncio.get_running_loop().run_in_executor(None, write_now, data)
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await writing
        raise


def new_output(
    write: Write, *, as_json: bool, text: str | None, key_separator: str | None, timestamps: bool, headers: bool
) -> Output:
    """Return the output for these options.

    Arguments:
        write: `write`, or `write_in_thread`.
        as_json: one JSON object per record.
        text: a format string.
        key_separator: of lines, None = without keys.
        timestamps, headers: of lines.
    """
    if not as_json and text is None and not timestamps and not headers:
        return Lines(key_separator, write)
    from kafkalite.cli.records.formats import json_format, plain_format, text_format

    if as_json:
        return Formatted(json_format, write)
    if text is not None:
        return Formatted(text_format(text), write)
    return Formatted(plain_format(key_separator, timestamps=timestamps, headers=headers), write)
