"""`start` of aiokafka's consumer, while the broker creates its topics."""

import asyncio
from collections.abc import Iterable

import pytest
from kafkalite_sdk.compat.aiokafka import ConsumerRebalanceListener

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from tests.kit.scripted_broker import Rule
from tests.story.sdk.aiokafka_rig import new_consumer
from tests.story.sdk.client_rig import Story, story

BOTH = {TopicPartition("orders", number) for number in range(2)}


class Listener(ConsumerRebalanceListener):
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked)))

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned)))


def creates_slowly(world: Story) -> Rule:
    """The broker creates topics at their first use; until then, as Apache Kafka, it answers that they are unknown."""
    world.broker.cluster.auto_create = 2
    return world.broker.on(
        MetadataRequest,
        when=lambda request: bool(request.topics),
        error=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        times=5,
    )


@story()
async def test_a_member_joins_once_when_its_new_topic_exists(world: Story) -> None:
    creates_slowly(world)
    consumer, listener = new_consumer(world, group_id="g"), Listener()
    consumer.subscribe(["orders"], listener=listener)
    await consumer.start()
    assert await consumer.getmany(timeout_ms=5000) == {}
    assert listener.calls == [("revoked", set()), ("assigned", BOTH)]
    assert len({each.request.member_id for each in world.broker.requests(JoinGroupRequest)} - {""}) == 1
    await consumer.stop()


@story()
async def test_a_member_waits_for_responses_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    began = world.now
    async with new_consumer(world, "orders", group_id="g"):
        assert world.now - began < 0.1


@story()
async def test_a_subscription_during_the_start_replaces_the_one_before(world: Story) -> None:
    unknown = creates_slowly(world)
    world.broker.cluster.create_topic("payments", 2)
    consumer = new_consumer(world, "orders", group_id="g")
    starting = asyncio.create_task(consumer.start())
    await unknown.reached()
    assert not starting.done()
    consumer.subscribe(["payments"])
    await starting
    assert {each.topic for each in consumer.assignment()} == {"payments"}
    await consumer.stop()


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_is_stopped_while_it_waits_for_its_topic(group: str | None) -> None:
    @story()
    async def run(world: Story) -> None:
        unknown = world.broker.on(
            MetadataRequest,
            when=lambda request: bool(request.topics),
            error=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        consumer = new_consumer(world, "orders", group_id=group)
        starting = asyncio.create_task(consumer.start())
        await unknown.reached()
        await consumer.stop()
        (raised,) = await asyncio.gather(starting, return_exceptions=True)
        assert isinstance(raised, Exception), raised
        assert world.broker.requests(JoinGroupRequest) == []

    run()
