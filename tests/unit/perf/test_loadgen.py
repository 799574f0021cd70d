"""The load generator counts every response and record, and fails on a wrong, missing or impossible response."""

import asyncio
import struct
import threading

import pytest

from perf import loadgen
from tests.unit.net.rig import Rig, frame

REQUEST = struct.pack(">hhi", 0, 9, 0) + bytes(92)


class Served:
    """An echo server in a thread with its own event loop."""

    def __init__(self, answer, later=lambda body: False):
        self.answer = answer
        self.later = later
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()))

    async def main(self):
        self.loop = asyncio.get_running_loop()
        self.stop = asyncio.Event()
        async with Rig() as rig:
            self.rig = rig
            rig.echo.answer = self.answer
            rig.echo.later = self.later
            self.ready.set()
            await self.stop.wait()

    def __enter__(self):
        self.thread.start()
        self.ready.wait()
        return self.rig

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join()


def right(body):
    return bytes(body[4:8]) + b"\0\0" + bytes(20)


@pytest.mark.parametrize(("connections", "depth", "count"), [(1, 1, 50), (20, 5, 3000)])
def test_every_response_is_counted(connections, depth, count):
    with Served(right) as rig:
        figures = loadgen.run(*rig.address, [REQUEST, REQUEST + b"x"], connections, depth, count=count, error_at=4)
    assert figures["requests"] == rig.echo.frames == count
    assert len(rig.echo.connections) == connections
    assert figures["bytes_in"] == count * len(frame(right(REQUEST)))
    assert 0 < figures["latency_p50_ms"] <= figures["latency_p99_ms"] <= figures["latency_max_ms"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda body: b"\0\0\0\x09" + bytes(20), "correlation id 9, due was 0"),
        (lambda body: bytes(body[4:8]) + b"\0\x06" + bytes(20), "error code 6"),
        (lambda body: bytes(body[4:8]), "impossible size"),
        (lambda body: b"", "impossible size of 0"),
    ],
)
def test_wrong_response_fails_the_run(answer, message):
    with Served(answer) as rig, pytest.raises(RuntimeError, match=message):
        loadgen.run(*rig.address, [REQUEST], count=10, error_at=4)


def test_missing_response_fails_the_run():
    with Served(right, later=lambda body: True) as rig, pytest.raises(RuntimeError, match="no answer came"):
        loadgen.run(*rig.address, [REQUEST], count=10, timeout_s=0.2)


def test_closed_connection_fails_the_run():
    def answer(body):
        raise ConnectionError("planted")

    with Served(answer) as rig, pytest.raises(RuntimeError, match="closed a connection"):
        loadgen.run(*rig.address, [REQUEST], count=10)


def batch(base_offset, count):
    rest = struct.pack(">ibIhiqqqhii", 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count) + b"r" * (count * 10)
    return struct.pack(">qi", base_offset, len(rest)) + rest


def log_answer(batches, limit=500):
    """Fetch responses of one partition: complete batches from the requested offset on, the last one truncated."""

    def answer(body):
        (offset,) = struct.unpack_from(">q", body, 8)
        records = b"".join(data for first, count, data in batches if first + count > offset)[:limit]
        return bytes(body[4:8]) + b"head" + struct.pack(">i", len(records)) + records

    return answer


def test_consumed_records_are_counted_by_batch_headers():
    batches = []
    offset = 0
    for count in [1, 3, 10, 7, 40, 2, 5]:
        batches.append((offset, count, batch(offset, count)))
        offset += count
    request = struct.pack(">hhiq", 1, 4, 0, 0)
    with Served(log_answer(batches)) as rig:
        figures = loadgen.consume(*rig.address, request, 8, 8, end_offset=offset)
        assert figures["records"] == offset
        assert figures["requests"] > 1
        with pytest.raises(RuntimeError, match="no records at offset 68"):
            loadgen.consume(*rig.address, request, 8, 8, end_offset=offset + 1)


def test_batch_with_an_impossible_header_fails_the_run():
    broken = bytearray(batch(0, 5))
    broken[8:12] = b"\0\0\0\x05"
    with Served(log_answer([(0, 5, bytes(broken))])) as rig, pytest.raises(RuntimeError, match="impossible header"):
        loadgen.consume(*rig.address, struct.pack(">hhiq", 1, 4, 0, 0), 8, 8, end_offset=5)
