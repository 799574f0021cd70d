"""Errors that the member of a group retries: they are logged for commands, which print those that last."""

import logging

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, append, new_consumer, values


@story()
async def test_error_that_a_member_retries_is_logged_for_tools(world: Story) -> None:
    """A coordinator that cannot write answers so for as long as its disk is full."""
    world.broker.cluster.create_topic("orders")
    world.broker.on(JoinGroupRequest, error=KafkaErrorCode.NOT_COORDINATOR, times=2)
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kafkalite_sdk.retries")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        async with new_consumer(world, group="g", group_protocol="classic") as consumer:
            consumer.subscribe("orders")
            append(world, A, b"a")
            assert await values(consumer, 1) == [b"a"]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert len(found) == 2 and all(each.startswith("group g: NOT_COORDINATOR (16)") for each in found)
