"""The consumer of a group in ZooKeeper: `pytest perf/micro/test_zk_consumer.py`.

- 100-byte records of 4 partitions: `poll` of the SDK's consumer against one ConsumerConnector with 4 streams, by
  batches and record by record. The broker is a process of its own and serves the tree.
- Commits of 100 partitions to the tree, one after the other; every offset changes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Consumer, OffsetAndMetadata, Producer, TopicPartition
from kafkalite_sdk.zk import ConsumerConnector, MessageStream
from kafkalite_sdk.zk.offsets.zookeeper_offsets import ZooKeeperOffsets
from kafkalite_sdk.zk.session import opened_session

from tests.kit.brokers import Kafkalite

PARTITIONS = 4
RECORDS = 1_000_000
VALUE = b"x" * 100
COMMITS = 200
COMMITTED = [TopicPartition("commits", number) for number in range(100)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkalite]:
    directory = tmp_path_factory.mktemp("broker")
    settings = {
        "broker.id": "1",
        "num.partitions": str(PARTITIONS),
        "kafkalite.coordination.directory": str(shared(directory)),
    }
    broker = Kafkalite(directory, settings)
    broker.start()
    asyncio.run(fill(broker.address))
    yield broker
    broker.close()


def shared(directory: Path) -> Path:
    return directory / "shared"


async def fill(address: str) -> None:
    async with Producer(address) as producer:
        for number in range(RECORDS):
            producer.send("orders", VALUE, partition=number % PARTITIONS)
            if number % 1000 == 0:
                await producer.drain()
        await producer.flush()


async def poll(broker: Kafkalite) -> None:
    async with Consumer(broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", number) for number in range(PARTITIONS)])
        left = RECORDS
        while left:
            for record in await consumer.poll():
                assert record.offset >= 0
                left -= 1


async def read_streams(broker: Kafkalite, *, batches: bool = False) -> None:
    connect = str(shared(broker.directory))
    async with ConsumerConnector(connect, "bench", auto_offset_reset="smallest", auto_commit_enable=False) as connector:
        streams = connector.create_message_streams({"orders": PARTITIONS})["orders"]
        await asyncio.gather(*[(read_batches if batches else read)(each) for each in streams])


async def read(stream: MessageStream[bytes, bytes]) -> None:
    left = RECORDS // PARTITIONS
    async for record in stream:
        assert record.offset >= 0
        left -= 1
        if not left:
            return


async def read_batches(stream: MessageStream[bytes, bytes]) -> None:
    left = RECORDS // PARTITIONS
    while left:
        for record in await stream.next_batch():
            assert record.offset >= 0
            left -= 1


@pytest.mark.parametrize(
    "consume",
    [poll, partial(read_streams, batches=True), read_streams],
    ids=["poll", "4-streams-next-batch", "4-streams-async-for"],
)
def test_consume(benchmark: Any, broker: Kafkalite, consume: Callable[[Kafkalite], Coroutine[Any, Any, None]]) -> None:
    benchmark.group = f"consumer: {RECORDS} records of {len(VALUE)} bytes"
    benchmark.pedantic(lambda: asyncio.run(consume(broker)), rounds=5)


async def commit(broker: Kafkalite) -> None:
    async with opened_session(str(shared(broker.directory)), 10.0) as session:
        storage = ZooKeeperOffsets("bench", lambda: session, 10.0)
        await storage.read(COMMITTED)
        for number in range(COMMITS):
            failures = await storage.commit(dict.fromkeys(COMMITTED, OffsetAndMetadata(number + 1)))
            assert not failures
        await storage.commit(dict.fromkeys(COMMITTED, OffsetAndMetadata(0)))


def test_commit(benchmark: Any, broker: Kafkalite) -> None:
    benchmark.group = f"{COMMITS} commits of {len(COMMITTED)} partitions"
    benchmark.pedantic(lambda: asyncio.run(commit(broker)), rounds=3)
