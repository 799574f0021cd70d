"""Commits of a consumer that expire, fail or wait behind others, in virtual time."""

import asyncio
import logging

import pytest

from kafkalite.errors import ClientUseError, KafkaTimeoutError
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, append, committed, consuming, values


@story()
async def test_commit_that_has_timed_out_is_not_written_later(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    async with consuming(world, A, group="g", enable_auto_commit=False) as consumer:
        await values(consumer, 1)
        node = world.broker.nodes[1]
        node.freeze()
        node.disconnect()
        await pass_time(0.5)
        with pytest.raises(KafkaTimeoutError, match="orders-0 is not committed in time"):
            await consumer.commit(timeout=3.0)
        node.thaw()
        await pass_time(60.0)
        assert committed(world) == []
        await consumer.commit()
    assert committed(world) == [{("orders", 0): 1}]


@story()
async def test_exception_of_a_callback_reaches_the_event_loop_and_other_commits_end(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    async with consuming(world, A, group="g", enable_auto_commit=False) as consumer:
        failure = ZeroDivisionError()

        def fail(_: object) -> None:
            raise failure

        consumer.commit_nowait({A: 1}, fail)
        await consumer.commit({A: 2})
    assert reported == [failure] and committed(world) == [{("orders", 0): 2}]


@story()
async def test_commit_behind_an_open_one_leaves_after_its_response(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A, group="g", enable_auto_commit=False) as consumer:
        await consumer.commit({A: 1})
        first = asyncio.ensure_future(consumer.commit({A: 2}))
        await asyncio.sleep(0)
        consumer.commit_nowait({A: 3})
        await first
        await world.broker.received(OffsetCommitRequest, 3)
        assert world.now < 1.0 and committed(world)[-1] == {("orders", 0): 3}


@story()
async def test_close_ends_commits_that_were_not_sent(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(OffsetCommitRequest, stall=True, times=None)
    outcomes = []
    async with consuming(world, A, group="g", enable_auto_commit=False) as consumer:
        for offset in (1, 2):
            consumer.commit_nowait({A: offset}, outcomes.append)
            await pass_time(1.0)
    assert [type(each) for each in outcomes] == [ClientUseError, ClientUseError]


@story()
async def test_automatic_commits_that_fail_together_for_one_reason_are_one_warning(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.on(OffsetCommitRequest, stall=True, times=None)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("kafkalite_sdk.consumer.auto_commit").addHandler(handler)
    try:
        async with consuming(world, A, group="g", auto_commit_interval_ms=100) as consumer:
            for number in range(7):
                append(world, A, b"%d" % number)
                await values(consumer, 1)
                await pass_time(0.2)
    finally:
        logging.getLogger("kafkalite_sdk.consumer.auto_commit").removeHandler(handler)
    assert lines and len(lines) == len(set(lines)), lines
