"""Tests OffsetCommit, OffsetFetch and OffsetDelete over the wire, in all versions."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.coordinators.group.housekeeping import GroupHousekeeping
from kafkalite.coordinators.group.service import GroupService
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.kit.members import beat_join, codes, commit, fetch, fetch_of, join, leave, offsets_of, sync
from tests.kit.server import Client, running

NOBODY = bytes(15) + b"\x07"


@pytest.fixture
async def orders(client: Client) -> Client:
    await client.create("orders", partitions=3)
    return client


def delete(group: str, *topic_partitions: tuple[str, int]) -> OffsetDeleteRequest:
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            topic(name=name, partitions=[topic.OffsetDeleteRequestPartition(partition_index=at)])
            for name, at in topic_partitions
        ],
    )


async def member_of(client: Client, group: str = "g", *topics: str) -> str:
    """The only member of a classic group, in generation 1 and with an assignment."""
    member = (await client.call(join(group, topics=topics or ("orders",)), 3)).member_id
    assert (await client.call(sync(group, member, 1, {member: b""}))).error_code == 0
    return str(member)


@pytest.mark.parametrize("version", range(2, 11))
async def test_offset_commit_in_every_version(orders: Client, version: int) -> None:
    """Names up to v9, ids from v10 on; unknown partitions fail, the others are stored."""
    named: Any = orders.topic_id("orders") if version >= 10 else "orders"
    answer = await orders.call(commit("g", named, {0: 7, 2: 9, 3: 1, -1: 1}), version)
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == [0, 0, unknown, unknown]
    assert answer.topics[0].topic_id == named if version >= 10 else answer.topics[0].name == named
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 7, ("orders", 2): 9}


@pytest.mark.parametrize("version", [2, 9, 10])
async def test_offset_commit_for_unknown_topic_fails(orders: Client, version: int) -> None:
    answer = await orders.call(commit("g", NOBODY if version >= 10 else "nowhere", {0: 1}), version)
    assert codes(answer) == [Error.UNKNOWN_TOPIC_ID if version >= 10 else Error.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", range(1, 10))
async def test_offset_fetch_by_name_in_every_version(orders: Client, version: int) -> None:
    assert codes(await orders.call(commit("g", "orders", {0: 7, 1: 8}, metadata="note"), 9)) == [0, 0]
    asked = await orders.call(fetch("g", "orders", 1, 2), version)
    assert offsets_of(asked) == {("orders", 1): 8, ("orders", 2): -1}
    topics = asked.groups[0].topics if version >= 8 else asked.topics
    assert [part.metadata for part in topics[0].partitions] == ["note", ""]
    if version >= 2:
        assert offsets_of(await orders.call(fetch("g"), version)) == {("orders", 0): 7, ("orders", 1): 8}


async def test_offset_fetch_by_topic_id(orders: Client) -> None:
    topic_id = orders.topic_id("orders")
    assert codes(await orders.call(commit("g", "orders", {1: 8}), 9)) == [0]
    request = OffsetFetchRequest(groups=[fetch_of("g", topic_id, 0, 1), fetch_of("h", NOBODY, 5), fetch_of("g2")])
    known, unknown, nothing = (await orders.call(request, 10)).groups
    assert [part.committed_offset for part in known.topics[0].partitions] == [-1, 8]
    assert known.topics[0].topic_id == topic_id
    (part,) = unknown.topics[0].partitions
    assert (unknown.topics[0].topic_id, part.error_code, part.committed_offset) == (NOBODY, Error.UNKNOWN_TOPIC_ID, -1)
    assert (nothing.error_code, nothing.topics) == (0, [])
    everything = await orders.call(OffsetFetchRequest(groups=[fetch_of("g")]), 10)
    assert offsets_of(everything) == {(topic_id, 1): 8}


async def test_recreated_topic_has_no_committed_offsets(orders: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the broker was killed between the deletion of the topic and that of its offsets."""
    assert codes(await orders.call(commit("g", "orders", {0: 7}), 9)) == [0]
    monkeypatch.setattr(GroupHousekeeping, "topic_gone", lambda *_: None)
    await orders.delete("orders")
    await orders.create("orders")
    for version in (1, 5, 9):
        assert offsets_of(await orders.call(fetch("g", "orders", 0), version)) == {("orders", 0): -1}
    by_id = OffsetFetchRequest(groups=[fetch_of("g", orders.topic_id("orders"), 0)])
    assert offsets_of(await orders.call(by_id, 10)) == {(orders.topic_id("orders"), 0): -1}


