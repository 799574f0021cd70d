"""The buffer of the SDK's producer: `pytest perf/micro/test_producer_buffer.py`.

100-byte values, with and without a key. `send` includes the future of each record; `acknowledge` encodes the batches,
completes them and reads the offset of every record.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafkalite_sdk._speedups.accumulator import RecordAccumulator
from kafkalite_sdk._speedups.deliveries import FutureRecordMetadata

VALUE = bytes(100)
COUNT = 10_000
KEYS = pytest.mark.parametrize("key", [None, b"key-12345"], ids=["no-key", "key"])


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def accumulator(loop: asyncio.AbstractEventLoop) -> RecordAccumulator:
    buffer = RecordAccumulator(
        loop,
        batch_size=16_384,
        buffer_memory=1 << 30,
        monotonic_s=loop.time,
        choose=random.randrange,
        wake=lambda: None,
        refuse=lambda: None,
        wait=lambda: None,
    )
    buffer.set_partitions("orders", 4)
    return buffer


def within(loop: asyncio.AbstractEventLoop, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs another one in an event loop, as `send` demands it."""

    async def run(*args: object) -> Any:
        return function(*args)

    return lambda *args: loop.run_until_complete(run(*args))


def send_all(buffer: RecordAccumulator, key: bytes | None) -> list[FutureRecordMetadata]:
    send = buffer.send
    return [send("orders", VALUE, key) for _ in range(COUNT)]


def acknowledge_all(buffer: RecordAccumulator, futures: list[FutureRecordMetadata]) -> int:
    buffer.close_batches(math.inf)
    while buffer.ready:
        queue = buffer.ready.popleft()
        while queue.full:
            batch = queue.full.popleft()
            assert batch.builder.build(producer_id=1, producer_epoch=0, base_sequence=0)
            buffer.complete(batch, 0)
    return sum(future.result().offset for future in futures)


@KEYS
def test_send(benchmark, loop, key):
    benchmark.group = "producer: send of 10,000 records"
    benchmark.pedantic(within(loop, send_all), setup=lambda: ((accumulator(loop), key), {}), rounds=50)


@KEYS
def test_acknowledge(benchmark, loop, key):
    benchmark.group = "producer: encode, complete and read the offsets of 10,000 records"

    def sent():
        buffer = accumulator(loop)
        return (buffer, within(loop, send_all)(buffer, key)), {}

    benchmark.pedantic(acknowledge_all, setup=sent, rounds=50)
