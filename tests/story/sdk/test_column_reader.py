"""Ranges of offsets as columns: exact ends, several fetches, moved leaders, removed records; in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.columns import ColumnReader

from kafkalite.errors import ClientUseError, CorruptRecordError, KafkaTimeoutError, OffsetRangeError
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.arrow_reader import read_rows
from tests.kit.server import batch
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.test_consumer_columns import damage

VALUE = bytes(100)
FETCH_BYTES = 2000


@asynccontextmanager
async def reading(world: Story, **options: Any) -> AsyncIterator[ColumnReader]:
    """A reader whose responses have a few batches."""
    environment = Environment(dial=world.network.dial, random=world.random)
    settings: Any = {"max_partition_fetch_bytes": FETCH_BYTES, **options}
    async with ColumnReader(world.broker.bootstrap, environment=environment, **settings) as reader:
        yield reader


def fill(world: Story, batches: int, records: int = 5, codec: int = 0) -> None:
    """Append batches to partition 0 of `orders`."""
    world.broker.cluster.create_topic("orders")
    for _ in range(batches):
        log(world).append(batch(*[VALUE] * records, codec=codec))


def log(world: Story) -> Any:
    return world.broker.cluster.topics["orders"].partitions[0]


async def offsets(reader: ColumnReader, start: int, end: int, **options: Any) -> list[int]:
    settings: Any = {"columns": ["offset"], **options}
    return [row[0] async for found in reader.read("orders", 0, start, end, **settings) for row in read_rows(found)]


@story()
async def test_both_ends_are_exact(world: Story) -> None:
    fill(world, 40)
    async with reading(world) as reader:
        for start, end in ((0, 200), (0, 1), (3, 4), (7, 193), (199, 200), (5, 5), (12, 60)):
            assert await offsets(reader, start, end) == list(range(start, end))


@story()
async def test_range_begins_as_soon_as_its_leader_is_known(world: Story) -> None:
    """Without the pause before a retry: a job that reads many small ranges would consist of pauses."""
    fill(world, 1)
    async with reading(world) as reader:
        for _ in range(3):
            began = world.now
            assert await offsets(reader, 0, 5) == [0, 1, 2, 3, 4]
            assert world.now - began < 0.05


@story()
async def test_batches_have_their_size(world: Story) -> None:
    fill(world, 40)
    async with reading(world) as reader:
        sizes = [len(found) async for found in reader.read("orders", 0, 0, 195, columns=["value"], batch_bytes=1000)]
        assert sum(sizes) == 195 and set(sizes[:-1]) == {10}  # 104 bytes of a record


@story()
async def test_several_fetches_are_open(world: Story) -> None:
    fill(world, 100)
    world.broker.on(FetchRequest, delay_s=1.0)
    async with reading(world, fetches=4) as reader:
        began = world.now
        assert await offsets(reader, 0, 500) == list(range(500))
        requests = len(world.broker.requests(FetchRequest))
        assert world.now - began < requests / 2


@story()
async def test_unread_responses_are_bounded(world: Story) -> None:
    fill(world, 100)
    async with reading(world, fetches=3) as reader:
        batches = reader.read("orders", 0, 0, 500, batch_bytes=1)
        await anext(batches)
        await pass_time(30.0)
        assert len(world.broker.requests(FetchRequest)) <= 1 + 3
        await batches.aclose()


@story()
async def test_offsets_that_compaction_has_removed_are_skipped(world: Story) -> None:
    fill(world, 40)
    kept = log(world).log
    del kept[10:15], kept[-10:-6]
    missing = {*range(50, 75), *range(150, 170)}
    async with reading(world) as reader:
        for start, end in ((0, 200), (52, 60), (40, 60), (60, 80), (0, 165), (150, 170)):
            assert await offsets(reader, start, end) == [each for each in range(start, end) if each not in missing]


@story(nodes=3)
async def test_a_moved_leader_is_followed(world: Story) -> None:
    fill(world, 60)
    async with reading(world) as reader:
        found: list[int] = []
        async for each in reader.read("orders", 0, 0, 300, columns=["offset"], batch_bytes=400):
            found += [row[0] for row in read_rows(each)]
            if len(found) in (50, 150):
                log(world).leader = log(world).leader % 3 + 1
                log(world).new_epoch()
        assert found == list(range(300))


@story()
async def test_retention_that_comes_first_names_the_range(world: Story) -> None:
    fill(world, 40)
    async with reading(world) as reader:
        batches = reader.read("orders", 0, 0, 200, columns=["offset"], batch_bytes=8)
        assert read_rows(await anext(batches)) == [(0,)]
        partition = log(world)
        del partition.log[:35]
        partition.log_start = 175
        with pytest.raises(OffsetRangeError, match=r"offsets 0 to 199 of orders-0 .* retention or a trunc") as caught:
            async for _ in batches:
                pass
        error = caught.value
        assert (error.topic, error.partition, error.start, error.end) == ("orders", 0, 0, 200)
        assert 0 < error.offset < 175
        assert await offsets(reader, 175, 200) == list(range(175, 200))


@story()
async def test_truncation_that_comes_first_names_the_range(world: Story) -> None:
    fill(world, 40)
    async with reading(world) as reader:
        log(world).truncate(100)
        with pytest.raises(OffsetRangeError, match="offsets 150 to 199 of orders-0 cannot be read at 150"):
            await offsets(reader, 150, 200)
        began = world.now
        with pytest.raises(OffsetRangeError, match="at 100: no records within 20 s: the log ends at offset 100"):
            await offsets(reader, 90, 200, timeout=20.0)
        assert world.now - began < 25.0


@story()
async def test_broker_that_does_not_answer_has_lost_nothing(world: Story) -> None:
    fill(world, 40)
    async with reading(world) as reader:
        for frozen in (True, False):
            broker = world.broker.nodes[1]
            broker.freeze() if frozen else broker.stop()
            with pytest.raises(KafkaTimeoutError, match="orders-0 at offset 90: no records within 20 s"):
                await offsets(reader, 90, 200, timeout=20.0)
            if frozen:
                broker.thaw()
            else:
                await broker.start()
            assert await offsets(reader, 90, 200) == list(range(90, 200))


@story()
async def test_partition_without_a_leader_has_lost_nothing(world: Story) -> None:
    fill(world, 40)
    async with reading(world) as reader:
        leader, log(world).leader = log(world).leader, -1
        with pytest.raises(KafkaTimeoutError, match="no records within 20 s: orders-0 has no leader"):
            await offsets(reader, 90, 200, timeout=20.0)
        log(world).leader = leader
        assert await offsets(reader, 90, 200) == list(range(90, 200))


@story()
async def test_a_range_whose_end_is_appended_later_is_awaited(world: Story) -> None:
    fill(world, 2)
    async with reading(world) as reader:
        asyncio.get_running_loop().call_later(5.0, log(world).append, batch(VALUE, VALUE))
        assert await offsets(reader, 8, 12) == [8, 9, 10, 11]


@story()
async def test_a_damaged_batch_is_raised_behind_the_records_before_it(world: Story) -> None:
    fill(world, 40)
    damage(world, 20)
    async with reading(world) as reader:
        found: list[int] = []
        with pytest.raises(CorruptRecordError, match="orders-0 at offset 100") as caught:
            async for each in reader.read("orders", 0, 3, 200, columns=["offset"]):
                found += [row[0] for row in read_rows(each)]
        assert found == list(range(3, 100))
        assert await offsets(reader, caught.value.next_offset, 200) == list(range(105, 200))
        assert await offsets(reader, 0, 100) == list(range(100))


@story()
async def test_a_topic_that_is_created_again_ends_the_read(world: Story) -> None:
    fill(world, 40)
    async with reading(world) as reader:
        batches = reader.read("orders", 0, 0, 200, columns=["offset"], batch_bytes=8)
        await anext(batches)
        del world.broker.cluster.topics["orders"]
        await pass_time(1.0)
        fill(world, 40)
        with pytest.raises(OffsetRangeError, match="orders-0"):
            async for _ in batches:
                pass


@story()
async def test_many_ranges_share_a_reader(world: Story) -> None:
    fill(world, 40)
    async with reading(world) as reader:
        found = await asyncio.gather(*(offsets(reader, start, start + 50) for start in range(0, 200, 50)))
        assert found == [list(range(start, start + 50)) for start in range(0, 200, 50)]


@story()
async def test_close_ends_an_open_read(world: Story) -> None:
    fill(world, 2)
    async with reading(world) as reader:
        task = asyncio.ensure_future(offsets(reader, 0, 20))
        await pass_time(1.0)
        await reader.close()
        with pytest.raises(ClientUseError, match="closed"):
            await task


@story()
async def test_invalid_arguments_are_rejected(world: Story) -> None:
    fill(world, 1)
    with pytest.raises(TypeError, match="ColumnReader has no argument 'group'"):
        ColumnReader("localhost:9092", group="g")  # type: ignore[call-arg]
    async with reading(world) as reader:
        with pytest.raises(ValueError, match="expected 0 <= start <= end"):
            await offsets(reader, 5, 3)
        with pytest.raises(ValueError, match="expected different names"):
            await offsets(reader, 0, 3, columns=["values"])


@pytest.mark.parametrize("replica", [1, 9], ids=["leader", "unknown broker"])
def test_preferred_replica_that_cannot_serve_is_asked_again_after_a_pause(replica: int) -> None:
    @story(nodes=2)
    async def run(world: Story) -> None:
        fill(world, 4)

        def refer(response: FetchResponse) -> None:
            (data,) = response.responses[0].partitions
            data.preferred_read_replica, data.records = replica, b""

        world.broker.on(FetchRequest, edit=refer, times=4)
        async with reading(world, retry_backoff_ms=100) as reader:
            began = world.now
            assert await offsets(reader, 0, 20) == list(range(20))
            assert world.now - began > 4 * 0.08

    run()