async def test_offset_fetch_answers_groups_in_order_and_once(orders: Client) -> None:
    for group, offset in (("a", 1), ("b", 2)):
        assert codes(await orders.call(commit(group, "orders", {0: offset}), 9)) == [0]
    names = ["b", "a", "none"] * 1000
    answer = await orders.call(OffsetFetchRequest(groups=[fetch_of(name) for name in names]), 9)
    assert [each.group_id for each in answer.groups] == ["b", "a", "none"]
    found = [[part.committed_offset for topic in each.topics for part in topic.partitions] for each in answer.groups]
    assert found == [[2], [1], []]


@pytest.mark.parametrize(("version", "error"), [(8, Error.ILLEGAL_GENERATION), (9, Error.GROUP_ID_NOT_FOUND)])
async def test_offset_commit_of_member_of_unknown_group_fails(orders: Client, version: int, error: Error) -> None:
    assert codes(await orders.call(commit("none", "orders", {0: 1}, "m", 3), version)) == [error]


async def test_offset_commit_of_non_member_is_rejected_while_group_has_members(orders: Client) -> None:
    member = await member_of(orders)
    assert codes(await orders.call(commit("g", "orders", {0: 1}, member, 1), 9)) == [0]
    assert codes(await orders.call(commit("g", "orders", {0: 2}), 9)) == [Error.UNKNOWN_MEMBER_ID]
    assert codes(await orders.call(commit("g", "orders", {0: 2}, "stranger", 1), 9)) == [Error.UNKNOWN_MEMBER_ID]
    assert codes(await orders.call(commit("g", "orders", {0: 2}, member, 2), 9)) == [Error.ILLEGAL_GENERATION]
    fenced = commit("g", "orders", {0: 2}, member, 1, group_instance_id="i")
    assert codes(await orders.call(fenced, 9)) == [Error.UNKNOWN_MEMBER_ID]
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 1}
    await orders.call(leave("g", member))
    assert codes(await orders.call(commit("g", "orders", {0: 2}), 9)) == [0]


async def test_offset_commit_fails_while_rebalance_is_in_progress(orders: Client) -> None:
    member = (await orders.call(join("g"), 3)).member_id
    assert codes(await orders.call(commit("g", "orders", {0: 1}, member, 1), 9)) == [Error.REBALANCE_IN_PROGRESS]


async def test_empty_group_id_is_a_valid_group(orders: Client) -> None:
    assert codes(await orders.call(commit("", "orders", {0: 1}), 2)) == [0]
    assert offsets_of(await orders.call(fetch("", "orders", 0), 1)) == {("orders", 0): 1}
    assert (await orders.call(delete("", ("orders", 0)))).error_code == Error.INVALID_GROUP_ID
    assert (await orders.call(DeleteGroupsRequest(groups_names=[""]))).results[0].error_code == 0
    assert offsets_of(await orders.call(fetch("", "orders", 0), 1)) == {("orders", 0): -1}


async def test_offset_metadata_above_the_limit_is_rejected() -> None:
    async with running(settings={"offset.metadata.max.bytes": "3"}) as client:
        await client.create("orders")
        for text, error in (("four", Error.OFFSET_METADATA_TOO_LARGE), ("abc", 0), (None, 0)):
            assert codes(await client.call(commit("g", "orders", {0: 1}, metadata=text), 9)) == [error]


async def test_empty_offset_commit_is_answered(orders: Client) -> None:
    assert (await orders.call(OffsetCommitRequest(group_id="g", topics=[]), 9)).topics == []


async def test_last_of_duplicate_offsets_in_a_commit_wins(orders: Client) -> None:
    first, second = commit("g", "orders", {0: 1}), commit("g", "orders", {0: 2})
    first.topics += second.topics
    assert codes(await orders.call(first, 9)) == [0, 0]
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 0): 2}


async def test_offset_commit_of_many_partitions(client: Client) -> None:
    await client.create("wide", partitions=5000)
    answer = await client.call(commit("g", "wide", {at: at for at in range(5000)}), 9)
    assert set(codes(answer)) == {0}
    assert offsets_of(await client.call(fetch("g"), 9)) == {("wide", at): at for at in range(5000)}


async def test_consumer_group_members_need_offset_commit_version_9(orders: Client) -> None:
    epoch = (await orders.call(beat_join("k", "m", "orders"))).member_epoch
    assert codes(await orders.call(commit("k", "orders", {0: 1}, "m", epoch), 8)) == [Error.UNSUPPORTED_VERSION]
    assert codes(await orders.call(commit("k", "orders", {0: 1}, "m", epoch), 9)) == [0]
    assert codes(await orders.call(commit("k", "orders", {0: 1}, "m", epoch + 1), 9)) == [Error.STALE_MEMBER_EPOCH]
    assert codes(await orders.call(commit("k", "orders", {0: 1}), 9)) == [Error.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ({}, 0),
        ({"member_id": "m", "member_epoch": 0}, Error.STALE_MEMBER_EPOCH),
        ({"member_id": "x", "member_epoch": 1}, Error.UNKNOWN_MEMBER_ID),
    ],
)
async def test_offset_fetch_checks_the_member_epoch(orders: Client, member: dict[str, Any], error: int) -> None:
    await orders.call(beat_join("k", "m", "orders"))
    answer = await orders.call(OffsetFetchRequest(groups=[fetch_of("k", **member)]), 9)
    assert answer.groups[0].error_code == error


