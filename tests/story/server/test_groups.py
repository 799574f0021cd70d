"""Tests classic groups over the wire: finding the coordinator, joining, syncing, heartbeats, leaving."""

import asyncio
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkalite.server.broker import Broker
from tests.kit.members import SESSION_MS, assignment, heartbeat, join, leave, subscription, sync
from tests.kit.server import Client, Hub, Wire, connected, running

GROUP, SHARE = 0, 2
PATHS = ("../../etc/passwd", "/", ".", "..", "a/b", "%2e", "\x00", "\U0001f4a9", "x" * 30_000)


async def joined(client: Client, group: str = "g", **more: Any) -> JoinGroupResponse:
    """A new member of a group that has no other; it leads."""
    first = await client.call(join(group, **more))
    assert first.error_code == Error.MEMBER_ID_REQUIRED
    answer: JoinGroupResponse = await client.call(join(group, first.member_id, **more))
    assert answer.error_code == 0, answer
    return answer


async def stable(client: Client, group: str = "g", **more: Any) -> JoinGroupResponse:
    """The same, with its assignment."""
    answer = await joined(client, group, **more)
    given = {answer.member_id: assignment("orders", 0)}
    instance = more.get("group_instance_id")
    synced = await client.call(sync(group, answer.member_id, answer.generation_id, given, group_instance_id=instance))
    assert synced.error_code == 0, synced
    return answer


# Who coordinates.


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator_returns_this_broker(client: Client, version: int) -> None:
    asked = FindCoordinatorRequest(key="g", coordinator_keys=["g", "../../etc"])
    answer = await client.call(asked, version)
    found = answer.coordinators if version >= 4 else [answer]
    host, port = client.broker.address.rsplit(":", 1)
    assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
        (0, client.broker.broker_id, host, int(port))
    ] * len(found)
    assert [each.key for each in answer.coordinators] == (["g", "../../etc"] if version >= 4 else [])


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (SHARE, Error.INVALID_REQUEST),
        (77, Error.INVALID_REQUEST),
        (-1, Error.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [1, 6])
async def test_find_coordinator_of_unserved_types_fails(
    client: Client, version: int, key_type: int, error: Error
) -> None:
    asked = FindCoordinatorRequest(key="t", coordinator_keys=["t"], key_type=key_type)
    answer = await client.call(asked, version)
    (found,) = answer.coordinators if version >= 4 else [answer]
    assert (found.error_code, found.node_id, found.host, found.port) == (error, -1, "", -1)


# A life.


async def test_classic_group_join_sync_heartbeat_and_leave(client: Client) -> None:
    leader = await joined(client)
    assert (leader.generation_id, leader.leader, leader.protocol_name) == (1, leader.member_id, "range")
    assert [(each.member_id, each.metadata) for each in leader.members] == [(leader.member_id, subscription("orders"))]
    given = {leader.member_id: assignment("orders", 0)}
    synced = await client.call(sync("g", leader.member_id, 1, given))
    assert (synced.error_code, synced.assignment) == (0, given[leader.member_id])
    assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    assert (await client.call(heartbeat("g", leader.member_id, 1))).error_code == 0
    assert (await client.call(heartbeat("g", leader.member_id, 2))).error_code == Error.ILLEGAL_GENERATION
    left = await client.call(leave("g", leader.member_id))
    assert (left.error_code, [each.error_code for each in left.members]) == (0, [0])
    assert (await client.call(heartbeat("g", leader.member_id, 1))).error_code == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(10))
async def test_join_group_in_every_version(client: Client, version: int) -> None:
    """Up to v3 a member joins at once; later it first receives its id."""
    answer = await client.call(join("g"), version)
    assert answer.member_id.startswith("kafkalite-") or answer.member_id.count("-") >= 5
    if version >= 4:
        assert answer.error_code == Error.MEMBER_ID_REQUIRED
        assert answer.protocol_name == ("" if version < 7 else None)
        answer = await client.call(join("g", answer.member_id), version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id and len(answer.members) == 1


@pytest.mark.parametrize("version", range(6))
async def test_sync_heartbeat_and_leave_in_every_version(client: Client, version: int) -> None:
    member = (await joined(client)).member_id
    synced = await client.call(sync("g", member, 1, {member: b"mine"}), version)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    assert (await client.call(heartbeat("g", member, 1), min(version, 4))).error_code == 0
    left = await client.call(leave("g", member), version)
    assert (left.error_code, [each.error_code for each in left.members]) == (0, [0] if version >= 3 else [])
    left = await client.call(leave("g", member), version)
    if version >= 3:
        assert (left.error_code, left.members[0].error_code) == (0, Error.UNKNOWN_MEMBER_ID)
    else:
        assert left.error_code == Error.UNKNOWN_MEMBER_ID


# Refusals.


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (join(""), Error.INVALID_GROUP_ID),
        (join("g", "stranger"), Error.UNKNOWN_MEMBER_ID),
        (join("g", session_timeout_ms=5_999), Error.INVALID_SESSION_TIMEOUT),
        (join("g", session_timeout_ms=1_800_001), Error.INVALID_SESSION_TIMEOUT),
        (join("g", session_timeout_ms=-1), Error.INVALID_SESSION_TIMEOUT),
        (join("g", protocols=[]), Error.INCONSISTENT_GROUP_PROTOCOL),
        (join("g", protocol_type=""), Error.INCONSISTENT_GROUP_PROTOCOL),
        (sync("", "m", 1), Error.INVALID_GROUP_ID),
        (sync("g", "m", 1), Error.UNKNOWN_MEMBER_ID),
        (sync("g", "m", 1, protocol_type=None), Error.INCONSISTENT_GROUP_PROTOCOL),
        (sync("g", "m", 1, protocol_name=None), Error.INCONSISTENT_GROUP_PROTOCOL),
        (heartbeat("", "m", 1), Error.INVALID_GROUP_ID),
        (heartbeat("g", "m", 1), Error.UNKNOWN_MEMBER_ID),
        (leave("", "m"), Error.INVALID_GROUP_ID),
    ],
    ids=lambda each: each.name if isinstance(each, Error) else type(each).__name__,
)
async def test_requests_to_unknown_group_are_rejected(client: Client, request_: Any, error: Error) -> None:
    assert (await client.call(request_)).error_code == error


