"""An exception between the read of records and their return loses none of them, and no commit covers them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafkalite_sdk.client.ownership import Owner
from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.consumer.fetch import decompression
from kafkalite_sdk.consumer.fetch.decompression import Decompression
from kafkalite_sdk.consumer.fetch.partition_buffer import PartitionBuffer
from kafkalite_sdk.interceptors import ConsumerInterceptor

from tests.kit.server import batch
from tests.kit.steps import Bug
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, B, append, committed, consuming, new_consumer, values
from tests.story.sdk.test_consumer_large_batches import LARGE, decompressed_in_a_thread
from tests.unit.sdk.fetch_rig import Rig, data

Poll = Callable[[Consumer[Any, Any]], Any]


async def as_records(consumer: Consumer[Any, Any]) -> list[Any]:
    return [record.value for record in await consumer.poll(1.0)]


async def as_columns(consumer: Consumer[Any, Any]) -> list[Any]:
    lines = await consumer.poll_lines(1.0)
    return bytes(lines.value_bytes).splitlines()


async def from_iteration(consumer: Consumer[Any, Any]) -> list[Any]:
    async for record in consumer:
        return [record.value]
    raise AssertionError("the iteration has ended")


POLLS = pytest.mark.parametrize("poll", [as_records, as_columns, from_iteration])


def raises_once(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, *, after: bool = False) -> list[Exception]:
    """Let a method raise once: in its first call, or behind it. Return what it has raised."""
    original = getattr(target, name)
    raised: list[Exception] = []

    def method(*args: Any, **named: Any) -> Any:
        if after or raised:
            found = original(*args, **named)
        if not raised:
            raised.append(Bug(name))
            raise raised[0]
        return found

    monkeypatch.setattr(target, name, method)
    return raised


async def drained(consumer: Consumer[Any, Any], poll: Poll, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await poll(consumer)
    return found


@story()
@POLLS
async def test_records_are_returned_by_the_next_poll_if_requests_for_more_cannot_be_sent(
    world: Story, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    settings = {"group": "g", "enable_auto_commit": False}
    async with new_consumer(world, **settings) as consumer:
        consumer.assign([A])
        fetcher, state = consumer._driver.fetcher, consumer._driver.positions.states[A]
        requests, raised = fetcher.requests, []

        def fails_behind_the_first_take(*arguments: Any) -> Any:
            if state.position == 3 and not raised:
                raised.append(Bug())
                raise raised[0]
            return requests(*arguments)

        monkeypatch.setattr(fetcher, "requests", fails_behind_the_first_take)
        with pytest.raises(Bug):
            await drained(consumer, poll, 3)
        await consumer.commit()
        assert committed(world)[-1][A] == 0
        assert await drained(consumer, poll, 3) == [b"0", b"1", b"2"]


@story()
@pytest.mark.parametrize("poll", [as_records, as_columns])
async def test_records_are_fetched_again_if_reading_them_raises(
    world: Story, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for lack of memory, behind some records that were decoded."""
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"0", b"1")
    append(world, B, b"2", b"3")
    async with consuming(world, A, B) as consumer:
        raises_once(monkeypatch, PartitionBuffer, "take", after=True)
        with pytest.raises(Bug):
            await drained(consumer, poll, 4)
        assert sorted(await drained(consumer, poll, 4)) == [b"0", b"1", b"2", b"3"]
        assert consumer.positions() == {A: 2, B: 2}
        assert await consumer.poll(0.1) == []
        assert consumer._driver.fetcher.buffered_bytes == 0


class Stops(BaseException):
    """An exception that ends a program, as KeyboardInterrupt."""


@story()
@pytest.mark.parametrize("stage", ["on_record", "on_poll"])
async def test_records_are_returned_by_the_next_poll_if_an_interceptor_ends_the_program(
    world: Story, stage: str
) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")

    def stops(_self: Any, found: Any) -> None:
        if stage == "on_poll" or found.offset == 1:
            raise Stops

    interceptor = type("Stopping", (ConsumerInterceptor,), {stage: stops})()
    async with consuming(world, A, interceptors=[interceptor]) as consumer:
        with pytest.raises(Stops):
            await drained(consumer, as_records, 3)
        assert consumer.positions() == {A: 0}
        setattr(type(interceptor), stage, lambda _self, _found: None)
        consumer._loop._check._on_record = consumer._loop._check._on_poll = None
        assert await drained(consumer, as_records, 3) == [b"0", b"1", b"2"]


def test_large_batches_are_decompressed_on_the_loop_while_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[threading.Thread] = []

    def no_thread(thread: threading.Thread) -> None:
        attempts.append(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        asyncio.run(decompressed_without_a_thread(2))
    assert len(attempts) == 2
    (warning,) = caplog.records
    assert "on the event loop, no thread can be started: RuntimeError(" in warning.message
    asyncio.run(decompressed_in_a_thread())


async def decompressed_without_a_thread(count: int) -> None:
    rig = Rig(1, decoder={"offload_bytes": decompression.OFFLOAD_BYTES})
    changes: list[None] = []
    thread = Decompression(rig.fetcher, lambda: changes.append(None), Owner("Consumer").guard)
    for number in range(count):
        rig.answer(rig.request(), data(batch(LARGE, codec=4, base_offset=number)))
        assert rig.take() == []
        thread.start_jobs(asyncio.get_running_loop())
        assert rig.take() == [(0, number)]
    assert len(changes) == count
    thread.close()


def empty_log(world: Story) -> None:
    """The log ends before all positions, in the same leader epoch."""
    log = world.broker.cluster.topics["orders"].partitions[0]
    log.log.clear()
    log.end = 0


class Seen(ConsumerInterceptor):
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def on_record(self, record: Any) -> None:
        self.values.append(record.value)


@story()
async def test_interceptors_see_records_that_have_the_offsets_of_former_ones(world: Story) -> None:
    """The log was replaced by a shorter one: the broker answers OFFSET_OUT_OF_RANGE, and the position is reset."""
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    seen = Seen()
    async with consuming(world, A, interceptors=[seen]) as consumer:
        assert await values(consumer, 3) == [b"0", b"1", b"2"]
        empty_log(world)
        append(world, A, b"3", b"4")
        assert await values(consumer, 2) == [b"3", b"4"]
    assert seen.values == [b"0", b"1", b"2", b"3", b"4"]


@story()
async def test_stream_continues_if_records_get_the_offsets_of_those_it_handles(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    async with consuming(world, A, max_poll_records=4) as consumer:
        (stream,) = consumer.streams(1, explicit=True)
        handled = [await anext(stream) for _ in range(3)]
        empty_log(world)
        append(world, A, b"3", b"4")
        again = [await anext(stream) for _ in range(2)]
        assert [each.value for each in again] == [b"3", b"4"]
        assert [stream.complete(each) for each in handled] == [False] * 3
        assert [stream.complete(each) for each in again] == [True] * 2
        append(world, A, *[b"%d" % number for number in range(5, 15)])
        for number in range(5, 15):
            record = await anext(stream)
            assert (record.value, stream.complete(record)) == (b"%d" % number, True)
