"""The consumer of the SDK on a real broker: positions, times, claims, rewinds; on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from kafkalite_sdk import Consumer, Producer, TopicPartition

from kafkalite.errors import UnsupportedVersionError
from tests.compat.conftest import MakeTopic, unused_name
from tests.kit.brokers import IS_KAFKALITE

START_MS = int(time.time() - 3_600) * 1000  # within the default retention
RECORDS = 10
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Run a story on an event loop; it fails if the loop reports anything."""

    def on_loop(story: Awaitable[None]) -> None:
        async def main() -> None:
            reports: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
            async with asyncio.timeout(60):
                await story
            assert asyncio.all_tasks() == {asyncio.current_task()} and not reports

        with asyncio.Runner(debug=True, loop_factory=LOOPS[request.param]) as runner:
            runner.run(main())

    return on_loop


async def fill(address: str, topic: str, partitions: int) -> None:
    """Send records whose timestamps are a second apart."""
    async with Producer(address) as producer:
        for number in range(RECORDS):
            for partition in range(partitions):
                timestamp = START_MS + number * 1000
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=timestamp)


async def offsets(consumer: Consumer, count: int) -> dict[int, list[int]]:
    """The offsets of the next records by partition."""
    seen: dict[int, list[int]] = {}
    while sum(map(len, seen.values())) < count:
        for each in await consumer.poll(10.0):
            seen.setdefault(each.partition, []).append(each.offset)
    return seen


def test_positions_times_and_commits(address: str, new_topic: MakeTopic, run: Callable[..., None]) -> None:
    topic, group = new_topic(2), unused_name("positions")
    one, two = (TopicPartition(topic, number) for number in range(2))

    async def story() -> None:
        await fill(address, topic, 2)
        async with Consumer(address, group=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.assign([one, two])
            assert await offsets(consumer, 2 * RECORDS) == {key: list(range(RECORDS)) for key in (0, 1)}
            assert set(consumer.lag().values()) == {0}
            await consumer.commit()
            consumer.seek_to_time(START_MS + 7000, one)
            consumer.seek_to_end(two)
            assert await offsets(consumer, 3) == {0: [7, 8, 9]}
            found = await consumer.offsets_for_times({one: START_MS + 1500, two: START_MS + 99_000})
            assert found[one] is not None and (found[one].offset, found[one].timestamp_ms) == (2, START_MS + 2000)
            assert found[two] is None
            assert await consumer.beginning_offsets() == {one: 0, two: 0}
            assert await consumer.end_offsets() == {one: RECORDS, two: RECORDS}
            await consumer.commit({one: 4})
        async with Consumer(address, group=group, auto_offset_reset="none") as consumer:
            consumer.assign([one, two])
            assert [await consumer.position(each) for each in (one, two)] == [4, RECORDS]
            async for record in consumer:
                assert (record.partition, record.offset, record.value) == (0, 4, b"4")
                break
        async with Consumer(address, group=group) as consumer:
            committed = await consumer.committed([one, two])
            assert [each.offset for each in committed.values() if each is not None] == [5, RECORDS]

    run(story())


def test_rewind_of_a_running_group(group_address: str, new_group_topic: MakeTopic, run: Callable[..., None]) -> None:
    topic, group = new_group_topic(2), unused_name("rewind")
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        await fill(group_address, topic, 2)
        for protocol in ("classic", "consumer"):
            options = {"group": f"{group}-{protocol}", "group_protocol": protocol, "auto_offset_reset": "earliest"}
            async with Consumer(group_address, **options) as consumer:
                consumer.subscribe(topic)
                await offsets(consumer, 2 * RECORDS)
                await consumer.commit()
                if not IS_KAFKALITE:
                    with pytest.raises(UnsupportedVersionError, match="needs kafkalite"):
                        await consumer.rewind({partition: 0})
                    continue
                assert await consumer.rewind(timestamps_ms={partition: START_MS + 6000}) == {partition: 6}
                assert await offsets(consumer, 4) == {0: [6, 7, 8, 9]}

    run(story())


def test_static_claim_of_a_partition(group_address: str, new_group_topic: MakeTopic, run: Callable[..., None]) -> None:
    topic, group = new_group_topic(3), unused_name("claim")

    async def story() -> None:
        await fill(group_address, topic, 3)
        options = {"group": group, "auto_offset_reset": "earliest"}
        async with Consumer(group_address, **options) as claiming:
            claiming.add_topic(topic, partition=2)
            if not IS_KAFKALITE:
                with pytest.raises(UnsupportedVersionError, match="assign"):
                    await claiming.poll(30.0)
                return
            assert await offsets(claiming, RECORDS) == {2: list(range(RECORDS))}
            assert claiming.health().group_protocol == "registered"
            async with Consumer(group_address, **options) as other:
                other.subscribe(topic)
                reading = asyncio.ensure_future(offsets(other, 2 * RECORDS))
                while not reading.done():
                    await claiming.poll(0.2)
                assert await reading == {key: list(range(RECORDS)) for key in (0, 1)}
                assert {each.partition for each in claiming.assignment()} == {2}

    run(story())