# Deleting.


async def test_offset_delete_deletes_single_partitions(orders: Client) -> None:
    assert codes(await orders.call(commit("g", "orders", {0: 1, 1: 2}), 9)) == [0, 0]
    answer = await orders.call(delete("g", ("orders", 0), ("orders", 2), ("orders", 9), ("nowhere", 0)))
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert (answer.error_code, codes(answer)) == (0, [0, 0, unknown, unknown])
    assert offsets_of(await orders.call(fetch("g"), 9)) == {("orders", 1): 2}


async def test_offset_delete_of_a_topic_deleted_meanwhile(orders: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition has the result of its check when the request came."""
    await orders.create("payments")
    member = await member_of(orders, "g", "payments")
    for topic in ("orders", "payments"):
        assert codes(await orders.call(commit("g", topic, {0: 1}, member, 1), 9)) == [0]
    held: list[Callable[[], object]] = []
    asked, submit_each = asyncio.Event(), GroupService.submit_each

    def late(groups: GroupService, group: str, commands: Any, failed: Any, then: Any) -> Any:
        asked.set()
        return submit_each(groups, group, commands, failed, lambda done: held.append(lambda: then(done)))

    monkeypatch.setattr(GroupService, "submit_each", late)
    request = delete("g", ("later", 0), ("orders", 0), ("payments", 0))
    answer = asyncio.ensure_future(orders.call(request))
    await asked.wait()
    host, port = orders.broker.address.rsplit(":", 1)
    async with ClientConnection(host, int(port)) as peer:
        await Client(orders.broker, peer).delete("orders")
        await Client(orders.broker, peer).create("later")
    held[0]()
    unknown, in_use = Error.UNKNOWN_TOPIC_OR_PARTITION, Error.GROUP_SUBSCRIBED_TO_TOPIC
    assert codes(await answer) == [unknown, 0, in_use]


async def test_offset_delete_of_subscribed_topic_is_rejected(orders: Client) -> None:
    await orders.create("payments")
    member = await member_of(orders)
    for topic in ("orders", "payments"):
        assert codes(await orders.call(commit("g", topic, {0: 1}, member, 1), 9)) == [0]
    answer = await orders.call(delete("g", ("orders", 0), ("payments", 0)))
    assert (answer.error_code, codes(answer)) == (0, [Error.GROUP_SUBSCRIBED_TO_TOPIC, 0])


@pytest.mark.parametrize("behind", [b"\xff\xff\xff\xff", b"\xff\xff\xff\xff" + b"later fields"])
async def test_offset_delete_reads_only_the_topics_of_subscriptions(orders: Client, behind: bytes) -> None:
    """A client that says version 1 may leave out the fields of version 1, as several clients of JavaScript do."""
    await orders.create("payments")
    subscription = (1).to_bytes(2, "big") + (1).to_bytes(4, "big") + (6).to_bytes(2, "big") + b"orders" + behind
    joining = join("g")
    joining.protocols[0].metadata = subscription
    member = (await orders.call(joining, 3)).member_id
    assert (await orders.call(sync("g", member, 1, {member: b""}))).error_code == 0
    for topic in ("orders", "payments"):
        assert codes(await orders.call(commit("g", topic, {0: 1}, member, 1), 9)) == [0]
    answer = await orders.call(delete("g", ("orders", 0), ("payments", 0)))
    assert (answer.error_code, codes(answer)) == (0, [Error.GROUP_SUBSCRIBED_TO_TOPIC, 0])


async def test_offset_delete_of_unknown_group_fails(orders: Client) -> None:
    answer = await orders.call(delete("none", ("orders", 0)))
    assert (answer.error_code, answer.topics) == (Error.GROUP_ID_NOT_FOUND, [])


async def test_offset_delete_of_group_with_other_protocol_type(orders: Client) -> None:
    member = (await orders.call(join("g", protocol_type="connect"), 3)).member_id
    assert member
    answer = await orders.call(delete("g", ("orders", 0)))
    assert (answer.error_code, answer.topics) == (Error.NON_EMPTY_GROUP, [])
