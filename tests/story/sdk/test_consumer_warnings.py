"""What a consumer reports without an exception: topics that do not exist, and a missed poll interval."""

import asyncio
from typing import Any

import pytest
from kafkalite_sdk import TopicPartition

from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import append, new_consumer


@story()
@pytest.mark.parametrize("protocol", ["classic", None])
async def test_topics_that_the_cluster_does_not_have_are_reported_once(
    world: Story, protocol: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def reports() -> list[str]:
        return [each.message for each in caplog.records if "the cluster does not have it" in each.message]

    options: dict[str, Any] = {} if protocol is None else {"group": "g", "group_protocol": protocol}
    async with new_consumer(world, **options) as consumer:
        if protocol is None:
            consumer.assign([TopicPartition("typo", 0)])
        else:
            consumer.subscribe("typo")
        polling = asyncio.ensure_future(consumer.poll(60.0))
        await pass_time(0.5)
        assert reports() == []  # a topic may have been created a moment ago
        await pass_time(10.0)
        reader = "a consumer" if protocol is None else "a consumer of group g"
        text = "the cluster does not have it; check the name, or create the topic"
        assert reports() == [f"{reader} reads topic typo: {text}"]
        health = consumer.health()
        assert f"topic typo: {text}" in str(health.waiting_for)
        if protocol is not None:
            assert health.brokers[1].connected
        world.broker.cluster.create_topic("typo")
        append(world, TopicPartition("typo", 0), b"0")
        assert [each.value for each in await polling] == [b"0"]
        assert consumer.health().waiting_for is None
        world.broker.cluster.delete_topic("typo")
        assert await consumer.poll(20.0) == []
        assert len(reports()) == 2
        assert "topic typo" in str(consumer.health().waiting_for)


@story()
async def test_exceeded_poll_interval_is_logged_when_it_happens(world: Story, caplog: pytest.LogCaptureFixture) -> None:
    world.broker.cluster.create_topic("orders")
    async with new_consumer(world, group="g", group_protocol="classic", max_poll_interval_ms=5000) as consumer:
        consumer.subscribe("orders")
        assert await consumer.poll(4.0) == []
        await pass_time(6.0)
        (warning,) = [each.message for each in caplog.records if "poll was not called for 5 s" in each.message]
        assert "group g" in warning and "max_poll_interval_ms" in warning
