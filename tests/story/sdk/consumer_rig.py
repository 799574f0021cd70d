"""Consumers of a scripted cluster in virtual time, and helper functions for their tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.consumer.consumer import Consumer

from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.testing.virtual_loop import virtual_wall_ms
from tests.kit.server import NOW_MS, batch
from tests.story.sdk.client_rig import Story

A, B, C = (TopicPartition("orders", number) for number in range(3))


def new_consumer(world: Story, **options: Any) -> Consumer[Any, Any]:
    """A consumer that starts at the earliest record by default."""
    environment = Environment(dial=world.network.dial, random=world.random, wall_ms=virtual_wall_ms)
    settings: Any = {"auto_offset_reset": "earliest", **options}
    return Consumer(world.broker.bootstrap, environment=environment, **settings)


@asynccontextmanager
async def consuming(world: Story, *partitions: TopicPartition, **options: Any) -> AsyncIterator[Consumer[Any, Any]]:
    """A consumer of these partitions."""
    async with new_consumer(world, **options) as consumer:
        consumer.assign(partitions)
        yield consumer


def append(world: Story, partition: TopicPartition, *values: bytes, timestamp: int = NOW_MS) -> None:
    """Append one batch."""
    log = world.broker.cluster.topics[partition.topic].partitions[partition.partition]
    log.append(batch(*values, timestamp=timestamp))


async def values(consumer: Consumer[Any, Any], count: int, *, max_records: int | None = None) -> list[Any]:
    """The values of the next records; there must be exactly so many."""
    found: list[Any] = []
    while len(found) < count:
        records = await consumer.poll(60.0, max_records)
        assert records, f"{len(found)} of {count} records"
        found += [each.value for each in records]
    assert len(found) == count
    return found


def committed(world: Story, group: str = "g") -> list[dict]:
    """The offsets of each OffsetCommit request."""
    return [
        {
            (topic.name, each.partition_index): each.committed_offset
            for topic in logged.request.topics
            for each in topic.partitions
        }
        for logged in world.broker.requests(OffsetCommitRequest)
        if logged.request.group_id == group
    ]
