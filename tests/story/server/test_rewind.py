"""Tests RewindConsumer over the wire: on empty groups, classic groups with members, KIP-848 groups with members."""

import asyncio
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest
from kafkalite.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.kit.members import (
    assignment,
    beat_join,
    codes,
    commit,
    fast_heartbeat,
    fetch,
    given,
    heartbeat,
    join,
    offsets_of,
    owned,
    sync,
)
from tests.kit.server import GZIP, NOW_MS, Client, Hub, Wire, batch

EARLIEST, LATEST = -2, -1
Topic = RewindConsumerRequest.RewoundTopic
Partition = Topic.RewoundPartition


def rewind(group: str, *topic_partitions: tuple[str, int, int, int]) -> RewindConsumerRequest:
    """Places: topic, partition, offset, timestamp; an offset of -1 leaves it to the timestamp."""
    topics = [
        Topic(name=name, partitions=[Partition(partition_index=at, offset=offset, timestamp=timestamp)])
        for name, at, offset, timestamp in topic_partitions
    ]
    return RewindConsumerRequest(group_id=group, topics=topics)


def outcome(answer: Any) -> list[tuple[int, int]]:
    """Error and offset of every partition."""
    return [(part.error_code, part.offset) for topic in answer.topics for part in topic.partitions]


@pytest.fixture
async def orders(client: Client) -> Client:
    """A topic of two partitions; the first has five records, a second apart, the first two of which are deleted."""
    await client.create("orders", partitions=2)
    for second in range(5):
        found = await client.produce("orders", batch(b"v", timestamp=NOW_MS + 1000 * second))
        assert found.error_code == 0
    return client


async def test_rewind_after_a_search_outside_the_loop_is_written_at_once(client: Client) -> None:
    """No other request ends an iteration that would write it."""
    await client.create("packed", partitions=1)
    packed = batch(*[b"v"] * 100, timestamp=NOW_MS, codec=GZIP)
    assert (await client.produce("packed", packed)).error_code == 0
    assert codes(await client.call(commit("g", "packed", {0: 5}), 9)) == [0]
    answer = await asyncio.wait_for(client.call(rewind("g", ("packed", 0, -1, NOW_MS))), 4.0)  # commits fail after 5 s
    assert outcome(answer) == [(0, 0)]


@pytest.mark.parametrize(
    ("offset", "timestamp", "at"),
    [
        (3, -1, 3),
        (0, -1, 0),
        (999, -1, 5),
        (-1, EARLIEST, 0),
        (-1, LATEST, 5),
        (-1, NOW_MS + 2500, 3),
        (-1, 0, 0),
        (-1, NOW_MS + 99_000, 5),
    ],
)
async def test_rewind_of_empty_group_commits_offsets(orders: Client, offset: int, timestamp: int, at: int) -> None:
    assert codes(await orders.call(commit("g", "orders", {0: 4, 1: 0}), 9)) == [0, 0]
    answer = await orders.call(rewind("g", ("orders", 0, offset, timestamp)))
    assert outcome(answer) == [(0, at)]
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): at, ("orders", 1): 0}


@pytest.mark.parametrize(
    ("target", "error"),
    [
        (("nowhere", 0, 0, -1), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 2, 0, -1), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", -1, 0, -1), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 1, -2, -1), Error.INVALID_REQUEST),
        (("orders", 1, -1, -3), Error.INVALID_REQUEST),
    ],
)
async def test_rewind_error_of_one_partition_keeps_the_others(
    orders: Client, target: tuple[str, int, int, int], error: Error
) -> None:
    assert codes(await orders.call(commit("g", "orders", {0: 4}), 9)) == [0]
    answer = await orders.call(rewind("g", target, ("orders", 0, 1, -1)))
    assert outcome(answer) == [(error, -1), (0, 1)]


async def test_rewind_of_duplicate_partition_is_rejected(orders: Client) -> None:
    assert codes(await orders.call(commit("g", "orders", {0: 4}), 9)) == [0]
    answer = await orders.call(rewind("g", ("orders", 0, 1, -1), ("orders", 0, 2, -1)))
    assert outcome(answer) == [(Error.INVALID_REQUEST, -1)] * 2
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 4}


@pytest.mark.parametrize(("group", "error"), [("", Error.INVALID_GROUP_ID), ("none", Error.GROUP_ID_NOT_FOUND)])
async def test_rewind_of_unknown_group_fails(orders: Client, group: str, error: Error) -> None:
    assert outcome(await orders.call(rewind(group, ("orders", 0, 0, -1)))) == [(error, -1)]
    assert offsets_of(await orders.call(fetch("none"), 9)) == {}


