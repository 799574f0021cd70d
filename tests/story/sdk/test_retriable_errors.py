"""Every retriable error of each request of a client is retried; reading and producing are in `test_complaints_*`."""

from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.protocol.messages.sync_group import SyncGroupRequest
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, append, committed, new_consumer, values
from tests.story.sdk.producer_rig import producing

RETRIABLE = [each for each in KafkaErrorCode if each.retriable]
GROUP_REQUESTS = [
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
]
each_error = pytest.mark.parametrize("code", RETRIABLE, ids=lambda code: code.name)


@each_error
@pytest.mark.parametrize("request_class", GROUP_REQUESTS, ids=lambda each: each.__name__)
def test_every_retriable_error_of_a_member_is_retried(request_class: Any, code: KafkaErrorCode) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, b"0")
        rule = world.broker.on(request_class, error=code, times=2)
        consumer = new_consumer(world, group="g", group_protocol="classic", enable_auto_commit=False)
        await consumer.start()
        consumer.subscribe("orders")
        assert await values(consumer, 1) == [b"0"]
        assert await consumer.poll(10.0) == []
        append(world, A, b"1")
        assert await values(consumer, 1) == [b"1"]
        await consumer.commit()
        assert committed(world)[-1] == {A: 2}
        began = world.now
        await consumer.close()
        assert world.now - began < 10.0
        assert rule.used == (1 if request_class is LeaveGroupRequest else 2)

    run()


@each_error
@pytest.mark.parametrize("request_class", [InitProducerIdRequest, MetadataRequest], ids=lambda each: each.__name__)
def test_every_retriable_error_of_a_producers_start_is_retried(request_class: Any, code: KafkaErrorCode) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        rule = world.broker.on(request_class, error=code, times=2)
        async with producing(world) as producer:
            assert (await producer.send("orders", b"0")).offset == 0
        assert rule.used == 2

    run()