async def test_session_timeout_limits_are_configurable() -> None:
    async with running(settings={"group.min.session.timeout.ms": "100", "group.max.session.timeout.ms": "200"}) as one:
        errors = [(await one.call(join("g", session_timeout_ms=ms), 3)).error_code for ms in (99, 201, 200, 100)]
    assert errors[:2] == [Error.INVALID_SESSION_TIMEOUT] * 2 and errors[2] == 0


async def test_full_classic_group_rejects_new_members() -> None:
    async with running(settings={"group.max.size": "1"}) as client:
        member = (await stable(client)).member_id
        assert (await client.call(join("g"))).error_code == Error.GROUP_MAX_SIZE_REACHED
        assert (await client.call(heartbeat("g", member, 1))).error_code == 0


async def test_members_beyond_the_memory_limit_are_rejected_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with running(settings={"kafkalite.group.member.memory.max.bytes": "10000"}) as client:
        member = (await stable(client)).member_id
        large = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(10_000))
        errors = [(await client.call(join(f"g{at}", protocols=[large]))).error_code for at in range(3)]
        assert errors == [Error.GROUP_MAX_SIZE_REACHED] * 3
        assert (await client.call(heartbeat("g", member, 1))).error_code == 0
    logged = [each for each in caplog.messages if "kafkalite.group.member.memory.max.bytes = 10000" in each]
    assert len(logged) == 1


async def test_join_with_inconsistent_protocol_is_rejected(client: Client) -> None:
    await stable(client)
    other = JoinGroupRequest.JoinGroupRequestProtocol(name="mine", metadata=b"")
    for request in (join("g", protocols=[other]), join("g", protocol_type="connect")):
        assert (await client.call(request)).error_code == Error.INCONSISTENT_GROUP_PROTOCOL


async def test_wrong_generation_and_wrong_protocol_are_rejected(client: Client) -> None:
    member = (await stable(client)).member_id
    assert (await client.call(sync("g", member, 2))).error_code == Error.ILLEGAL_GENERATION
    refused = await client.call(sync("g", member, 1, protocol_name="mine"))
    assert refused.error_code == Error.INCONSISTENT_GROUP_PROTOCOL


async def test_restarted_static_member_fences_the_older_one(client: Client) -> None:
    first = await client.call(join("g", group_instance_id="i"))
    assert first.error_code == 0 and first.member_id.startswith("i-")
    given = {first.member_id: b"mine"}
    await client.call(sync("g", first.member_id, 1, given, group_instance_id="i"))
    second = await client.call(join("g", group_instance_id="i"))
    assert (second.error_code, second.generation_id) == (0, 1)
    assert (second.leader == second.member_id) and second.skip_assignment
    for request in (
        heartbeat("g", first.member_id, 1, "i"),
        sync("g", first.member_id, 1, group_instance_id="i"),
        join("g", first.member_id, group_instance_id="i"),
    ):
        assert (await client.call(request)).error_code == Error.FENCED_INSTANCE_ID
    left = await client.call(leave("g", ("", "i"), ("", "nobody"), (first.member_id, "i")))
    errors = [each.error_code for each in left.members]
    assert errors == [0, Error.UNKNOWN_MEMBER_ID, Error.UNKNOWN_MEMBER_ID]


# Delayed requests.


async def delayed_join(client: Client, wire: Wire) -> str:
    """A group of one on the client, and a second member on the wire whose join waits for the first; its id."""
    member = (await stable(client)).member_id
    wire.send((join("g"), 9))
    received = await wire.answer()
    assert received.error_code == Error.MEMBER_ID_REQUIRED
    wire.send((join("g", received.member_id), 9))
    assert (await client.call(heartbeat("g", member, 1))).error_code == Error.REBALANCE_IN_PROGRESS
    assert wire.answers() == []
    return member


