"""Tests the administration of groups: lists, descriptions, deletion, group configs."""

from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.extensions.delete_group import DeleteGroupRequest
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest
from kafkalite.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from tests.kit.members import (
    assignment,
    beat_join,
    codes,
    commit,
    fast_heartbeat,
    fetch,
    join,
    leave,
    offsets_of,
    subscription,
    sync,
)
from tests.kit.server import Client, running

GROUP = 32
SET, DELETE = 0, 1
HEARTBEAT = "consumer.heartbeat.interval.ms"
SESSION = "consumer.session.timeout.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


@pytest.fixture
async def crowd(client: Client) -> Client:
    """A simple group, a classic one with a member, a classic one without, and a consumer group."""
    await client.create("orders", partitions=2)
    assert codes(await client.call(commit("simple", "orders", {0: 1}), 9)) == [0]
    for group in ("classic", "empty"):
        member = (await client.call(join(group), 3)).member_id
        given = {member: assignment("orders", 1, 0)}
        assert (await client.call(sync(group, member, 1, given))).error_code == 0
    assert (await client.call(leave("empty", member))).error_code == 0
    assert (await client.call(beat_join("modern", "m", "orders"))).error_code == 0
    return client


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, {"simple", "classic", "empty", "modern"}),
        ({"states_filter": ["Stable"]}, {"classic", "modern"}),
        ({"states_filter": ["EMPTY", "nonsense"]}, {"simple", "empty"}),
        ({"types_filter": ["Consumer"]}, {"modern"}),
        ({"types_filter": ["classic"], "states_filter": ["empty"]}, {"simple", "empty"}),
        ({"types_filter": ["share"]}, set()),
    ],
)
async def test_list_groups_with_states_and_types(crowd: Client, filters: dict[str, list[str]], names: set[str]) -> None:
    answer = await crowd.call(ListGroupsRequest(**filters))
    assert answer.error_code == 0
    assert {each.group_id for each in answer.groups} == names


READ_DESCRIBE_DELETE_AND_CONFIGS = 1 << 3 | 1 << 8 | 1 << 6 | 1 << 10 | 1 << 11
NOT_ASKED = -(2**31)


@pytest.mark.parametrize("asked", [False, True])
async def test_describe_groups_returns_authorized_operations_on_request(crowd: Client, asked: bool) -> None:
    """All supported operations, as there is no authorizer; none for a group that does not exist."""
    request = DescribeGroupsRequest(groups=["classic", "none"], include_authorized_operations=asked)
    answer = await crowd.call(request, 6)
    expected = READ_DESCRIBE_DELETE_AND_CONFIGS if asked else NOT_ASKED
    assert [each.authorized_operations for each in answer.groups] == [expected, NOT_ASKED]
    modern = ConsumerGroupDescribeRequest(group_ids=["modern", "none"], include_authorized_operations=asked)
    answer = await crowd.call(modern)
    assert [each.authorized_operations for each in answer.groups] == [expected, NOT_ASKED]


async def test_responses_about_thousands_of_groups_are_complete(client: Client) -> None:
    """They are built in several loop iterations, and encoded in pieces."""
    await client.create("orders", partitions=1)
    names = [f"g{at}" for at in range(700)]
    for name in names:
        assert codes(await client.call(commit(name, "orders", {0: 1}), 9)) == [0]
    listed = (await client.call(ListGroupsRequest())).groups
    assert sorted(each.group_id for each in listed) == sorted(names)
    assert {(each.protocol_type, each.group_state, each.group_type) for each in listed} == {("", "Empty", "classic")}
    nothing = await client.call(ListGroupsRequest(states_filter=["Stable"]))
    assert (nothing.error_code, nothing.groups) == (0, [])
    plus = (await client.call(ListGroupsPlusRequest(groups=[]))).groups
    assert sorted(each.group_id for each in plus) == sorted(names)
    described = (await client.call(DescribeGroupsRequest(groups=[*names, "none"]), 6)).groups
    assert [each.group_id for each in described] == [*names, "none"]
    assert [each.error_code for each in described] == [0] * 700 + [Error.GROUP_ID_NOT_FOUND]
    deleted = (await client.call(DeleteGroupsRequest(groups_names=[*names, "none"]))).results
    assert [(each.group_id, each.error_code) for each in deleted] == [
        *((name, 0) for name in names),
        ("none", Error.GROUP_ID_NOT_FOUND),
    ]
    assert (await client.call(ListGroupsRequest())).groups == []


@pytest.mark.parametrize("version", range(6))
async def test_list_groups_in_every_version(crowd: Client, version: int) -> None:
    groups = {each.group_id: each for each in (await crowd.call(ListGroupsRequest(), version)).groups}
    assert {name: each.protocol_type for name, each in groups.items()} == {
        "simple": "", "classic": "consumer", "empty": "consumer", "modern": "consumer",
    }  # fmt: skip
    if version >= 4:
        assert groups["classic"].group_state == "Stable" and groups["simple"].group_state == "Empty"
    if version >= 5:
        assert groups["classic"].group_type == "classic" and groups["modern"].group_type == "consumer"


