"""A producer in virtual time against a scripted cluster."""

from contextlib import asynccontextmanager
from typing import Any

from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.producer.producer import Producer

from kafkalite.testing.virtual_loop import virtual_wall_ms
from tests.story.sdk.client_rig import Story


def new_producer(
    world: Story, producer_class: type[Producer[Any, Any]] = Producer, **options: Any
) -> Producer[Any, Any]:
    environment = Environment(dial=world.network.dial, random=world.random, wall_ms=virtual_wall_ms)
    return producer_class(world.broker.bootstrap, environment=environment, **options)


@asynccontextmanager
async def producing(world: Story, **options: Any):
    async with new_producer(world, **options) as producer:
        yield producer


def values(world: Story, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
    """The values in a partition's log."""
    return world.broker.cluster.topics[topic].partitions[partition].values()


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]
