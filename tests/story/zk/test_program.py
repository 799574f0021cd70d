"""A program of the ZooKeeper era on kafkalite: over ZooKeeper's protocol, and over the tree that brokers serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from kafkalite_sdk import Admin, Consumer
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.zk import ConsumerConnector, MessageStream, PartitionFetch, Producer, SimpleConsumer

from kafkalite.server.broker import Broker
from kafkalite.testing.zookeeper_thread import ZooKeeperThread

TOPIC, PARTITIONS, RECORDS = "orders", 4, 200
DEADLINE_S = 120.0
Start = Callable[[int], Awaitable[Broker]]


@asynccontextmanager
async def cluster(directory: Path, service: str) -> AsyncIterator[tuple[str, Start]]:
    """Yield the connect string of a cluster, and a function that starts one more broker, at a free port."""
    async with AsyncExitStack() as opened:
        if service == "zookeeper":
            zookeeper = opened.enter_context(ZooKeeperThread())
            connect, key = f"{zookeeper.address}/kafka", "zookeeper.connect"
        else:
            connect, key = str(directory / "shared"), "kafkalite.coordination.directory"

        async def start(number: int) -> Broker:
            settings = {
                key: connect,
                "broker.id": number,
                "offsets.topic.num.partitions": 1,
                "offsets.topic.replication.factor": 1,
                "group.initial.rebalance.delay.ms": 0,
            }
            broker = Broker(directory / str(number), settings=settings)
            await opened.enter_async_context(broker)
            return broker

        yield connect, start


@pytest.mark.parametrize("service", ["zookeeper", "served"])
async def test_brokers_are_added_and_removed_under_load(tmp_path: Path, service: str) -> None:
    async with asyncio.timeout(DEADLINE_S), cluster(tmp_path, service) as (connect, start):
        first = await start(1)
        second = await start(2)
        async with Admin(f"zookeeper://{connect}") as admin:
            (await admin.topics.create(NewTopic(TOPIC, partitions=PARTITIONS))).check()
        reader = Consumer(f"zookeeper://{connect}", group="billing", auto_offset_reset="earliest")
        options = {"request_required_acks": -1, "message_send_max_retries": 10}
        async with reader, Producer(connect, serializer=str.encode, **options) as producer:  # type: ignore[arg-type]
            reader.subscribe(TOPIC)
            await producer.send(*[(TOPIC, f"{each}", f"key {each}") for each in range(RECORDS)])
            await first.stop()  # in the tree that brokers serve, the one that serves it
            await start(1)  # with its data, at another port
            await producer.send(*[(TOPIC, f"{each}", f"key {each}") for each in range(RECORDS, 2 * RECORDS)])
            await second.stop()
            again = await start(2)
            await producer.send(*[(TOPIC, f"{each}", f"key {each}") for each in range(2 * RECORDS, 3 * RECORDS)])
            found: set[int] = set()
            while len(found) < 3 * RECORDS:
                found.update(int(each.value) for each in await reader.poll(5.0))
        assert await read_by_connector(connect) == set(range(3 * RECORDS))
        await check_simple_consumer(again)


async def read_by_connector(connect: str) -> set[int]:
    """Read the topic with two streams of a group in the tree."""
    found: set[int] = set()
    done = asyncio.Event()

    async def read(stream: MessageStream[bytes, bytes]) -> None:
        async for record in stream:
            found.add(int(record.value or b""))
            if len(found) == 3 * RECORDS:
                done.set()

    connector = ConsumerConnector(connect, "era", auto_offset_reset="smallest")
    async with connector:
        streams = connector.create_message_streams({TOPIC: 2})[TOPIC]
        tasks = [asyncio.create_task(read(each)) for each in streams]
        await done.wait()
    await asyncio.gather(*tasks)
    return found


async def check_simple_consumer(broker: Broker) -> None:
    """Read the partitions of one broker from their beginning."""
    host, port = broker.address.rsplit(":", 1)
    image = broker.running.image
    state = {each: image.topics[TOPIC].partition(each) for each in range(PARTITIONS)}
    led = [each for each, partition in state.items() if partition is not None and partition.leader == 2]
    assert led
    async with SimpleConsumer(host, int(port)) as consumer:
        for fetched in await consumer.fetch([PartitionFetch(TOPIC, each, 0) for each in led]):
            assert len(fetched.result()) == fetched.high_watermark
            assert await consumer.get_offsets_before(TOPIC, fetched.partition, -1, 10) == [fetched.high_watermark, 0]
