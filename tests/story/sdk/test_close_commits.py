"""What the end of a consumer commits: after a cancellation and an exception; virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafkalite_sdk.consumer.listeners import RebalanceListener

from kafkalite.testing.virtual_loop import pass_time
from tests.kit.arrow_reader import read_rows
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.consumer_rig import A, append, committed, new_consumer

RECORDS = 10
Handler = Callable[[int], Awaitable[None]]


async def by_iteration(consumer: Any, handle: Handler) -> None:
    async for record in consumer:
        await handle(record.offset)


async def by_poll(consumer: Any, handle: Handler) -> None:
    while True:
        for record in await consumer.poll(60.0, 4):
            await handle(record.offset)


async def by_columns(consumer: Any, handle: Handler) -> None:
    while True:
        batch = await consumer.poll_columns(60.0, 4, columns=["offset"])
        for (offset,) in read_rows(batch):
            await handle(offset)


def run_until(world: Story, use: Any, cancelled_at: int | None, error: type[Exception] | None = None) -> Any:
    """Start a task that owns a consumer; its handler waits for ever at an offset, or raises there."""

    async def handle(offset: int) -> None:
        if offset == cancelled_at:
            if error is not None:
                raise error
            await asyncio.get_running_loop().create_future()

    async def own() -> None:
        async with new_consumer(
            world, group="g", group_protocol="classic", auto_commit_interval_ms=3_600_000
        ) as consumer:
            consumer.subscribe("orders")
            await use(consumer, handle)

    return asyncio.ensure_future(own())


@pytest.mark.parametrize(
    ("use", "at", "expected"),
    [
        (by_iteration, None, RECORDS),
        (by_poll, None, RECORDS),
        (by_columns, None, RECORDS),
        (by_iteration, 6, 6),
        (by_poll, 6, 4),
        (by_columns, 6, 4),
        (by_poll, 2, 0),
        (by_columns, 2, 0),
    ],
)
def test_a_cancelled_task_commits_what_it_has_handled(use: Any, at: int | None, expected: int) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, *(b"%d" % number for number in range(RECORDS)))
        task = run_until(world, use, at)
        await pass_time(10.0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and committed(world)[-1] == {("orders", 0): expected}

    run()


@pytest.mark.parametrize("use", [by_iteration, by_poll])
def test_a_task_that_raises_commits_nothing(use: Any) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, *(b"%d" % number for number in range(RECORDS)))
        assert isinstance(await outcome(run_until(world, use, 6, RuntimeError)), RuntimeError)
        assert committed(world) == []

    run()


@pytest.mark.parametrize("use", [by_poll, by_columns, by_iteration])
def test_a_cancellation_keeps_what_the_application_has_committed_itself(use: Any) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, *(b"%d" % number for number in range(RECORDS)))

        async def own() -> None:
            async with new_consumer(
                world, group="g", group_protocol="classic", auto_commit_interval_ms=3_600_000
            ) as consumer:
                consumer.subscribe("orders")

                async def handle(offset: int) -> None:
                    if offset == 3:
                        await consumer.commit()
                        await asyncio.get_running_loop().create_future()

                await use(consumer, handle)

        task = asyncio.ensure_future(own())
        await pass_time(10.0)
        task.cancel()
        await asyncio.wait([task])
        assert committed(world)[-1] == {("orders", 0): 4}

    run()


@story()
async def test_a_commit_at_the_close_of_a_cancelled_task_without_automatic_commits_is_of_all_records(
    world: Story,
) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *(b"%d" % number for number in range(RECORDS)))

    class Commit(RebalanceListener):
        def __init__(self, consumer: Any) -> None:
            self._consumer = consumer

        async def on_partitions_revoked(self, partitions: Any) -> None:
            await self._consumer.commit()

    async def own() -> None:
        async with new_consumer(world, group="g", group_protocol="classic", enable_auto_commit=False) as consumer:
            consumer.subscribe("orders", listener=Commit(consumer))
            assert len(await consumer.poll_columns(60.0, 4, columns=["offset"])) == 4
            await consumer.commit()
            await asyncio.get_running_loop().create_future()

    task = asyncio.ensure_future(own())
    await pass_time(10.0)
    task.cancel()
    await asyncio.wait([task])
    assert committed(world)[-1] == {("orders", 0): 4}


@story()
async def test_a_cancelled_task_that_has_sought_back_commits_its_position(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *(b"%d" % number for number in range(RECORDS)))

    async def use(consumer: Any, handle: Handler) -> None:
        assert len(await consumer.poll(60.0, 5)) == 5
        assert len(await consumer.poll(60.0, 5)) == 5
        consumer.seek(A, 2)
        await handle(6)

    task = run_until(world, use, 6)
    await pass_time(10.0)
    task.cancel()
    await asyncio.wait([task])
    assert committed(world)[-1] == {("orders", 0): 2}


@story()
async def test_a_cancelled_task_commits_from_the_position_that_a_rebalance_of_its_poll_has_set(world: Story) -> None:
    """As when partitions are revoked and return within a poll, at what another member has committed meanwhile."""
    world.broker.cluster.create_topic("orders")
    world.broker.cluster.create_topic("added")
    append(world, A, *(b"%d" % number for number in range(RECORDS)))

    class Seek(RebalanceListener):
        def __init__(self, consumer: Any) -> None:
            self._consumer = consumer

        async def on_partitions_assigned(self, partitions: Any) -> None:
            self._consumer.seek(A, 6)

    async def use(consumer: Any, handle: Handler) -> None:
        assert len(await consumer.poll_columns(60.0, 2, columns=["offset"])) == 2
        consumer.subscribe(["orders", "added"], listener=Seek(consumer))  # a rebalance
        assert read_rows(await consumer.poll_columns(60.0, 2, columns=["offset"])) == [(6,), (7,)]
        await handle(6)

    task = run_until(world, use, 6)
    await pass_time(30.0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and committed(world)[-1]["orders", 0] == 6
