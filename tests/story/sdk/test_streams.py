"""The streams of a consumer in virtual time: distribution, order, commits, rebalances, cancellation, close."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from kafkalite_sdk.consumer.listeners import RebalanceListener

from kafkalite.errors import ClientUseError, PoisonRecordError
from kafkalite.model import TopicPartition
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, B, append, committed, consuming, new_consumer

Handler = Callable[[Any], Coroutine[Any, Any, None]]


def fill(world: Story, partitions: int, records: int) -> list[TopicPartition]:
    world.broker.cluster.create_topic("orders", partitions)
    found = [TopicPartition("orders", number) for number in range(partitions)]
    for each in found:
        append(world, each, *[b"%d" % number for number in range(records)])
    return found


def member(world: Story, **options: Any) -> Any:
    return new_consumer(world, **{"group": "g", "group_protocol": "classic", "enable_auto_commit": False, **options})


async def work(stream: Any, handle: Handler) -> None:
    async for record in stream:
        await handle(record)


class Journal:
    """The offsets that were handled, by partition; `reached` waits for a number of records."""

    def __init__(self, seconds: float = 0.001) -> None:
        self.offsets: dict[int, list[int]] = {}
        self.count = self.running = 0
        self.seconds = seconds
        self._changed = asyncio.Event()

    async def handle(self, record: Any) -> None:
        self.running += 1
        try:
            await pass_time(self.seconds)
        finally:
            self.running -= 1
        self.offsets.setdefault(record.partition, []).append(record.offset)
        self.count += 1
        self._changed.set()

    async def reached(self, count: int) -> None:
        while self.count < count:
            self._changed.clear()
            await self._changed.wait()


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@story()
async def test_each_partition_belongs_to_one_stream_and_keeps_its_order(world: Story) -> None:
    partitions = fill(world, 12, 50)
    journal = Journal()
    async with consuming(world, *partitions, max_poll_records=20) as consumer:
        streams = consumer.streams(5)
        seen: list[set[int]] = [set() for _ in streams]

        def noted(number: int) -> Handler:
            async def handle(record: Any) -> None:
                seen[number].add(record.partition)
                await journal.handle(record)

            return handle

        tasks = [asyncio.ensure_future(work(stream, noted(number))) for number, stream in enumerate(streams)]
        await journal.reached(600)
        assert journal.offsets == {number: list(range(50)) for number in range(12)}
        assert sorted(number for each in seen for number in each) == list(range(12))
        assert sorted(map(len, seen)) == [2, 2, 2, 3, 3]
        assert [{each.partition for each in stream.partitions} for stream in streams] == seen
    await asyncio.gather(*tasks)


@story()
async def test_slow_stream_delays_no_other_and_memory_stays_bounded(world: Story) -> None:
    partitions = fill(world, 2, 3000)
    quick = Journal()
    async with consuming(world, *partitions, max_poll_records=100) as consumer:
        slow, fast = consumer.streams(2)

        async def stuck(_: Any) -> None:
            await pass_time(10_000)

        tasks = [asyncio.ensure_future(work(slow, stuck)), asyncio.ensure_future(work(fast, quick.handle))]
        began = world.now
        await quick.reached(3000)
        assert world.now - began < 30.0
        assert 100 <= slow.queue.size <= 200
        assert slow.queue.held
        await stop(*tasks)


@story()
async def test_commit_covers_what_the_streams_have_completed(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"0", b"1", b"2")
    append(world, B, b"0", b"1")
    async with member(world) as consumer:
        consumer.subscribe("orders")
        first, second = consumer.streams(2)
        await anext(first)
        await anext(second)
        await consumer.commit()
        assert committed(world)[-1] == {("orders", 0): 0, ("orders", 1): 0}
        await anext(first)
        await consumer.commit()
        assert committed(world)[-1] == {("orders", 0): 1, ("orders", 1): 0}
        record = await anext(first)
        assert first.complete(record)
        assert not first.complete(record)
        await consumer.commit()
        assert committed(world)[-1] == {("orders", 0): 3, ("orders", 1): 0}


@story()
async def test_explicit_completion_in_any_order_is_bounded_by_the_lowest_incomplete_record(world: Story) -> None:
    fill(world, 1, 5)
    async with member(world) as consumer:
        consumer.subscribe("orders")
        (stream,) = consumer.streams(1, explicit=True)
        records = [await anext(stream) for _ in range(5)]
        for completed, expected in ((3, 0), (1, 0), (0, 2), (4, 2), (2, 5)):
            stream.complete(records[completed])
            await consumer.commit()
            assert committed(world)[-1] == {("orders", 0): expected}


@story()
async def test_explicit_stream_waits_with_too_many_incomplete_records(world: Story) -> None:
    fill(world, 1, 100)
    async with consuming(world, A, max_poll_records=10) as consumer:
        (stream,) = consumer.streams(1, explicit=True)
        records = [await anext(stream) for _ in range(10)]
        waiting = asyncio.ensure_future(anext(stream))
        await pass_time(5.0)
        assert not waiting.done()
        for each in records[:5]:
            stream.complete(each)
        assert (await waiting).offset == 10


@story()
async def test_automatic_commits_cover_complete_records_only(world: Story) -> None:
    fill(world, 1, 50)
    async with member(world, enable_auto_commit=True, auto_commit_interval_ms=1000) as consumer:
        consumer.subscribe("orders")
        (stream,) = consumer.streams(1)
        seen = 0
        async for _ in stream:
            seen += 1
            await pass_time(0.3)
            assert all(offset < seen for each in committed(world) for offset in each.values())
            if seen == 50:
                break
        assert len(committed(world)) > 5
    assert committed(world)[-1] == {("orders", 0): 49}


@story()
async def test_new_iteration_returns_the_record_that_a_task_has_not_completed(world: Story) -> None:
    fill(world, 1, 5)
    async with consuming(world, A) as consumer:
        (stream,) = consumer.streams(1)
        journal = Journal(seconds=1.0)
        killed = asyncio.ensure_future(work(stream, journal.handle))
        await journal.reached(2)
        await pass_time(0.5)
        await stop(killed)
        again = asyncio.ensure_future(work(stream, journal.handle))
        await journal.reached(5)
        assert journal.offsets == {0: [0, 1, 2, 3, 4]}
        await stop(again)


@story()
async def test_task_that_waits_polls_when_the_polling_task_is_cancelled(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 3)
    partitions = [TopicPartition("orders", number) for number in range(3)]
    async with consuming(world, *partitions) as consumer:
        streams = consumer.streams(3)
        tasks = [asyncio.ensure_future(anext(each)) for each in streams]
        await pass_time(1.0)
        for number in range(2):
            tasks[number].cancel()
            if number:
                await pass_time(1.0)
        append(world, partitions[2], b"v")
        assert (await tasks[2]).value == b"v"


class Revocations(RebalanceListener):
    """Notes how many handlers run when partitions are revoked."""

    def __init__(self, journal: Journal) -> None:
        self.running: list[int] = []
        self._journal = journal

    def on_partitions_revoked(self, partitions: Any) -> None:
        self.running.append(self._journal.running)


@story()
async def test_rebalance_waits_for_the_handlers_of_revoked_partitions(world: Story) -> None:
    fill(world, 2, 20)
    journal = Journal(seconds=2.0)
    listener = Revocations(journal)
    async with member(world) as consumer, member(world, enable_auto_commit=True) as other:
        consumer.subscribe("orders", listener=listener)
        tasks = [asyncio.ensure_future(work(each, journal.handle)) for each in consumer.streams(2)]
        await journal.reached(2)
        other.subscribe("orders")
        joining = asyncio.ensure_future(other.poll(30.0))
        while not listener.running:
            await pass_time(0.1)
        assert listener.running == [0]
        await joining
        await pass_time(5.0)
        assert journal.count > 4, "the streams continue"
        await stop(*tasks)


@story()
async def test_rebalance_waits_for_handlers_when_the_polling_task_is_cancelled(world: Story) -> None:
    fill(world, 2, 20)
    journal = Journal(seconds=2.0)
    listener = Revocations(journal)
    async with member(world) as consumer, member(world) as other:
        consumer.subscribe("orders", listener=listener)
        streams = consumer.streams(4)
        idle = [asyncio.ensure_future(anext(each)) for each in streams[2:]]
        tasks = [asyncio.ensure_future(work(each, journal.handle)) for each in streams[:2]]
        await journal.reached(2)
        other.subscribe("orders")
        joining = asyncio.ensure_future(other.poll(30.0))
        while not consumer._driver.streams._releasing:
            await pass_time(0.01)
        assert journal.running
        await stop(*(each for each in idle))
        while not listener.running:
            await pass_time(0.1)
        assert listener.running == [0]
        await joining
        await stop(*tasks)


@story()
async def test_rebalance_waits_for_handlers_up_to_the_limit_only(world: Story) -> None:
    fill(world, 2, 10)
    started = asyncio.Event()

    async def stuck(_: Any) -> None:
        started.set()
        await pass_time(100_000)

    async with member(world) as consumer, member(world) as other:
        consumer.subscribe("orders")
        streams = consumer.streams(3, release_timeout=5.0)
        tasks = [asyncio.ensure_future(work(each, stuck)) for each in streams]
        await started.wait()
        began = world.now
        other.subscribe("orders")
        records = []
        while not records:
            records = await other.poll(1.0)
        assert 5.0 <= world.now - began < 15.0
        assert records[0].offset == 0, "what is not complete is read again"
        await stop(*tasks)


@story()
async def test_close_waits_for_handlers_commits_and_ends_the_streams(world: Story) -> None:
    fill(world, 2, 10)
    journal = Journal(seconds=2.0)
    consumer = member(world, enable_auto_commit=True)
    await consumer.start()
    consumer.subscribe("orders")
    tasks = [asyncio.ensure_future(work(each, journal.handle)) for each in consumer.streams(3)]
    await journal.reached(2)
    await pass_time(0.5)
    await consumer.close()
    await asyncio.gather(*tasks)
    assert journal.offsets == {0: [0, 1], 1: [0, 1]}
    assert committed(world)[-1] == {("orders", 0): 2, ("orders", 1): 2}


@story()
async def test_close_inside_a_handler_does_not_wait_for_itself(world: Story) -> None:
    fill(world, 1, 10)
    async with member(world) as consumer:
        consumer.subscribe("orders")
        (stream,) = consumer.streams(1)
        async for _ in stream:
            began = world.now
            await consumer.close()
            assert world.now - began < 1.0
    assert committed(world) == []


@story()
async def test_seek_drops_incomplete_records_and_commits_begin_at_the_new_position(world: Story) -> None:
    fill(world, 1, 10)
    async with member(world) as consumer:
        consumer.subscribe("orders")
        (stream,) = consumer.streams(1, explicit=True)
        former = [await anext(stream) for _ in range(3)]
        consumer.seek(A, 8)
        assert [stream.complete(each) for each in former] == [False] * 3
        found = await anext(stream)
        await consumer.commit()
        assert found.offset == 8 and committed(world)[-1] == {A: 8}
        assert stream.complete(found) and not stream.complete(found)
        await consumer.commit()
        assert committed(world)[-1] == {A: 9}


@story()
async def test_seek_drops_queued_records_and_pause_holds_them(world: Story) -> None:
    fill(world, 1, 10)
    async with consuming(world, A) as consumer:
        (stream,) = consumer.streams(1)
        assert [(await anext(stream)).offset for _ in range(3)] == [0, 1, 2]
        consumer.seek(A, 8)
        assert (await anext(stream)).offset == 8
        consumer.pause(A)
        waiting = asyncio.ensure_future(anext(stream))
        await pass_time(5.0)
        assert not waiting.done()
        consumer.resume(A)
        assert (await waiting).offset == 9


@story()
async def test_poison_value_is_raised_by_the_stream_of_its_partition(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"0", b"bad", b"2")
    async with consuming(world, A, B, value_deserializer=int, on_poison="raise") as consumer:
        first, second = consumer.streams(2)
        assert first.partitions == {A}
        other = asyncio.ensure_future(anext(second))
        assert (await anext(first)).value == 0
        with pytest.raises(PoisonRecordError) as caught:
            await anext(first)
        consumer.seek(A, caught.value.next_offset)
        assert (await anext(first)).value == 2
        append(world, B, b"7")
        assert (await other).value == 7


@story()
async def test_errors_of_several_partitions_of_a_stream_are_all_raised(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 4)
    partitions = [TopicPartition("orders", number) for number in range(4)]
    async with consuming(world, *partitions, value_deserializer=int, on_poison="raise") as consumer:
        first, second = consumer.streams(2)
        failing = sorted(first.partitions)
        for each in failing:
            append(world, each, b"bad", b"1")
        other = asyncio.ensure_future(anext(second))  # it polls for both streams
        await pass_time(5.0)
        for _ in failing:
            with pytest.raises(PoisonRecordError) as caught:
                await anext(first)
            consumer.seek(TopicPartition("orders", caught.value.partition), caught.value.next_offset)
        assert sorted([(await anext(first)).partition for _ in failing]) == [each.partition for each in failing]
        other.cancel()


@story()
async def test_an_error_is_raised_behind_the_queued_records_before_it(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    async with consuming(world, A, B, value_deserializer=int, on_poison="raise") as consumer:
        first, second = consumer.streams(2)
        assert first.partitions == {A}
        append(world, A, b"0", b"1", b"bad", b"3")
        other = asyncio.ensure_future(anext(second))  # it polls for both streams
        await pass_time(5.0)
        assert [(await anext(first)).value for _ in range(2)] == [0, 1]
        with pytest.raises(PoisonRecordError) as caught:
            await anext(first)
        consumer.seek(A, caught.value.next_offset)
        assert (await anext(first)).value == 3
        other.cancel()


@story()
async def test_a_seek_drops_an_error_that_was_not_raised_yet(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    async with consuming(world, A, B, value_deserializer=int, on_poison="raise") as consumer:
        first, second = consumer.streams(2)
        append(world, A, b"0", b"bad", b"2")
        other = asyncio.ensure_future(anext(second))
        await pass_time(5.0)
        consumer.seek(A, 2)
        assert (await anext(first)).value == 2
        other.cancel()


@story()
async def test_misuse_of_streams(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A) as consumer:
        for count, error in ((0, ValueError), ("2", TypeError), (1.0, TypeError), (True, TypeError)):
            with pytest.raises(error, match=f"count is {count!r}, expected"):
                consumer.streams(count)
        for seconds, error in ((-1, ValueError), ("30", TypeError), (None, TypeError)):
            with pytest.raises(error, match=f"release_timeout is {seconds!r}, expected"):
                consumer.streams(1, release_timeout=seconds)
        (stream,) = consumer.streams(1)
        with pytest.raises(ClientUseError, match="called once"):
            consumer.streams(1)
        with pytest.raises(ClientUseError, match="has streams"):
            await consumer.poll(0)
        waiting = asyncio.ensure_future(anext(stream))
        await pass_time(0.1)
        with pytest.raises(ClientUseError, match="another task"):
            await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await waiting
