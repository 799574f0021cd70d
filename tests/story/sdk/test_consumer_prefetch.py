"""A consumer that fetches ahead: what is sent while the application processes records, and what a seek drops."""

import pytest

from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.testing.memory_network import MemoryTransport
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, append, consuming, values


@story()
async def test_next_fetch_leaves_before_a_poll_that_waited_returns(world: Story) -> None:
    """The broker reads the next records while those of the response are decoded."""
    world.broker.cluster.create_topic("orders")
    keys: list[int] = []
    write = MemoryTransport.write

    def recorded(transport: MemoryTransport, data: bytes) -> None:
        keys.append(int.from_bytes(bytes(data[4:6])))
        write(transport, data)

    async with consuming(world, A) as consumer:
        append(world, A, b"a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryTransport, "write", recorded)
            assert [each.value for each in await consumer.poll(10.0)] == [b"a"]
            assert keys.count(FetchRequest.api_key) == 2


@story()
async def test_records_are_fetched_while_the_application_processes(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"a")
    append(world, A, b"b")
    async with consuming(world, A, max_poll_records=1) as consumer:
        await values(consumer, 1)
        append(world, A, b"c")
        await values(consumer, 1)
        await pass_time(1.0)
        world.broker.nodes[1].freeze()
        before = world.now
        assert await values(consumer, 1) == [b"c"] and world.now == before
        world.broker.nodes[1].thaw()


@story()
async def test_seek_drops_prefetched_records(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *(b"%d" % number for number in range(10)))
    async with consuming(world, A, max_poll_records=2) as consumer:
        assert await values(consumer, 2) == [b"0", b"1"]
        consumer.seek(A, 7)
        assert await consumer.position(A) == 7
        assert await values(consumer, 2) == [b"7", b"8"]
        consumer.seek_to_beginning(A)
        assert await values(consumer, 1, max_records=1) == [b"0"]
        consumer.seek_to_end()
        assert await consumer.position(A) == 10 and await consumer.poll(1.0) == []


@story()
async def test_paused_partition_keeps_its_prefetched_records(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1")
    async with consuming(world, A) as consumer:
        await values(consumer, 1, max_records=1)
        consumer.pause()
        assert consumer.paused() == {A} and await consumer.poll(1.0) == []
        world.broker.nodes[1].freeze()
        consumer.resume(A)
        assert await values(consumer, 1) == [b"1"] and consumer.paused() == frozenset()
        world.broker.nodes[1].thaw()
