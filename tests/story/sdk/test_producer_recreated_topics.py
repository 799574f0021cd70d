"""Records of partitions that a topic no longer has when it is created again with fewer; in virtual time."""

import asyncio

import pytest

from kafkalite.errors import KafkaErrorCode, error_class
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.producer_rig import new_producer, producing, values

UnknownPartition = error_class(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def create_again(world: Story, partitions: int) -> None:
    world.broker.cluster.delete_topic("orders")
    world.broker.cluster.create_topic("orders", partitions)


@story()
async def test_a_lingering_record_of_a_removed_partition_fails_and_flush_and_close_end(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 3)
    producer = new_producer(world, metadata_max_age_ms=500, linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    producer.send("orders", b"v", partition=0)
    await producer.flush()
    lingering = producer.send("orders", b"lost", partition=2)
    create_again(world, 1)
    await pass_time(1)
    assert isinstance(lingering.exception(), UnknownPartition)
    assert producer.metrics().buffered_bytes == 0
    await producer.flush(timeout=1)
    await producer.close(timeout=1)


@story(nodes=2)
async def test_a_record_of_a_removed_partition_that_was_in_flight_fails_when_its_request_ends(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 3)
    async with producing(world, metadata_max_age_ms=500, request_timeout_ms=2000, max_in_flight=1) as producer:
        await asyncio.gather(*(producer.send("orders", b"v", partition=number) for number in range(3)))
        stalled = world.broker.on(ProduceRequest, stall=True)
        sent = producer.send("orders", b"lost", partition=2)
        await stalled.reached()
        behind = producer.send("orders", b"behind", partition=2)
        create_again(world, 1)
        await pass_time(1)
        assert isinstance(behind.exception(), UnknownPartition)
        with pytest.raises(UnknownPartition):
            await sent
        assert producer.metrics().buffered_bytes == 0


@story(nodes=2)
async def test_records_of_a_partition_that_was_removed_and_added_again_are_appended_once(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    async with producing(world, metadata_max_age_ms=500, request_timeout_ms=5000) as producer:
        await asyncio.gather(*(producer.send("orders", b"v", partition=number) for number in range(2)))
        stalled = world.broker.on(ProduceRequest, stall=True)
        lost = producer.send("orders", b"lost", partition=1)
        await stalled.reached()
        create_again(world, 1)
        await pass_time(1)
        create_again(world, 2)
        await pass_time(1)
        sent = [producer.send("orders", b"%d" % number, partition=1) for number in range(3)]
        with pytest.raises(UnknownPartition):
            await lost
        assert [each.offset for each in await asyncio.gather(*sent)] == [0, 1, 2]
    assert values(world, partition=1) == [b"0", b"1", b"2"]
