"""`getmany`: the records of a poll by partition, of all or of some partitions."""

import pytest

from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, B, append, consuming


@story()
async def test_getmany_returns_the_named_partitions_and_the_others_come_later(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"0", b"1", b"2")
    append(world, B, b"3", b"4")
    async with consuming(world, A, B) as consumer:
        assert await consumer.getmany() == {}
        found = await consumer.getmany(A, timeout_ms=5000, max_records=2)
        assert {each: [record.value for record in records] for each, records in found.items()} == {A: [b"0", b"1"]}
        assert consumer.positions() == {A: 2, B: 0}
        found = await consumer.getmany(B, timeout_ms=5000)
        assert {each: [record.value for record in records] for each, records in found.items()} == {B: [b"3", b"4"]}
        began = world.now
        assert await consumer.getmany(B, timeout_ms=2000) == {}
        assert world.now - began == pytest.approx(2.0, abs=0.1)
        assert [record.value for record in (await consumer.getmany())[A]] == [b"2"]
