"""Clients of aiokafka's interface in virtual time against a scripted cluster."""

from functools import partial
from typing import Any

import pytest
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafkalite_sdk.compat.aiokafka.consumer import options as consumer_options
from kafkalite_sdk.compat.aiokafka.producer import options as producer_options
from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.producer.producer import Producer

from kafkalite.testing.virtual_loop import virtual_wall_ms
from tests.story.sdk.client_rig import Story


def new_consumer(world: Story, *topics: str, **options: Any) -> AIOKafkaConsumer:
    """A consumer that starts at the earliest record by default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer_options, "Consumer", partial(Consumer, environment=_environment(world)))
        settings: Any = {"auto_offset_reset": "earliest", **options}
        return AIOKafkaConsumer(*topics, bootstrap_servers=world.broker.bootstrap, **settings)


def new_producer(world: Story, **options: Any) -> AIOKafkaProducer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_options, "Producer", partial(Producer, environment=_environment(world)))
        return AIOKafkaProducer(bootstrap_servers=world.broker.bootstrap, **options)


def _environment(world: Story) -> Environment:
    return Environment(dial=world.network.dial, random=world.random, wall_ms=virtual_wall_ms)
