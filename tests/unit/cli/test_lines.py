"""Lines of a pipe come as they are written, without a read that waits; records in JSON arrive as they were written."""

import asyncio
import json
import os

import pytest
from kafkalite_sdk import Record
from kafkalite_sdk._speedups.consumer_records import RecordDecoder
from kafkalite_sdk._speedups.fetched_records import FetchedRecords

from kafkalite.cli.failure import Failure
from kafkalite.cli.records.lines import chunks, describe_record, json_line
from kafkalite.records import Builder


async def test_pipe_is_read_only_when_readable() -> None:
    """The pipe does not block here, so that a read without data raises; a real one would stop the loop, and Ctrl-C."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        found = chunks(source)
        for text in (b"one\n", b"two\n", b"three\n"):
            waiting = asyncio.ensure_future(anext(found))
            for _ in range(3):  # a loop that goes round beside a reader that waits
                await asyncio.sleep(0)
            assert not waiting.done()
            sink.write(text)
            assert await waiting == text
        sink.close()
        assert [data async for data in found] == []


def value_of(text: str) -> bytes | None:
    return json_line(f'{{"value": {text}}}'.encode(), 1).value


@pytest.mark.parametrize(
    "text",
    ["1.10", "1.0", "1e2", "1E+2", "-0", "-0.0", "0.1", "123456789012345678901234567890", "true", "null", "[1.50]"],
)
def test_json_number_is_sent_with_all_digits(text: str) -> None:
    assert value_of(text) == (None if text == "null" else text.encode())


def test_values_of_objects_keep_their_numbers_and_texts() -> None:
    assert value_of('{"a": [1.50, {"b": 2e5}], "ü": "x\\n", "n": null}') == (
        '{"a": [1.50, {"b": 2e5}], "ü": "x\\n", "n": null}'.encode()
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"value": 1e400}', "1e400 is larger than any 64-bit float"),
        ('{"value": [-1e400]}', "-1e400 is larger than any 64-bit float"),
        ('{"value": NaN}', "NaN is not JSON"),
        ('{"value": -Infinity}', "-Infinity is not JSON"),
        ('{"value": 0.10000000000000000555}', "0.10000000000000000555 has more digits than a 64-bit float"),
        ('{"value": 1e-400}', "1e-400 has more digits"),
        ('{"value": {"a": 1, "a": 2}}', "duplicate key 'a'"),
        ('{"value": 1, "value": 2}', "duplicate key 'value'"),
        ('{"value": "a", "timestamp": -5}', "its timestamp is -5, expected milliseconds since 1970 (0 or more)"),
        ('{"value": "a", "timestamp": 1.0}', "its timestamp is 1.0"),
        ('{"value": "\\ud800"}', "surrogates not allowed"),
        ('{"value": ' + "9" * 5000 + "}", "4300 digits"),
    ],
)
def test_json_that_cannot_be_sent_exactly_is_rejected_with_line_and_reason(line: str, reason: str) -> None:
    with pytest.raises(Failure, match=r"^line 7 is not a JSON record: ") as caught:
        json_line(line.encode(), 7)
    assert reason in caught.value.message


def test_base64_object_has_only_this_key() -> None:
    assert value_of('{"base64": "AAEC"}') == b"\0\1\2"
    assert value_of('{"base64": "AAEC", "x": 1}') == b'{"base64": "AAEC", "x": 1}'


def test_a_record_without_a_timestamp_is_printed_with_null() -> None:
    builder = Builder()
    builder.append(-1, None, b"x")
    decoder: RecordDecoder[bytes, bytes] = RecordDecoder()
    records: list[Record[bytes, bytes]] = []
    FetchedRecords(decoder, "t", 0, builder.build(), 0).take(records, 1)
    printed = json.dumps(describe_record(records[0]))
    assert json.loads(printed)["timestamp"] is None
    assert json_line(printed.encode(), 1).timestamp_ms is None
