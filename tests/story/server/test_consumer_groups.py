"""Tests consumer groups over the wire (KIP-848): heartbeats, patterns, errors, conversion between protocols."""

import asyncio
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.server.handlers import consumer_group_heartbeat
from kafkalite.server.requests import call, response_arrays
from kafkalite.state.groups.consumer.group_steps import TOPICS_AT_ONCE
from tests.kit.members import assignment, beat_join, fast_heartbeat, given, heartbeat, join, leave, owned, sync
from tests.kit.server import ANSWER_S, Client, running

QUICK = {"group.consumer.assignment.interval.ms": "0"}


@pytest.fixture
async def orders(client: Client) -> Client:
    await client.create("orders", partitions=4)
    return client


async def test_consumer_group_reassigns_partitions_when_a_member_leaves() -> None:
    """The second member gets a partition after the first has confirmed its revocation."""
    async with running(settings=QUICK) as client:
        await client.create("orders", partitions=4)
        topic_id = client.topic_id("orders")
        first = await client.call(beat_join("g", "a", "orders"))
        assert given(first) == {topic_id: [0, 1, 2, 3]}
        second = await client.call(beat_join("g", "b", "orders"))
        assert (second.error_code, given(second)) == (0, {})
        kept = await client.call(
            fast_heartbeat("g", "a", first.member_epoch, topic_partitions=owned(given(first) or {}))
        )
        assert len((given(kept) or {})[topic_id]) == 2
        released = await client.call(
            fast_heartbeat("g", "a", kept.member_epoch, topic_partitions=owned(given(kept) or {}))
        )
        assert released.member_epoch > kept.member_epoch
        taken = await client.call(fast_heartbeat("g", "b", second.member_epoch))
        both = (given(taken) or {})[topic_id] + (given(kept) or {})[topic_id]
        assert sorted(both) == [0, 1, 2, 3]
        left = await client.call(fast_heartbeat("g", "b", -1))
        assert (left.error_code, left.member_epoch) == (0, -1)
        alone = await client.call(fast_heartbeat("g", "a", released.member_epoch))
        assert given(alone) == {topic_id: [0, 1, 2, 3]}


async def test_assignment_of_many_topics_follows_the_join() -> None:
    async with running(settings=QUICK) as client:
        names = [f"t{number:04}" for number in range(TOPICS_AT_ONCE + 1)]
        await client.create(*names)
        joined = await client.call(beat_join("g", "a", *names))
        assert (joined.error_code, joined.member_epoch, given(joined)) == (0, 1, {})
        answer = joined
        async with asyncio.timeout(ANSWER_S):
            while answer.member_epoch == joined.member_epoch:
                answer = await client.call(fast_heartbeat("g", "a", answer.member_epoch))
        assert given(answer) == {client.topic_id(name): [0] for name in names}


async def test_assignment_encoded_in_slices_is_equal(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(5)]
    await client.create(*names, partitions=2)
    joined = await client.call(beat_join("g", "a", *names))
    monkeypatch.setattr(consumer_group_heartbeat, "OBJECTS_MAX", 0)
    monkeypatch.setattr(call, "OBJECTS_MAX", 0)
    monkeypatch.setattr(response_arrays, "PIECE_STRUCTS", 2)
    again = await client.call(beat_join("g", "a", *names))
    assert given(joined) and list((given(again) or {}).items()) == list((given(joined) or {}).items())
    assert (again.error_code, again.member_epoch, again.member_id) == (0, joined.member_epoch, "a")