async def test_join_waits_for_members_and_sync_waits_for_the_leader(client: Client, wire: Wire) -> None:
    member = await delayed_join(client, wire)
    leader = await client.call(join("g", member))
    follower = await wire.answer()
    assert (leader.generation_id, follower.generation_id, follower.leader) == (2, 2, member)
    assert len(leader.members) == 2 and follower.members == []
    wire.send((sync("g", follower.member_id, 2), 5))
    assert wire.answers() == []
    assert (await client.call(sync("g", member, 2, {follower.member_id: b"its", member: b"my"}))).assignment == b"my"
    assert (await wire.answer()).assignment == b"its"


async def test_disconnect_during_delayed_join_keeps_the_group(client: Client, wire: Wire) -> None:
    member = await delayed_join(client, wire)
    wire.hang_up()
    leader = await client.call(join("g", member))
    assert leader.generation_id == 2 and len(leader.members) == 2  # until its session is over
    assert (await client.call(sync("g", member, 2, {member: b"my"}))).error_code == 0


async def test_delayed_group_requests_end_with_the_broker() -> None:
    broker = Broker()
    await broker.start()
    async with connected(broker) as client:
        wire, second = Wire(Hub(client.broker)), Wire(Hub(client.broker))
        await delayed_join(client, wire)
        other = await joined(client, "h", session_timeout_ms=SESSION_MS)
        second.send((join("h"), 3))
        again = await client.call(join("h", other.member_id))
        follower = (await second.answer()).member_id
        second.send((sync("h", follower, again.generation_id), 5))
        assert second.answers() == []
        await broker.stop()
        assert [(await each.answer()).error_code for each in (wire, second)] == [Error.NOT_COORDINATOR] * 2


async def test_second_join_of_a_member_ends_its_first(client: Client, wire: Wire) -> None:
    member = await delayed_join(client, wire)
    again = asyncio.ensure_future(client.call(join("g", member)))
    assert (await wire.answer()).error_code == 0
    assert (await again).generation_id == 2


async def test_session_expiry_removes_member() -> None:
    async with running(settings={"group.min.session.timeout.ms": "50"}) as client:
        member = (await stable(client, session_timeout_ms=1_000, rebalance_timeout_ms=1_000)).member_id
        while (await client.call(DescribeGroupsRequest(groups=["g"]))).groups[0].members:
            pass  # a description does not extend a session
        assert (await client.call(heartbeat("g", member, 1))).error_code == Error.UNKNOWN_MEMBER_ID


# Bad input.


@pytest.mark.parametrize("name", PATHS, ids=range(len(PATHS)))
async def test_group_names_with_special_characters(client: Client, name: str) -> None:
    member = (await stable(client, name)).member_id
    assert (await client.call(heartbeat(name, member, 1))).error_code == 0
    assert (await client.call(leave(name, member))).members[0].error_code == 0


async def test_join_with_huge_and_duplicate_protocol_lists(client: Client) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    same = [protocol(name="range", metadata=str(at).encode()) for at in range(10_000)]
    answer = await client.call(join("g", protocols=same), 3)
    assert answer.error_code == 0 and answer.members[0].metadata == b"0"
    left = await client.call(leave("g", *[answer.member_id] * 5_000))
    assert [each.error_code for each in left.members] == [0] + [Error.UNKNOWN_MEMBER_ID] * 4_999


async def test_leave_group_without_members_succeeds(client: Client) -> None:
    await stable(client)
    answer = await client.call(leave("g"))
    assert (answer.error_code, answer.members) == (0, [])


async def test_assignments_for_unknown_members_are_ignored(client: Client) -> None:
    member = (await joined(client)).member_id
    answer = await client.call(sync("g", member, 1, {"stranger": b"x" * 100_000}))
    assert (answer.error_code, answer.assignment) == (0, b"")


async def test_negative_timeouts_are_treated_as_zero(client: Client) -> None:
    answer = await client.call(join("g", rebalance_timeout_ms=-(2**31), session_timeout_ms=SESSION_MS), 3)
    assert answer.error_code == 0


@pytest.mark.parametrize(("instance", "error"), [("i" * 32_730, 0), ("i" * 32_731, Error.INVALID_REQUEST)])
async def test_client_id_that_makes_the_member_id_too_long_is_rejected(
    client: Client, instance: str, error: int
) -> None:
    """Neither the leader nor the log could represent such a member."""
    async with connected(client.broker) as other:
        answer = await other.call(join("g", group_instance_id=instance))
        assert answer.error_code == error
        if not error:
            given = {answer.member_id: b""}
            synced = await other.call(sync("g", answer.member_id, 1, given, group_instance_id=instance))
            assert synced.error_code == 0
