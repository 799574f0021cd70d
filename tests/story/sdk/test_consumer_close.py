"""The end of a consumer and of an assignment: commits that are open, listeners that do not return."""

import asyncio

import pytest
from kafkalite_sdk.consumer.listeners import RebalanceListener

from kafkalite.errors import ClientUseError, KafkaErrorCode, KafkaTimeoutError
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.consumer_rig import A, B, append, committed, new_consumer, values


def member(world: Story, **options):
    return new_consumer(world, **{"group": "g", "group_protocol": "classic", **options})


class HangingListener(RebalanceListener):
    """Waits for ever when partitions are revoked."""

    cancelled = False

    async def on_partitions_revoked(self, partitions):
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_a_listener_that_does_not_return_is_cancelled_at_the_timeout_and_named(end: str) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, b"0")
        listener = HangingListener()
        consumer = member(world)
        await consumer.start()
        consumer.subscribe("orders", listener=listener)
        await values(consumer, 1)
        began = world.now
        with pytest.raises(
            KafkaTimeoutError, match=r"on_partitions_revoked of the listener has not returned.*orders-0"
        ):
            await getattr(consumer, end)(timeout=5.0)
        assert 5.0 <= world.now - began < 5.1 and listener.cancelled
        assert committed(world)[-1] == {("orders", 0): 1}
        await consumer.close()
        assert isinstance(await outcome(consumer.poll()), ClientUseError)

    run()


@story()
async def test_a_timeout_of_the_listener_itself_is_its_own(world: Story) -> None:
    world.broker.cluster.create_topic("orders")

    class Listener(RebalanceListener):
        async def on_partitions_revoked(self, partitions):
            async with asyncio.timeout(1.0):
                await asyncio.get_running_loop().create_future()

    consumer = member(world)
    await consumer.start()
    consumer.subscribe("orders", listener=Listener())
    await consumer.poll(1.0)
    error = await outcome(consumer.close())
    assert type(error) is TimeoutError
    assert len(world.broker.requests(LeaveGroupRequest)) == 1


@pytest.mark.parametrize("assigned", [False, True])
def test_close_waits_for_commits_that_are_open(assigned: bool) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, b"0")
        done = []
        consumer = member(world, enable_auto_commit=False)
        await consumer.start()
        if assigned:
            consumer.assign([A])
        else:
            consumer.subscribe("orders")
        await values(consumer, 1)
        world.broker.on(OffsetCommitRequest, error=KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        rule = world.broker.on(OffsetCommitRequest, stall=True)
        consumer.commit_nowait(done=done.append)
        closing = asyncio.ensure_future(consumer.close())
        await pass_time(3.0)
        assert not closing.done() and not world.broker.requests(LeaveGroupRequest)
        rule.release()
        await closing
        assert done == [None] and committed(world)[-1] == {("orders", 0): 1}
        assert len(world.broker.requests(LeaveGroupRequest)) == (not assigned)

    run()


@story()
async def test_close_waits_for_an_open_commit_until_its_timeout_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    done = []
    consumer = member(world, enable_auto_commit=False)
    await consumer.start()
    consumer.assign([A])
    await values(consumer, 1)
    rule = world.broker.on(OffsetCommitRequest, stall=True)
    consumer.commit_nowait(done=done.append)
    began = world.now
    await consumer.close(timeout=5.0)
    assert 5.0 <= world.now - began < 5.1
    assert isinstance(done[0], ClientUseError)
    rule.release()


@story()
async def test_assign_commits_the_partitions_that_it_drops(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"0")
    append(world, B, b"0")
    async with member(world, auto_commit_interval_ms=3_600_000) as consumer:
        consumer.assign([A, B])
        await values(consumer, 2)
        before = len(committed(world))
        consumer.assign([B])
        await pass_time(0.1)
        assert committed(world)[before:] == [{("orders", 0): 1}]
        consumer.assign([A])
        assert await consumer.position(A) == 1


@story()
async def test_offsets_that_are_committed_are_not_committed_again(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    async with member(world) as consumer:
        consumer.subscribe("orders")
        await values(consumer, 1)
    before = len(committed(world))
    async with member(world, auto_commit_interval_ms=100) as consumer:
        consumer.subscribe("orders")
        assert await consumer.poll(20.0) == []
        append(world, A, b"1")
        await values(consumer, 1)
        assert len(committed(world)) == before
        await consumer.commit()
        assert await consumer.poll(1.0) == []
    assert committed(world)[before:] == [{("orders", 0): 2}]
