"""aiokafka's consumer fetches between its calls: what arrived meanwhile is returned at once."""

import asyncio

from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.aiokafka_rig import new_consumer
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, B, append


@story()
async def test_getmany_without_a_timeout_returns_what_has_arrived_since_the_last_call(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with new_consumer(world, "orders") as consumer:
        assert await consumer.getmany() == {}
        for number in range(5):
            await pass_time(2.0)  # requests for records end meanwhile, without records
            append(world, A, b"%d" % number)
            await pass_time(0.1)
            world.broker.nodes[1].freeze()
            assert [each.value for each in (await consumer.getmany())[A]] == [b"%d" % number]
            world.broker.nodes[1].thaw()


@story()
async def test_getone_returns_at_once_what_has_arrived_since_the_last_call(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"first")
    async with new_consumer(world, "orders") as consumer:
        assert (await consumer.getone()).value == b"first"
        for partition in (A, B, A):
            await pass_time(2.0)
            append(world, partition, b"next")
            await pass_time(0.1)
            before = world.now
            assert (await consumer.getone()).value == b"next" and world.now == before


@story()
async def test_no_request_leaves_while_fetched_records_wait_for_a_call(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with new_consumer(world, "orders") as consumer:
        assert await consumer.getmany() == {}
        append(world, A, b"1")
        await pass_time(0.1)
        before = len(world.broker.requests(FetchRequest))
        append(world, A, b"2")
        await pass_time(10.0)
        assert len(world.broker.requests(FetchRequest)) == before
        found = []
        while len(found) < 2:
            found += (await consumer.getmany(timeout_ms=100)).get(A, [])
        assert [each.value for each in found] == [b"1", b"2"]


@story()
async def test_requests_between_calls_continue_after_a_lost_connection(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with new_consumer(world, "orders") as consumer:
        assert await consumer.getmany() == {}
        world.broker.nodes[1].disconnect()
        await pass_time(5.0)
        append(world, A, b"1")
        await pass_time(0.1)
        assert [each.value for each in (await consumer.getmany())[A]] == [b"1"]


@story()
async def test_a_stopped_consumer_sends_no_requests(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    consumer = new_consumer(world, "orders")
    await consumer.start()
    waiting = asyncio.create_task(consumer.getone())
    await pass_time(2.0)
    await consumer.stop()
    await asyncio.gather(waiting, return_exceptions=True)
    before = len(world.broker.requests(FetchRequest))
    await pass_time(10.0)
    assert len(world.broker.requests(FetchRequest)) == before
