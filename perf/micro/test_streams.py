"""Streams of the SDK's consumer: `pytest perf/micro/test_streams.py`.

Handlers that await 1 ms, for records of 12 partitions: one loop against 12 streams. The batches come from a producer of
the same process and a broker in a thread.
"""

import asyncio

import pytest
from kafkalite_sdk import Consumer, Producer, TopicPartition

from kafkalite.testing.thread import BrokerThread

PARTITIONS = 12
RECORDS = 6000
HANDLER_S = 0.001


async def fill(address: str) -> None:
    async with Producer(address) as producer:
        for number in range(RECORDS):
            producer.send("orders", b"value", partition=number % PARTITIONS)
        await producer.flush()


async def consume(address: str, streams: int) -> None:
    """Handle all records, by one loop (0) or by streams."""
    async with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", number) for number in range(PARTITIONS)])
        left = RECORDS
        done = asyncio.Event()

        async def handle(records) -> None:
            nonlocal left
            async for _ in records:
                await asyncio.sleep(HANDLER_S)
                left -= 1
                if not left:
                    done.set()

        tasks = [asyncio.ensure_future(handle(each)) for each in (consumer.streams(streams) if streams else [consumer])]
        await done.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("streams", [0, 12], ids=["one-loop", "12-streams"])
def test_handlers_that_await(benchmark, streams):
    benchmark.group = f"consumer: {RECORDS} handlers that await 1 ms"
    with BrokerThread(settings={"num.partitions": PARTITIONS}) as broker:
        asyncio.run(fill(broker.address))
        benchmark.pedantic(lambda: asyncio.run(consume(broker.address, streams)), rounds=3)
