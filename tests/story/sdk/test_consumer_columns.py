"""`poll_columns` beside `poll`: the same positions, commits and errors, in virtual time."""

import pytest
from kafkalite_sdk.columns import ColumnBatch
from kafkalite_sdk.interceptors import ConsumerInterceptor

from kafkalite.errors import ClientUseError, CorruptRecordError
from tests.kit.arrow_reader import read_rows
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, B, append, committed, consuming, values


def damage(world: Story, number: int) -> None:
    """Change a byte of a batch of partition A."""
    log = world.broker.cluster.topics["orders"].partitions[0].log
    log[number].data = log[number].data[:-1] + bytes([log[number].data[-1] ^ 1])


def columns(batch: ColumnBatch) -> list[tuple[object, ...]]:
    assert batch.column_names == ("partition", "offset", "value")
    return read_rows(batch)


WANTED = ("partition", "offset", "value")


@story()
async def test_poll_and_poll_columns_share_positions(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"a0", b"a1", b"a2", b"a3")
    async with consuming(world, A) as consumer:
        assert await values(consumer, 1, max_records=1) == [b"a0"]
        assert columns(await consumer.poll_columns(10.0, 2, columns=WANTED)) == [(0, 1, b"a1"), (0, 2, b"a2")]
        assert await consumer.position(A) == 3
        assert await values(consumer, 1) == [b"a3"]
        consumer.seek(A, 1)
        assert len(await consumer.poll_columns(10.0)) == 3


@story()
async def test_records_that_async_for_has_taken_come_first(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a0", b"a1", b"a2")
    async with consuming(world, A) as consumer:
        async for record in consumer:
            assert record.value == b"a0"
            break
        assert await consumer.position(A) == 1
        assert columns(await consumer.poll_columns(10.0, 1, columns=WANTED)) == [(0, 1, b"a1")]
        assert await consumer.position(A) == 2
        assert columns(await consumer.poll_columns(10.0, columns=WANTED)) == [(0, 2, b"a2")]


@story()
async def test_a_batch_has_the_records_of_several_partitions(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"a0", b"a1")
    append(world, B, b"b0")
    async with consuming(world, A, B) as consumer:
        rows: list[object] = []
        while len(rows) < 3:
            rows += columns(await consumer.poll_columns(10.0, columns=WANTED))
        assert sorted(rows, key=str) == [(0, 0, b"a0"), (0, 1, b"a1"), (1, 0, b"b0")]


@story()
async def test_bytes_limit_a_batch_and_the_rest_comes_next(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *[bytes(100)] * 10)
    async with consuming(world, A) as consumer:
        counts = [len(await consumer.poll_columns(10.0, max_bytes=250, columns=["value"])) for _ in range(4)]
        assert counts == [3, 3, 3, 1]


@story()
async def test_timeout_returns_a_batch_without_records(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    async with consuming(world, A) as consumer:
        before = world.now
        batch = await consumer.poll_columns(3.0)
        assert not batch and world.now - before == pytest.approx(3.0, abs=0.01)


@story()
async def test_columns_are_committed_as_records_are(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a0", b"a1", b"a2")
    async with consuming(world, A, group="g", enable_auto_commit=False) as consumer:
        await consumer.poll_columns(10.0, 2)
        await consumer.commit()
        assert committed(world) == [{("orders", 0): 2}]
    async with consuming(world, A, group="g") as consumer:
        assert len(await consumer.poll_columns(10.0)) == 1
    assert committed(world)[-1] == {("orders", 0): 3}


@story()
async def test_a_damaged_batch_is_raised_behind_the_records_before_it(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    for value in (b"a0", b"a1", b"a2"):
        append(world, A, value)
    damage(world, 1)
    async with consuming(world, A) as consumer:
        assert columns(await consumer.poll_columns(10.0, columns=WANTED)) == [(0, 0, b"a0")]
        with pytest.raises(CorruptRecordError, match="orders-0 at offset 1: a batch is corrupt") as caught:
            await consumer.poll_columns(10.0)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 1)
        assert await consumer.position(A) == 1
        consumer.seek(A, caught.value.next_offset)
        assert columns(await consumer.poll_columns(10.0, columns=WANTED)) == [(0, 2, b"a2")]


@story()
async def test_invalid_arguments_change_nothing(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a0")
    async with consuming(world, A) as consumer:
        with pytest.raises(ValueError, match="expected a number above 0"):
            await consumer.poll_columns(10.0, 0)
        with pytest.raises(ValueError, match="expected different names"):
            await consumer.poll_columns(10.0, columns=["values"])
        assert await values(consumer, 1) == [b"a0"]


@story()
async def test_interceptors_of_records_are_not_bypassed(world: Story) -> None:
    class Seen(ConsumerInterceptor):
        def on_poll(self, records: object) -> None:
            raise AssertionError("poll_columns has no record objects")

    world.broker.cluster.create_topic("orders")
    append(world, A, b"a0")
    async with consuming(world, A, interceptors=[Seen()]) as consumer:
        with pytest.raises(ClientUseError, match="poll_columns calls no interceptors of records"):
            await consumer.poll_columns(10.0)


@story()
async def test_lines_share_positions_with_poll(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"a0", b"", b"a2", b"a3")
    async with consuming(world, A, B) as consumer:
        lines = await consumer.poll_lines(10.0, 3)
        assert (len(lines), bytes(lines.value_bytes)) == (3, b"a0\n\na2\n")
        assert consumer.positions() == {A: 3, B: 0}
        assert await values(consumer, 1) == [b"a3"]
        consumer.seek(A, 2)
        assert bytes((await consumer.poll_lines(10.0, line_end=b"\0")).value_bytes) == b"a2\0a3\0"
        assert bytes((await consumer.poll_lines(0)).value_bytes) == b""