async def test_broker_chooses_member_id_in_version_0(orders: Client) -> None:
    """Only in v0, and only for a joining member."""
    answer = await orders.call(beat_join("g", "", "orders"), 0)
    assert answer.error_code == 0 and len(answer.member_id) == 22
    assert (await orders.call(fast_heartbeat("g", answer.member_id, answer.member_epoch), 0)).error_code == 0
    assert (await orders.call(beat_join("g", "", "orders"), 1)).error_code == Error.INVALID_REQUEST
    assert (await orders.call(fast_heartbeat("g", "", 1), 0)).error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (beat_join("", "m", "orders"), Error.INVALID_REQUEST),
        (beat_join("g", "m", "orders", rebalance_timeout_ms=-1), Error.INVALID_REQUEST),
        (beat_join("g", "m", "orders", subscribed_topic_names=None), Error.INVALID_REQUEST),
        (beat_join("g", "m", "orders", topic_partitions=owned({bytes(16): [1]})), Error.INVALID_REQUEST),
        (beat_join("g", "m", "orders", instance_id=""), Error.INVALID_REQUEST),
        (beat_join("g", "m", "orders", rack_id=""), Error.INVALID_REQUEST),
        (beat_join("g", "m", "orders", server_assignor="sticky"), Error.UNSUPPORTED_ASSIGNOR),
        (beat_join("g", "m", subscribed_topic_regex="(?<x"), Error.INVALID_REGULAR_EXPRESSION),
        (beat_join("g", "m", subscribed_topic_regex="a{1000}{1000}"), Error.INVALID_REGULAR_EXPRESSION),
        (beat_join("g", "m", subscribed_topic_regex="(" * 30_000), Error.INVALID_REGULAR_EXPRESSION),
        (fast_heartbeat("g", "m", 3), Error.GROUP_ID_NOT_FOUND),
        (fast_heartbeat("g", "m", -1), Error.GROUP_ID_NOT_FOUND),
        (fast_heartbeat("g", "m", -2), Error.INVALID_REQUEST),
        (fast_heartbeat("g", "m", -3), Error.INVALID_REQUEST),
    ],
)
async def test_invalid_consumer_heartbeats_are_rejected(orders: Client, request_: Any, error: Error) -> None:
    answer = await orders.call(request_)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (error, 0, None)
    assert answer.error_message


async def test_old_member_epoch_is_fenced(orders: Client) -> None:
    epoch = (await orders.call(beat_join("g", "m", "orders"))).member_epoch
    assert (await orders.call(fast_heartbeat("g", "m", epoch + 1))).error_code == Error.FENCED_MEMBER_EPOCH
    assert (await orders.call(fast_heartbeat("g", "stranger", epoch))).error_code == Error.UNKNOWN_MEMBER_ID


async def test_static_consumer_member_rejoins_and_fences_duplicates(orders: Client) -> None:
    first = await orders.call(beat_join("g", "a", "orders", instance_id="i"))
    taken = await orders.call(beat_join("g", "b", "orders", instance_id="i"))
    assert taken.error_code == Error.UNRELEASED_INSTANCE_ID
    away = await orders.call(fast_heartbeat("g", "a", -2, instance_id="i"))
    assert (away.error_code, away.member_epoch) == (0, -2)
    back = await orders.call(beat_join("g", "b", "orders", instance_id="i"))
    assert back.error_code == 0 and given(back) == given(first)
    assert (await orders.call(fast_heartbeat("g", "a", 1, instance_id="i"))).error_code == Error.FENCED_INSTANCE_ID


async def test_full_consumer_group_rejects_new_members() -> None:
    async with running(settings={"group.consumer.max.size": "1"}) as client:
        assert (await client.call(beat_join("g", "a", "orders"))).error_code == 0
        assert (await client.call(beat_join("g", "b", "orders"))).error_code == Error.GROUP_MAX_SIZE_REACHED


