"""Tests the administration of registered groups: define, list, describe, delete, and names of other group types."""

from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.extensions.delete_group import DeleteGroupRequest
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.protocol.stored.consumer_protocol import read_assignment, read_subscription
from tests.kit.members import beat_join, codes, commit, create, join, leave, register, starts, sync
from tests.kit.server import Client, running

EXTENSIONS = range(10_000, 10_007)


@pytest.fixture
async def orders(client: Client) -> Client:
    await client.create("orders", partitions=2)
    return client


async def listed(client: Client, *names: str) -> dict[str, Any]:
    """Groups as ListGroups+ shows them."""
    answer = await client.call(ListGroupsPlusRequest(groups=list(names)))
    return {each.group_id: each for each in answer.groups}


async def test_extension_keys_are_advertised(client: Client) -> None:
    answer = await client.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    assert answer.error_code == 0
    ours = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys if each.api_key >= 10_000}
    assert ours == dict.fromkeys(EXTENSIONS, (0, 0))


async def test_create_group_returns_the_coordinator(orders: Client) -> None:
    answer = await orders.call(create("g", "orders", "later", "orders", session_timeout_ms=7_000))
    host, port = orders.broker.address.rsplit(":", 1)
    controller = (answer.error_code, answer.controller_id, answer.controller_host, answer.controller_port)
    assert controller == (0, orders.broker.broker_id, host, int(port))
    group = (await listed(orders, "g"))["g"]
    assert (group.error_code, group.group_state, group.generation_id, group.members) == (0, "Empty", -1, [])
    assert (group.topics, group.session_timeout_ms) == (["later", "orders"], 7_000)
    assert (group.controller_id, group.controller_host, group.controller_port) == controller[1:]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (create("", "orders"), Error.INVALID_GROUP_ID),
        (create("g", "orders", session_timeout_ms=5_999), Error.INVALID_SESSION_TIMEOUT),
        (create("g", "orders", session_timeout_ms=1_800_001), Error.INVALID_SESSION_TIMEOUT),
        (create("g", "orders", session_timeout_ms=-1), Error.INVALID_SESSION_TIMEOUT),
        (create("g", "orders", assignor="best"), Error.UNSUPPORTED_ASSIGNOR),
        (create("g", "orders", assignor=""), Error.UNSUPPORTED_ASSIGNOR),
        (create("g", "orders", topic_pattern="o.*"), Error.INVALID_REQUEST),
        (create("g"), Error.INVALID_REQUEST),
        (create("g", topic_pattern=""), Error.INVALID_REGULAR_EXPRESSION),
        (create("g", topic_pattern="(?<x"), Error.INVALID_REGULAR_EXPRESSION),
        (create("g", topic_pattern="a{1000}{1000}"), Error.INVALID_REGULAR_EXPRESSION),
        (create("g", topic_pattern="(" * 30_000), Error.INVALID_REGULAR_EXPRESSION),
        (create("g", "../etc"), Error.INVALID_TOPIC_EXCEPTION),
        (create("g", ""), Error.INVALID_TOPIC_EXCEPTION),
        (register("", "a", "orders"), Error.INVALID_GROUP_ID),
        (register("g", "", "orders"), Error.INVALID_REQUEST),
        (register("g", "a", "orders", session_timeout_ms=5_999), Error.INVALID_SESSION_TIMEOUT),
        (register("g", "a", session_timeout_ms=0), Error.INVALID_SESSION_TIMEOUT),
        (register("g", "a", "a/b"), Error.INVALID_TOPIC_EXCEPTION),
        (register("g", "a", claims={"nowhere": [0]}), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (register("g", "a", claims={"orders": [-1]}), Error.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_invalid_group_definitions_are_rejected(orders: Client, request_: Any, error: Error) -> None:
    """A rejected definition creates no group."""
    assert (await orders.call(request_)).error_code == error
    assert await listed(orders) == {}


async def test_group_definition_may_change_without_members(orders: Client) -> None:
    for topics in (("orders",), ("orders",), ("other",), ("orders",)):
        assert (await orders.call(create("g", *topics))).error_code == 0
    await orders.call(register("g", "a"))
    assert (await orders.call(create("g", "orders"))).error_code == 0, "nothing new"
    assert (await orders.call(create("g", "other"))).error_code == Error.NON_EMPTY_GROUP
    assert (await listed(orders, "g"))["g"].topics == ["orders"]


async def test_full_registered_group_rejects_new_consumers() -> None:
    async with running(settings={"group.max.size": "1"}) as client:
        await client.create("orders")
        assert (await client.call(register("g", "a", "orders"))).error_code == 0
        assert (await client.call(register("g", "b", "orders"))).error_code == Error.GROUP_MAX_SIZE_REACHED


async def test_ephemeral_group_is_deleted_with_its_last_member(orders: Client) -> None:
    assert (await orders.call(create("g", "orders", ephemeral=True))).error_code == 0
    assert set(await listed(orders)) == {"g"}, "not before it has had members"
    generation = (await orders.call(register("g", "a"))).generation_id
    assert codes(await orders.call(commit("g", "orders", {0: 0}, "a", generation), 9)) == [0]
    assert (await orders.call(leave("g", "a"))).members[0].error_code == 0
    assert await listed(orders) == {}
    assert (await listed(orders, "g"))["g"].error_code == Error.GROUP_ID_NOT_FOUND


async def test_registered_members_are_described_with_owned_partitions(orders: Client) -> None:
    assert (await orders.call(create("g", "orders", assignor="sticky"))).error_code == 0
    generation = (await orders.call(register("g", "a"))).generation_id
    group = (await listed(orders))["g"]
    assert (group.group_state, group.generation_id, group.topics) == ("Stable", generation, ["orders"])
    (member,) = group.members
    assert member.consumer_id == "a"
    assert [(each.name, each.partitions) for each in member.owned_partitions] == [("orders", [0, 1])]

    (seen,) = (await orders.call(ListGroupsRequest())).groups
    assert (seen.group_id, seen.protocol_type, seen.group_state, seen.group_type) == (
        "g", "consumer", "Stable", "registered",
    )  # fmt: skip
    assert len((await orders.call(ListGroupsRequest(types_filter=["Registered"]))).groups) == 1
    assert (await orders.call(ListGroupsRequest(types_filter=["classic"]))).groups == []

    (received,) = (await orders.call(DescribeGroupsRequest(groups=["g"]))).groups
    assert (received.error_code, received.group_state, received.protocol_type, received.protocol_data) == (
        0, "Stable", "consumer", "sticky",
    )  # fmt: skip
    (member,) = received.members
    assert (member.member_id, member.client_id, member.client_host) == ("a", "kafkalite", "/127.0.0.1")
    (assigned,) = read_assignment(member.member_assignment).assigned_partitions
    assert (assigned.topic, assigned.partitions) == ("orders", [0, 1])
    assert read_subscription(member.member_metadata).topics == ["orders"]


async def test_delete_group_deletes_definition_and_offsets(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("orders")
        assert (await client.call(create("g", "orders"))).error_code == 0
        generation = (await client.call(register("g", "a"))).generation_id
        assert codes(await client.call(commit("g", "orders", {0: 0}, "a", generation), 9)) == [0]
        results = (await client.call(DeleteGroupRequest(groups=["g"]))).results
        assert results[0].error_code == Error.NON_EMPTY_GROUP
        await client.call(leave("g", "a"))
        assert set(await listed(client)) == {"g"}
        results = (await client.call(DeleteGroupRequest(groups=["g", "g"]))).results
        assert [each.error_code for each in results] == [0, Error.GROUP_ID_NOT_FOUND]
        assert await listed(client) == {}
    async with running(str(tmp_path)) as client:
        while (answer := await client.call(register("g", "a", "orders"))).error_code:
            assert answer.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
        assert (answer.generation_id, starts(answer)) == (1, {("orders", 0): -1})


async def test_registered_group_with_members_keeps_its_type(orders: Client) -> None:
    """A group of another type without members is replaced, with its offsets."""
    assert codes(await orders.call(commit("g", "orders", {0: 0}), 9)) == [0]
    assert starts(await orders.call(register("g", "a", "orders")))["orders", 0] == 0
    assert (await orders.call(join("g"), 3)).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert (await orders.call(beat_join("g", "m", "orders"))).error_code == Error.GROUP_ID_NOT_FOUND
    await orders.call(leave("g", "a"))
    member = (await orders.call(join("g"), 3)).member_id
    assert (await orders.call(sync("g", member, 1, {member: b""}))).error_code == 0
    assert (await orders.call(register("g", "a", "orders"))).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert (await orders.call(create("g", "orders"))).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    await orders.call(leave("g", member))
    assert (await orders.call(beat_join("g", "m", "orders"))).error_code == 0
    assert (await orders.call(register("g", "a", "orders"))).error_code == Error.INCONSISTENT_GROUP_PROTOCOL


async def test_create_group_with_huge_and_duplicate_lists(orders: Client) -> None:
    names = [f"none-{at}" for at in range(10_000)] + ["orders"] * 1000
    answer = await orders.call(register("../g", "../a", *names))
    assert answer.error_code == 0 and list(starts(answer)) == [("orders", 0), ("orders", 1)]
    claims = {"orders": [0] * 10_000}
    assert (await orders.call(register("../g", "b", claims=claims))).error_code == 0
    assert (await orders.call(create("h", *names))).error_code == 0
