"""A member that begins with the next record, without committed offsets."""

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, B, append, new_consumer, values


@story()
async def test_a_record_behind_a_known_position_is_read(world: Story) -> None:
    """As docs/troubleshooting.md shows it."""
    world.broker.cluster.create_topic("orders", 2)
    retried = world.broker.on(ListOffsetsRequest, error=KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, times=3)
    options = {"group": "g", "group_protocol": "classic", "auto_offset_reset": "latest"}
    async with new_consumer(world, **options) as consumer:
        consumer.subscribe("orders")
        while not consumer.assignment():
            assert await consumer.poll(0.1) == []
        for each in consumer.assignment():
            assert await consumer.position(each) == 0
        assert retried.used == 3
        append(world, A, b"a")
        append(world, B, b"b")
        assert sorted(await values(consumer, 2)) == [b"a", b"b"]