async def test_consumer_group_assignors_are_configurable() -> None:
    async with running(settings={"group.consumer.assignors": "range"}) as client:
        await client.call(beat_join("g", "a", "orders"))
        (group,) = (await client.call(ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
        assert group.assignor_name == "range"
        refused = await client.call(beat_join("g", "b", "orders", server_assignor="uniform"))
        assert refused.error_code == Error.UNSUPPORTED_ASSIGNOR


async def test_disabled_consumer_protocol_is_unsupported() -> None:
    async with running(settings={"group.coordinator.rebalance.protocols": "classic"}) as client:
        assert (await client.call(beat_join("g", "a", "orders"))).error_code == Error.UNSUPPORTED_VERSION
        (group,) = (await client.call(ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
        assert group.error_code == Error.UNSUPPORTED_VERSION
        assert (await client.call(join("g"), 3)).error_code == 0


async def test_regex_subscription_includes_internal_topics() -> None:
    """As in Kafka. A job evaluates the pattern while heartbeats are served. The whole name must match."""
    async with running(settings=QUICK) as client:
        await client.create("orders-1", "orders-22", "orders-x", "my-orders-1")
        answer = await client.call(beat_join("g", "m", subscribed_topic_regex=r"__consumer_.*|orders-\d+"))
        epoch, has = answer.member_epoch, given(answer)
        while not has:
            answer = await client.call(fast_heartbeat("g", "m", epoch, topic_partitions=owned(has or {})))
            assert answer.error_code == 0
            epoch, has = answer.member_epoch, given(answer) or has
        internal = client.topic_id("__consumer_offsets")
        assert has == {client.topic_id("orders-1"): [0], client.topic_id("orders-22"): [0], internal: [0]}


async def test_group_with_members_keeps_its_protocol() -> None:
    """With a migration policy that forbids conversion."""
    async with running(None, {"group.consumer.migration.policy": "disabled"}) as client:
        await client.create("orders", partitions=4)
        await keeps_its_name(client)


async def test_group_converts_to_the_protocol_of_its_last_members(orders: Client) -> None:
    """With the default policy: a classic group becomes a consumer group, and a classic group again."""
    old = (await orders.call(join("g"), 3)).member_id
    await orders.call(sync("g", old, 1, {old: assignment("orders", 0, 1, 2, 3)}))
    came = await orders.call(beat_join("g", "m", "orders"))
    assert (came.error_code, came.member_epoch > 1, given(came)) == (0, True, {})
    assert await kind_of(orders) == "consumer"
    assert (await orders.call(heartbeat("g", old, 1), 3)).error_code == Error.REBALANCE_IN_PROGRESS
    assert (await orders.call(fast_heartbeat("g", "m", -1))).error_code == 0
    assert await kind_of(orders) == "classic"
    again = await orders.call(join("g", old), 3)
    assert (again.error_code, again.leader, [each.member_id for each in again.members]) == (0, old, [old])


async def kind_of(client: Client) -> str:
    (group,) = (await client.call(ListGroupsRequest())).groups
    return str(group.group_type)


async def keeps_its_name(orders: Client) -> None:
    member = (await orders.call(join("g"), 3)).member_id
    await orders.call(sync("g", member, 1, {member: b""}))
    assert (await orders.call(beat_join("g", "m", "orders"))).error_code == Error.GROUP_ID_NOT_FOUND
    await orders.call(leave("g", member))
    assert (await orders.call(beat_join("g", "m", "orders"))).error_code == 0
    assert (await orders.call(join("g"), 3)).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    await orders.call(fast_heartbeat("g", "m", -1))
    assert (await orders.call(join("g"), 3)).error_code == 0


async def test_invalid_names_and_partitions_are_rejected(orders: Client) -> None:
    """Many unknown topics, and owned partitions that do not exist."""
    names = [f"none-{at}" for at in range(10_000)] + ["orders"] * 1000
    answer = await orders.call(beat_join("../../g", "../m", *names))
    assert answer.error_code == 0 and given(answer) == {orders.topic_id("orders"): [0, 1, 2, 3]}
    silly = owned({orders.topic_id("orders"): [-1, 7, 2**31 - 1], bytes(16): [0] * 10_000})
    assert (
        await orders.call(fast_heartbeat("../../g", "../m", answer.member_epoch, topic_partitions=silly))
    ).error_code == 0
