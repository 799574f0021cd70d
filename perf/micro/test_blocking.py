"""The blocking clients against the asynchronous ones: `pytest perf/micro/test_blocking.py`.

Records of 100 bytes to and from one partition of a broker in another process. `send` keeps the outcome of each record
and ends with `flush`; `poll` and the iteration read each value.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice

import kafkalite_sdk
import pytest
from kafkalite_sdk import TopicPartition, blocking

from perf.brokers.kafkalite import Kafkalite

RECORDS = 200_000
VALUE = bytes(100)
PARTITION = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = Kafkalite().start(tmp_path_factory.mktemp("broker"))
    yield broker.address
    broker.stop()


def check(offsets: list[int]) -> None:
    assert len(offsets) == RECORDS and min(offsets) >= 0


def send_blocking(address: str) -> None:
    with blocking.Producer(address) as producer:
        send = producer.send
        sent = [send("orders", VALUE) for _ in range(RECORDS)]
        producer.flush()
        check([each.result().offset for each in sent])


def on_asyncio(run: Callable[[str], Coroutine[None, None, None]]) -> Callable[[str], None]:
    return lambda address: asyncio.run(run(address))


async def send_on_asyncio(address: str) -> None:
    async with kafkalite_sdk.Producer(address) as producer:
        sent = []
        send, drain = producer.send, producer.drain
        for _ in range(RECORDS):
            sent.append(send("orders", VALUE))
            await drain()
        await producer.flush()
        check([each.result().offset for each in sent])


def poll_blocking(address: str) -> None:
    with blocking.Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        size = 0
        while size < RECORDS * len(VALUE):
            for record in consumer.poll(10.0):
                size += len(record.value)


async def poll_on_asyncio(address: str) -> None:
    async with kafkalite_sdk.Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        size = 0
        while size < RECORDS * len(VALUE):
            for record in await consumer.poll(10.0):
                size += len(record.value)


def iterate_blocking(address: str) -> None:
    with blocking.Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        assert sum(len(record.value) for record in islice(consumer, RECORDS)) == RECORDS * len(VALUE)


async def iterate_on_asyncio(address: str) -> None:
    async with kafkalite_sdk.Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        size = 0
        async for record in consumer:
            size += len(record.value)
            if size == RECORDS * len(VALUE):
                break


CLIENTS = ["blocking", "asyncio"]


@pytest.mark.parametrize("run", [send_blocking, on_asyncio(send_on_asyncio)], ids=CLIENTS)
def test_send(benchmark, address: str, run: Callable[[str], None]) -> None:
    benchmark.group = f"producer: send of {RECORDS:,} records"
    benchmark.pedantic(run, (address,), rounds=5)


@pytest.mark.parametrize("run", [poll_blocking, on_asyncio(poll_on_asyncio)], ids=CLIENTS)
def test_poll(benchmark, address: str, run: Callable[[str], None]) -> None:
    benchmark.group = f"consumer: poll of {RECORDS:,} records"
    send_blocking(address)
    benchmark.pedantic(run, (address,), rounds=5)


@pytest.mark.parametrize("run", [iterate_blocking, on_asyncio(iterate_on_asyncio)], ids=CLIENTS)
def test_iteration(benchmark, address: str, run: Callable[[str], None]) -> None:
    benchmark.group = f"consumer: iteration over {RECORDS:,} records"
    send_blocking(address)
    benchmark.pedantic(run, (address,), rounds=5)
