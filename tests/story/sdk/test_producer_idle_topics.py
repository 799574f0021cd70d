"""A producer forgets topics that it no longer uses, and its sequences stay right; in virtual time."""

import asyncio

from kafkalite_sdk.producer.producer import Producer

from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.producer_rig import producing, values


def topics_of(producer: Producer) -> set[str]:
    """The topics whose metadata the producer keeps current."""
    return set(producer._client.view.topics)


@story()
async def test_a_topic_without_records_is_forgotten_and_may_be_used_again(world: Story) -> None:
    for topic in ("idle", "used", "waiting"):
        world.broker.cluster.create_topic(topic)
    async with producing(world, metadata_max_age_ms=1000, metadata_max_idle_ms=5000) as producer:
        await asyncio.gather(*(producer.send(topic, b"first") for topic in ("idle", "used", "waiting")))
        for _ in range(10):
            await pass_time(1)
            await producer.send("used", b"v")
        assert topics_of(producer) == {"used"}
        assert (await producer.send("idle", b"again")).offset == 1
        assert (await producer.send("idle", b"and again")).offset == 2
        assert (await producer.send("used", b"last")).offset == 11
        assert producer.metrics().batches_retried == 0, "the sequences of the forgotten topic begin in a new epoch"
    assert values(world, "idle") == [b"first", b"again", b"and again"]


@story()
async def test_a_topic_with_an_open_request_is_not_forgotten(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with producing(world, metadata_max_age_ms=200, metadata_max_idle_ms=1000) as producer:
        await producer.send("orders", b"first")
        stalled = world.broker.on(ProduceRequest, stall=True, applied=True)
        sent = producer.send("orders", b"second")
        await stalled.reached()
        await pass_time(5)
        assert topics_of(producer) == {"orders"}
        assert (await sent).offset == 1


@story()
async def test_a_deleted_topic_without_records_is_not_requested_again(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.cluster.create_topic("other")
    async with producing(world, metadata_max_age_ms=2000) as producer:
        await asyncio.gather(producer.send("orders", b"first"), producer.send("other", b"first"))
        world.broker.cluster.delete_topic("orders")
        await pass_time(10)
        before = len(world.broker.requests(MetadataRequest))
        await pass_time(60)
        requests = world.broker.requests(MetadataRequest)[before:]
        assert len(requests) <= 31, "one per metadata_max_age_ms"
        assert topics_of(producer) == {"other"}
        world.broker.cluster.create_topic("orders")
        assert (await producer.send("orders", b"again")).offset == 0