async def test_rewind_fences_the_owner_in_a_classic_group(orders: Client, wire: Wire, hub: Hub) -> None:
    """Two members: one owns the partition that is rewound."""
    owner, other = await two_members(wire, Wire(hub))
    assert codes(await orders.call(commit("g", "orders", {0: 5}, owner, 2), 9)) == [0]
    assert outcome(await orders.call(rewind("g", ("orders", 0, -1, EARLIEST)))) == [(0, 0)]
    assert codes(await orders.call(commit("g", "orders", {0: 5}, owner, 2), 9)) == [Error.UNKNOWN_MEMBER_ID]
    assert (await orders.call(heartbeat("g", owner, 2))).error_code == Error.UNKNOWN_MEMBER_ID
    assert (await orders.call(join("g", owner))).error_code == Error.UNKNOWN_MEMBER_ID
    assert codes(await orders.call(commit("g", "orders", {1: 0}, other, 2), 9)) == [0]  # before it rejoins
    assert (await orders.call(heartbeat("g", other, 2))).error_code == Error.REBALANCE_IN_PROGRESS
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 0, ("orders", 1): 0}


async def two_members(first: Wire, second: Wire) -> tuple[str, str]:
    """A classic group in generation 2: the first leads and owns partition 0, the second owns partition 1."""
    first.send((join("g"), 3))
    leader = (await first.answer()).member_id
    second.send((join("g"), 3))
    first.send((join("g", leader), 3))
    received, follower = await first.answer(), (await second.answer()).member_id
    assert received.generation_id == 2 and {each.member_id for each in received.members} == {leader, follower}
    parts = {leader: assignment("orders", 0), follower: assignment("orders", 1)}
    second.send((sync("g", follower, 2), 5))
    first.send((sync("g", leader, 2, parts), 5))
    assert [(await wire.answer()).assignment for wire in (first, second)] == [parts[leader], parts[follower]]
    return leader, follower


async def test_rewind_during_classic_rebalance_fences_all_members(orders: Client, wire: Wire, hub: Hub) -> None:
    """A delayed sync ends at once, as the owners of partitions are not known yet."""
    second = Wire(hub)
    leader, follower = await two_members(wire, second)
    wire.send((join("g", leader), 3))
    second.send((join("g", follower), 3))
    assert [(await each.answer()).generation_id for each in (wire, second)] == [3, 3]
    second.send((sync("g", follower, 3), 5))
    assert second.answers() == []
    assert outcome(await orders.call(rewind("g", ("orders", 0, 1, -1)))) == [(0, 1)]
    assert (await second.answer()).error_code == Error.UNKNOWN_MEMBER_ID
    assert (await orders.call(heartbeat("g", leader, 3))).error_code == Error.UNKNOWN_MEMBER_ID


async def test_rewind_rejects_commits_of_a_partition_that_is_being_revoked(
    orders: Client, wire: Wire, hub: Hub
) -> None:
    """A cooperative member commits the partitions that it revokes after the assignment, in the current generation."""
    second = Wire(hub)
    leader, follower = await two_members(wire, second)
    wire.send((join("g", leader, has={"orders": [0]}), 3))
    second.send((join("g", follower, has={"orders": [1]}), 3))
    assert [(await each.answer()).generation_id for each in (wire, second)] == [3, 3]
    wire.send((sync("g", leader, 3, {leader: assignment("orders"), follower: assignment("orders", 1)}), 5))
    assert (await wire.answer()).assignment == assignment("orders")
    assert outcome(await orders.call(rewind("g", ("orders", 0, 1, -1)))) == [(0, 1)]
    assert codes(await orders.call(commit("g", "orders", {0: 5}, leader, 3), 9)) == [Error.UNKNOWN_MEMBER_ID]
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 1}
    assert codes(await orders.call(commit("g", "orders", {1: 0}, follower, 3), 9)) == [0], "the other goes on"


async def reconciled(client: Client, member: str, *topics: str) -> ConsumerGroupHeartbeatResponse:
    """A member of the consumer protocol that has taken over what it was given."""
    answer = await client.call(beat_join("k", member, *topics))
    assert answer.error_code == 0, answer
    has = owned(given(answer) or {})
    reconciled = await client.call(fast_heartbeat("k", member, answer.member_epoch, topic_partitions=has))
    assert reconciled.error_code == 0, reconciled
    return answer


async def test_rewind_fences_the_owner_in_a_consumer_group(orders: Client) -> None:
    topic_id = orders.topic_id("orders")
    joined = await reconciled(orders, "m", "orders")
    assert given(joined) == {topic_id: [0, 1]}
    epoch = joined.member_epoch
    assert codes(await orders.call(commit("k", topic_id, {0: 5}, "m", epoch))) == [0]
    assert outcome(await orders.call(rewind("k", ("orders", 0, -1, NOW_MS + 1500)))) == [(0, 2)]
    assert codes(await orders.call(commit("k", topic_id, {0: 5}, "m", epoch))) == [Error.STALE_MEMBER_EPOCH]
    assert (await orders.call(fast_heartbeat("k", "m", epoch))).error_code == Error.FENCED_MEMBER_EPOCH
    again = await reconciled(orders, "m", "orders")
    assert given(again) == {topic_id: [0, 1]} and again.member_epoch > epoch
    assert offsets_of(await orders.call(fetch("k"), 9)) == {("orders", 0): 2}
    assert codes(await orders.call(commit("k", topic_id, {0: 3}, "m", again.member_epoch))) == [0]