@pytest.mark.parametrize("version", range(7))
async def test_describe_groups_in_every_version(crowd: Client, version: int) -> None:
    """An unknown group is Dead, and an error from v6 on."""
    names = ["classic", "empty", "simple", "modern", "none", "classic"]
    groups = (await crowd.call(DescribeGroupsRequest(groups=names), version)).groups
    assert [(each.group_id, each.group_state) for each in groups] == [
        ("classic", "Stable"), ("empty", "Empty"), ("simple", "Empty"), ("modern", "Dead"), ("none", "Dead"),
    ]  # fmt: skip
    dead = Error.GROUP_ID_NOT_FOUND if version >= 6 else 0
    assert [each.error_code for each in groups] == [0, 0, 0, dead, dead]
    assert (groups[0].protocol_type, groups[0].protocol_data) == ("consumer", "range")
    (member,) = groups[0].members
    assert member.member_metadata == subscription("orders") and member.member_assignment == assignment("orders", 1, 0)
    assert member.client_host == "/127.0.0.1" and member.member_id.startswith(f"{member.client_id}-")


async def test_group_name_of_maximum_length_is_described(crowd: Client) -> None:
    """Also in an error message, where it is shortened."""
    longest = "x" * 32_767
    (group,) = (await crowd.call(DescribeGroupsRequest(groups=[longest]))).groups
    assert (group.group_id, group.error_code) == (longest, Error.GROUP_ID_NOT_FOUND)
    (group,) = (await crowd.call(ConsumerGroupDescribeRequest(group_ids=[longest]))).groups
    assert (group.group_id, group.error_code) == (longest, Error.GROUP_ID_NOT_FOUND)


async def test_consumer_group_describe(crowd: Client) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["modern", "classic", "simple", "none", "", "modern"])
    for version in (0, 1):
        groups = (await crowd.call(request, version)).groups
        assert [(each.group_id, each.error_code) for each in groups] == [
            ("modern", 0),
            ("classic", Error.GROUP_ID_NOT_FOUND),
            ("simple", Error.GROUP_ID_NOT_FOUND),
            ("none", Error.GROUP_ID_NOT_FOUND),
            ("", Error.INVALID_GROUP_ID),
        ]
        modern = groups[0]
        assert (modern.group_state, modern.assignor_name) == ("Stable", "uniform")
        assert modern.group_epoch == modern.assignment_epoch
        (member,) = modern.members
        assert (member.member_id, member.subscribed_topic_names, member.client_host) == ("m", ["orders"], "/127.0.0.1")
        assert member.member_type == (1 if version else -1)
        (topic,) = member.assignment.topic_partitions
        assert (topic.topic_name, topic.topic_id, topic.partitions) == ("orders", crowd.topic_id("orders"), [0, 1])
        assert member.target_assignment == member.assignment


async def test_consumer_group_describe_skips_deleted_topics(crowd: Client) -> None:
    await crowd.delete("orders")
    (group,) = (await crowd.call(ConsumerGroupDescribeRequest(group_ids=["modern"]))).groups
    assert group.error_code == 0 and group.members[0].assignment.topic_partitions == []


@pytest.mark.parametrize("version", range(3))
async def test_delete_groups_deletes_offsets_of_empty_groups(crowd: Client, version: int) -> None:
    names = ["simple", "classic", "empty", "modern", "none", "", "simple"]
    results = (await crowd.call(DeleteGroupsRequest(groups_names=names), version)).results
    assert [(each.group_id, each.error_code) for each in results] == [
        ("simple", 0),
        ("classic", Error.NON_EMPTY_GROUP),
        ("empty", 0),
        ("modern", Error.NON_EMPTY_GROUP),
        ("none", Error.GROUP_ID_NOT_FOUND),
        ("", Error.GROUP_ID_NOT_FOUND),
    ]
    assert offsets_of(await crowd.call(fetch("simple"), 9)) == {}
    assert {each.group_id for each in (await crowd.call(ListGroupsRequest())).groups} == {"classic", "modern"}


async def test_delete_groups_deletes_empty_consumer_group(crowd: Client) -> None:
    assert (await crowd.call(fast_heartbeat("modern", "m", -1))).member_epoch == -1
    assert (await crowd.call(DeleteGroupRequest(groups=["modern", "none"]))).results[0].error_code == 0
    assert (await crowd.call(fast_heartbeat("modern", "m", 5))).error_code == Error.GROUP_ID_NOT_FOUND


