"""`start` of aiokafka's consumer, while the broker creates its topics."""

import asyncio
from collections.abc import Iterable

import pytest
from kafkalite_sdk.compat.aiokafka import ConsumerRebalanceListener

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.protocol.messages.sync_group import SyncGroupRequest
from kafkalite.protocol.schema import Request
from tests.kit.scripted_broker import Rule
from tests.story.sdk.aiokafka_rig import new_consumer
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import append

BOTH = {TopicPartition("orders", number) for number in range(2)}


class Listener(ConsumerRebalanceListener):
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked)))

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned)))


def creates_slowly(world: Story) -> Rule:
    """The broker creates topics at their first use; until then, as Apache Kafka, it answers that they are unknown."""
    world.broker.cluster.auto_create = 2
    return world.broker.on(
        MetadataRequest,
        when=lambda request: bool(request.topics),
        error=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        times=5,
    )


@story()
async def test_a_member_joins_once_when_its_new_topic_exists(world: Story) -> None:
    creates_slowly(world)
    consumer, listener = new_consumer(world, group_id="g"), Listener()
    consumer.subscribe(["orders"], listener=listener)
    await consumer.start()
    assert await consumer.getmany(timeout_ms=5000) == {}
    assert listener.calls == [("revoked", set()), ("assigned", BOTH)]
    assert len({each.request.member_id for each in world.broker.requests(JoinGroupRequest)} - {""}) == 1
    await consumer.stop()


@story()
async def test_a_member_waits_for_responses_only(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    began = world.now
    async with new_consumer(world, "orders", group_id="g"):
        assert world.now - began < 0.1


@story()
async def test_a_subscription_during_the_start_replaces_the_one_before(world: Story) -> None:
    unknown = creates_slowly(world)
    world.broker.cluster.create_topic("payments", 2)
    consumer = new_consumer(world, "orders", group_id="g")
    starting = asyncio.create_task(consumer.start())
    await unknown.reached()
    assert not starting.done()
    consumer.subscribe(["payments"])
    await starting
    assert {each.topic for each in consumer.assignment()} == {"payments"}
    await consumer.stop()


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_is_stopped_while_it_waits_for_its_topic(group: str | None) -> None:
    @story()
    async def run(world: Story) -> None:
        unknown = world.broker.on(
            MetadataRequest,
            when=lambda request: bool(request.topics),
            error=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        consumer = new_consumer(world, "orders", group_id=group)
        starting = asyncio.create_task(consumer.start())
        await unknown.reached()
        await consumer.stop()
        (raised,) = await asyncio.gather(starting, return_exceptions=True)
        assert isinstance(raised, Exception), raised
        assert world.broker.requests(JoinGroupRequest) == []

    run()


# records that are sent right after `start` are read, also with auto_offset_reset="latest"


async def is_read_after_start(world: Story, how: str) -> None:
    """Start a consumer of "orders", append one record to each partition at once: both are returned.

    Arguments:
        world: has the scripted cluster.
        how: "assign", "subscribe", or "group" for a subscription in a group.
    """
    consumer = new_consumer(world, group_id="g" if how == "group" else None, auto_offset_reset="latest")
    if how == "assign":
        consumer.assign(BOTH)
    else:
        consumer.subscribe(["orders"])
    await consumer.start()
    for each in BOTH:
        append(world, each, b"new")
    try:
        async with asyncio.timeout(30.0):
            records = [await consumer.getone() for _ in BOTH]
    finally:
        await consumer.stop()
    assert {TopicPartition(each.topic, each.partition) for each in records} == BOTH


def no_leader(response: MetadataResponse) -> None:
    """The leaders of new partitions are not elected yet."""
    for each in (partition for topic in response.topics for partition in topic.partitions):
        each.leader_id, each.error_code = -1, KafkaErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("how", ["assign", "subscribe", "group"])
def test_start_waits_for_the_leaders_of_a_new_topic(how: str) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.auto_create = 2
        elected = world.broker.on(MetadataRequest, when=lambda request: bool(request.topics), edit=no_leader, times=5)
        await is_read_after_start(world, how)
        assert elected.used == 5

    run()


RETRIED: list[tuple[type[Request], KafkaErrorCode]] = [
    (FindCoordinatorRequest, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE),
    (JoinGroupRequest, KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (SyncGroupRequest, KafkaErrorCode.REBALANCE_IN_PROGRESS),
    (OffsetFetchRequest, KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (OffsetFetchRequest, KafkaErrorCode.UNSTABLE_OFFSET_COMMIT),
    (ListOffsetsRequest, KafkaErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ListOffsetsRequest, KafkaErrorCode.OFFSET_NOT_AVAILABLE),
]


@pytest.mark.parametrize(("request_type", "code"), RETRIED, ids=lambda each: getattr(each, "__name__", str(each)))
def test_start_in_a_group_survives_a_new_broker(request_type: type[Request], code: KafkaErrorCode) -> None:
    @story()
    async def run(world: Story) -> None:
        creates_slowly(world)
        rule = world.broker.on(request_type, error=code, times=3)
        await is_read_after_start(world, "group")
        assert rule.used == 3

    run()


@story()
async def test_start_has_the_positions_of_the_rebalance_that_began_meanwhile(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    unknown = world.broker.on(ListOffsetsRequest, error=KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
    world.broker.on(HeartbeatRequest, error=KafkaErrorCode.REBALANCE_IN_PROGRESS)
    again = world.broker.on(JoinGroupRequest, when=lambda request: request.member_id != "", skip=1, delay_s=1.0)
    reading = asyncio.create_task(is_read_after_start(world, "group"))
    await again.reached()
    unknown.end()
    await reading


@story()
async def test_start_does_not_wait_long_for_a_partition_that_is_offline(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    world.broker.cluster.move_leader("orders", 1, -1)
    began = world.now
    async with new_consumer(world, "orders", group_id="g", auto_offset_reset="latest") as consumer:
        assert world.now - began < 6
        append(world, TopicPartition("orders", 0), b"new")
        assert (await consumer.getone()).value == b"new"
