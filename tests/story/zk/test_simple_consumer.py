"""The simple consumer of Kafka 0.8: fetches of chosen offsets from one broker, offsets of segments."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from kafkalite_sdk import Admin, Producer
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.zk import PartitionFetch, SimpleConsumer

from kafkalite.errors import (
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kafkalite.testing.virtual_loop import pass_time
from tests.story.zk.test_bootstrap import BROKERS, TREE, World, virtually

TOPIC, PARTITIONS = "orders", 3
SEGMENT_BYTES = 1 << 20


async def leaders(world: World) -> dict[int, int]:
    """Broker id by partition, once every partition of the new topic has a leader."""
    async with Admin(TREE, environment=world.environment()) as admin:
        new = NewTopic(TOPIC, partitions=PARTITIONS, configs={"segment.bytes": str(SEGMENT_BYTES)})
        (await admin.topics.create(new)).check()
    async with Producer(TREE, environment=world.environment(), compression_type="gzip") as producer:
        for number in range(30):
            await producer.send(TOPIC, b"%d" % number, key=b"k", partition=number % PARTITIONS)
    states = {each: world.cluster.brokers[1].running.image.topics[TOPIC].partition(each) for each in range(PARTITIONS)}
    return {each: state.leader for each, state in states.items() if state is not None}


def simple(world: World, broker_id: int) -> SimpleConsumer:
    return SimpleConsumer(f"broker{broker_id}", 9092, environment=world.environment())


def test_one_partition_and_several_are_fetched_from_an_offset(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        led = await leaders(world)
        other = next(each for each in range(1, BROKERS + 1) if each != led[0])
        async with simple(world, led[0]) as consumer:
            (one,) = await consumer.fetch(PartitionFetch(TOPIC, 0, 4))
            assert one.error is None and one.high_watermark == 10
            assert [(each.offset, each.key, each.value) for each in one.result()] == [
                (offset, b"k", b"%d" % (3 * offset)) for offset in range(4, 10)
            ]
            wanted = [PartitionFetch(TOPIC, 0, 9), PartitionFetch(TOPIC, 0 + 7, 0), PartitionFetch("missing", 0, 0)]
            found = await consumer.fetch(wanted)
            assert [each.offset for each in found[0].records] == [9]
            assert all(isinstance(each.error, UnknownTopicOrPartitionError) for each in found[1:])
            (beyond,) = await consumer.fetch((TOPIC, 0, 11))  # type: ignore[arg-type]
            with pytest.raises(OffsetOutOfRangeError, match="orders-0 at offset 11"):
                beyond.result()
        async with simple(world, other) as consumer:
            (foreign,) = await consumer.fetch(PartitionFetch(TOPIC, 0, 0))
            assert isinstance(foreign.error, NotLeaderOrFollowerError), "it follows no leader"

    virtually(tmp_path, scenario)


def test_fetch_waits_for_records(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        led = await leaders(world)
        async with simple(world, led[0]) as consumer:
            assert (await consumer.fetch(PartitionFetch(TOPIC, 0, 10)))[0].records == []
            waiting = asyncio.create_task(consumer.fetch(PartitionFetch(TOPIC, 0, 10), max_wait=20_000, min_bytes=1))
            await pass_time(1.0)
            assert not waiting.done()
            async with Producer(TREE, environment=world.environment()) as producer:
                await producer.send(TOPIC, b"late", partition=0)
            (fetched,) = await waiting
            assert [each.value for each in fetched.result()] == [b"late"]

    virtually(tmp_path, scenario)


def test_cancelled_fetch_does_not_answer_the_next_one(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        led = await leaders(world)
        async with simple(world, led[0]) as consumer:
            waiting = asyncio.create_task(consumer.fetch(PartitionFetch(TOPIC, 0, 10), max_wait=2_000, min_bytes=1))
            await pass_time(0.5)
            waiting.cancel()
            (fetched,) = await consumer.fetch(PartitionFetch(TOPIC, 0, 0))
            assert len(fetched.result()) == 10

    virtually(tmp_path, scenario)


def test_fetch_is_sent_once_more_on_another_connection(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        led = await leaders(world)
        async with simple(world, led[0]) as consumer:
            await consumer.fetch(PartitionFetch(TOPIC, 0, 0))
            waiting = asyncio.create_task(consumer.fetch(PartitionFetch(TOPIC, 0, 10), max_wait=1_000, min_bytes=1))
            await pass_time(0.5)
            world.network.reset(f"broker{led[0]}", 9092)
            assert (await waiting)[0].records == []

    virtually(tmp_path, scenario)


def test_offsets_before_a_time(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        led = await leaders(world)
        async with Producer(TREE, environment=world.environment()) as producer:
            for _ in range(3):
                await producer.send(TOPIC, os.urandom(900_000), partition=0)
        async with simple(world, led[0]) as consumer:
            all_of_them = await consumer.get_offsets_before(TOPIC, 0, -1, 10)
            assert all_of_them[0] == 13 and all_of_them[-1] == 0 and len(all_of_them) >= 3
            assert all_of_them == sorted(all_of_them, reverse=True)
            assert await consumer.get_offsets_before(TOPIC, 0, -1, 1) == [13]
            assert await consumer.get_offsets_before(TOPIC, 0, -2, 10) == [0]
            assert await consumer.get_offsets_before(TOPIC, 0, 1, 10) == []
            assert await consumer.earliest_or_latest_offset(TOPIC, 0, -2) == 0
            assert await consumer.earliest_or_latest_offset(TOPIC, 0, -1) == 13
            with pytest.raises(ValueError, match="expected -2"):
                await consumer.earliest_or_latest_offset(TOPIC, 0, 5)

    virtually(tmp_path, scenario)


def test_wrong_fetches_are_rejected(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await leaders(world)
        async with simple(world, 1) as consumer:
            with pytest.raises(ValueError, match="expected each partition once"):
                await consumer.fetch()
            with pytest.raises(ValueError, match="expected each partition once"):
                await consumer.fetch(PartitionFetch(TOPIC, 0, 0), PartitionFetch(TOPIC, 0, 1))
            with pytest.raises(ValueError, match="fetch_size is 0"):
                await consumer.fetch(PartitionFetch(TOPIC, 0, 0, 0))

    virtually(tmp_path, scenario)