async def test_list_groups_plus_returns_owned_partitions_of_all_group_types(crowd: Client) -> None:
    groups = {each.group_id: each for each in (await crowd.call(ListGroupsPlusRequest(groups=[]))).groups}
    assert {name: each.group_state for name, each in groups.items()} == {
        "simple": "Empty", "classic": "Stable", "empty": "Empty", "modern": "Stable",
    }  # fmt: skip
    for name in ("classic", "modern"):
        assert groups[name].topics == ["orders"]
        (member,) = groups[name].members
        assert [(each.name, each.partitions) for each in member.owned_partitions] == [("orders", [0, 1])]
    assert (groups["classic"].generation_id, groups["classic"].session_timeout_ms) == (1, 10_000)
    assert groups["modern"].session_timeout_ms == 45_000
    host, port = crowd.broker.address.rsplit(":", 1)
    assert {(each.controller_id, each.controller_host, each.controller_port) for each in groups.values()} == {
        (crowd.broker.broker_id, host, int(port))
    }
    named = (await crowd.call(ListGroupsPlusRequest(groups=["none", "classic", "none"]))).groups
    assert [(each.group_id, each.error_code) for each in named] == [("none", Error.GROUP_ID_NOT_FOUND), ("classic", 0)]


async def test_group_requests_with_many_names(crowd: Client) -> None:
    names = [f"none-{at}" for at in range(20_000)]
    results = (await crowd.call(DeleteGroupsRequest(groups_names=names))).results
    assert {each.error_code for each in results} == {Error.GROUP_ID_NOT_FOUND} and len(results) == len(names)


# Settings of single groups.


async def alter(client: Client, group: str, *changes: tuple[str, int, str | None]) -> int:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    asked = resource(resource_type=GROUP, resource_name=group, configs=configs)
    return int((await client.call(IncrementalAlterConfigsRequest(resources=[asked]))).responses[0].error_code)


async def settings(client: Client, group: str) -> Any:
    asked = DescribeConfigsRequest.DescribeConfigsResource(resource_type=GROUP, resource_name=group)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    (result,) = (await client.call(request)).results
    return result


async def test_group_configs_are_set_and_described(tmp_path: Path) -> None:
    """They take effect with the next heartbeat, and survive a restart; without them the broker's configs hold."""
    name = "../a.b/%2E"
    async with running(str(tmp_path)) as client:
        await client.create("orders")
        joined = await client.call(beat_join(name, "m", "orders"))
        assert joined.heartbeat_interval_ms == 5000
        assert await alter(client, name, (HEARTBEAT, SET, "6000"), (SESSION, SET, "50000")) == 0
        assert (await client.call(fast_heartbeat(name, "m", joined.member_epoch))).heartbeat_interval_ms == 6000
    async with running(str(tmp_path)) as client:
        found = {each.name: each for each in (await settings(client, name)).configs}
        assert (found[HEARTBEAT].value, found[HEARTBEAT].config_source) == ("6000", 8)
        assert [each.value for each in found[HEARTBEAT].synonyms] == ["6000", "5000"]
        assert (found[ASSIGNMENT].value, found[SESSION].value) == ("1000", "50000")
        assert await alter(client, name, (HEARTBEAT, DELETE, None), (SESSION, DELETE, None)) == 0
        assert {each.config_source for each in (await settings(client, name)).configs} == {5}
    async with running(str(tmp_path)) as client:
        assert {each.config_source for each in (await settings(client, name)).configs} == {5}


@pytest.mark.parametrize(
    ("group", "key", "value", "error"),
    [
        ("g", HEARTBEAT, "4999", Error.INVALID_CONFIG),
        ("g", HEARTBEAT, "15001", Error.INVALID_CONFIG),
        ("g", HEARTBEAT, "soon", Error.INVALID_CONFIG),
        ("g", SESSION, "44999", Error.INVALID_CONFIG),
        ("g", ASSIGNMENT, "15001", Error.INVALID_CONFIG),
        ("g", "share.session.timeout.ms", "45000", Error.INVALID_CONFIG),
        ("g", "retention.ms", "1", Error.INVALID_CONFIG),
        ("", HEARTBEAT, "6000", Error.INVALID_REQUEST),
    ],
)
async def test_invalid_group_configs_are_rejected(
    client: Client, group: str, key: str, value: str, error: Error
) -> None:
    assert await alter(client, group, (key, SET, value)) == error
    assert {each.config_source for each in (await settings(client, "g")).configs} == {5}


async def test_group_session_timeout_must_exceed_heartbeat_interval() -> None:
    brief = {"group.consumer.min.session.timeout.ms": "6000", "group.consumer.session.timeout.ms": "6000"}
    async with running(settings=brief) as client:
        assert await alter(client, "g", (HEARTBEAT, SET, "6000")) == Error.INVALID_CONFIG
        assert await alter(client, "g", (HEARTBEAT, SET, "6000"), (SESSION, SET, "6001")) == 0
        assert await alter(client, "g", (SESSION, DELETE, None)) == Error.INVALID_CONFIG
        assert await alter(client, "g", (HEARTBEAT, DELETE, None), (SESSION, DELETE, None)) == 0


async def test_group_config_of_the_empty_name_is_rejected(client: Client) -> None:
    assert (await settings(client, "")).error_code == Error.INVALID_REQUEST
