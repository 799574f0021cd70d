"""Groups through any broker of a cluster: lists, creation, configs, rewinds; three brokers in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.configs.writes import group_node
from kafkalite.coordination import znodes
from kafkalite.coordinators.group.settings import GroupSettings
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.testing.simulated_cluster import PORT, SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.members import (
    beat_plus,
    codes,
    commit,
    create,
    fetch,
    offsets_of,
    register,
    rewind_to,
    rewound,
    starts,
)
from tests.kit.server import NOW_MS, batch, produce_request
from tests.story.cluster.test_three_brokers import BROKERS, Client, coordinator, led, run, until

SETTINGS = {
    "offsets.topic.num.partitions": 6,
    "offsets.topic.replication.factor": 1,  # a dead coordinator has no successor
    "kafkalite.group.peer.timeout.ms": 3_000,
}
GROUPS = [f"g{number}" for number in range(12)]
GROUP = 32  # type of config resources
KEY = "consumer.session.timeout.ms"

Scenario = Callable[[SimulatedCluster, Client], Coroutine[Any, Any, None]]


def simulate(directory: Path, scenario: Scenario) -> None:
    run(directory, scenario, settings=SETTINGS)


async def created(client: Client, broker_id: int, group: str, *topics: str, **more: Any) -> Any:
    """The response to CreateGroup, once the coordinator is available."""

    async def look() -> Any:
        response = await client.call(broker_id, create(group, *topics, **more), 0)
        retried = (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)
        return None if response.error_code in retried else response

    return await until(look)


async def all_created(client: Client, cluster: SimulatedCluster) -> dict[str, int]:
    """Create the groups, each through another broker; returns the coordinator of each."""
    found = {}
    for number, group in enumerate(GROUPS):
        response = await created(client, number % BROKERS + 1, group, "orders")
        assert response.error_code == 0
        assert response.controller_host == f"broker{response.controller_id}" and response.controller_port == PORT
        assert response.controller_id == await coordinator(client, group, tuple(cluster.brokers))
        found[group] = response.controller_id
    assert set(found.values()) == {1, 2, 3}, "the groups are spread"
    return found


async def listed(client: Client, broker_id: int, *names: str) -> list[Any]:
    """The entries of ListGroups+."""
    response = await client.call(broker_id, ListGroupsPlusRequest(groups=list(names)), 0)
    return list(response.groups)


def shown(groups: list[Any]) -> list[tuple[Any, ...]]:
    """Name, error, state and coordinator of each entry, in order."""
    return sorted(
        (each.group_id, each.error_code, each.group_state, each.controller_id, each.controller_host) for each in groups
    )


def test_every_broker_lists_the_groups_of_all_coordinators(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        for broker_id in cluster.brokers:
            assert await listed(client, broker_id) == []
            assert shown(await listed(client, broker_id, "g1")) == [("g1", Error.GROUP_ID_NOT_FOUND, "Dead", -1, "")]
        owners = await all_created(client, cluster)
        expected = sorted((group, 0, "Empty", owner, f"broker{owner}") for group, owner in owners.items())
        for broker_id in cluster.brokers:
            assert shown(await listed(client, broker_id)) == expected
            names = ["g7", "none", "g2", "g7", "g3"]
            groups = await listed(client, broker_id, *names)
            assert [each.group_id for each in groups] == ["g7", "none", "g2", "g3"]
            assert [each.error_code for each in groups] == [0, Error.GROUP_ID_NOT_FOUND, 0, 0]
            assert [each.topics for each in groups] == [["orders"], [], ["orders"], ["orders"]]
        own = await client.call(1, ListGroupsPlusRequest(groups=[], coordinator_only=True), 0)
        assert {each.group_id for each in own.groups} == {group for group, owner in owners.items() if owner == 1}
        other = next(group for group, owner in owners.items() if owner != 1)
        own = await client.call(1, ListGroupsPlusRequest(groups=[other], coordinator_only=True), 0)
        assert [each.error_code for each in own.groups] == [Error.NOT_COORDINATOR]

    simulate(tmp_path, scenario)


def test_coordinators_that_do_not_answer_in_time_are_named(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        owners = await all_created(client, cluster)
        of_slow = next(group for group, owner in owners.items() if owner == 2)
        others = sorted((group, 0, "Empty", each, f"broker{each}") for group, each in owners.items() if each != 2)
        assert len(await listed(client, 1)) == len(GROUPS)
        network = client.network
        network.stall("broker2", PORT, 60.0)
        before = network.loop.time()
        slow = ("", Error.REQUEST_TIMED_OUT, "Dead", 2, "broker2")
        assert shown(await listed(client, 1)) == [slow, *others]
        assert 3.0 <= network.loop.time() - before < 3.5
        assert shown(await listed(client, 1, of_slow))[0][:2] == (of_slow, Error.REQUEST_TIMED_OUT)
        response = await client.call(1, create(of_slow, "orders"), 0)
        assert (response.error_code, response.controller_id) == (Error.REQUEST_TIMED_OUT, 2)

    simulate(tmp_path, scenario)


def test_coordinators_that_are_dead_are_named(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        owners = await all_created(client, cluster)
        of_dead = next(group for group, owner in owners.items() if owner == 2)
        others = sorted((group, 0, "Empty", each, f"broker{each}") for group, each in owners.items() if each != 2)
        cluster.kill(2)
        error = Error.COORDINATOR_NOT_AVAILABLE
        assert shown(await listed(client, 1)) == [("", error, "Dead", 2, "broker2"), *others], "it has a session"
        await client.controller(1, 3)

        async def removed() -> bool | None:
            return [each.node_id for each in (await client.metadata(1)).brokers] == [1, 3] or None

        await until(removed)
        assert shown(await listed(client, 1)) == [("", error, "Dead", 2, ""), *others]
        assert shown(await listed(client, 1, of_dead)) == [(of_dead, error, "Dead", -1, "")]
        response = await client.call(1, create(of_dead, "orders"), 0)
        assert (response.error_code, response.controller_id) == (error, -1)
        await cluster.start(2)

        async def complete() -> bool | None:
            return all(not each[1] for each in shown(await listed(client, 1))) or None

        await until(complete)
        assert len(await listed(client, 1)) == len(GROUPS)

    simulate(tmp_path, scenario)


def test_a_broker_that_stops_answers_what_waits_for_others(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await all_created(client, cluster)
        await listed(client, 1)
        client.network.stall("broker2", PORT, 60.0)
        waiting = client.network.loop.create_task(listed(client, 1))
        await pass_time(0.5)
        await cluster.brokers[1].stop()
        assert {each.error_code for each in await waiting} & {Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR}

    simulate(tmp_path, scenario)


def test_invalid_definitions_are_refused_by_any_broker(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        owners = await all_created(client, cluster)
        for broker_id in cluster.brokers:
            for group in ("g0", "g1", "g2", "g3"):
                response = await client.call(broker_id, create(group, "orders", assignor="best"), 0)
                assert (response.error_code, response.controller_id) == (Error.UNSUPPORTED_ASSIGNOR, owners[group])
            assert (await client.call(broker_id, create("", "orders"), 0)).error_code == Error.INVALID_GROUP_ID

    simulate(tmp_path, scenario)


# Configs of groups.


async def alter(client: Client, broker_id: int, group: str, value: str | None) -> None:
    """Set or delete a config of a group."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=KEY, config_operation=int(value is None), value=value)
    changed = resource(resource_type=GROUP, resource_name=group, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
    assert (await client.call(broker_id, request, 1)).responses[0].error_code == 0


async def described(client: Client, broker_id: int, group: str) -> str | None:
    """The value of the config as a broker knows it."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=[KEY]
    )
    (result,) = (await client.call(broker_id, DescribeConfigsRequest(resources=[resource]), 4)).results
    value: str | None = result.configs[0].value
    return value


async def agreed(client: Client, brokers: tuple[int, ...], group: str, value: str) -> None:
    """Wait until brokers know this value."""

    async def look() -> bool | None:
        return {await described(client, each, group) for each in brokers} == {value} or None

    await until(look)


@pytest.mark.parametrize("group", ["billing", "a/b.c"])
def test_configs_of_groups_reach_every_broker(tmp_path: Path, group: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        default = await described(client, 1, group)
        assert default is not None
        for broker_id, value in ((1, "51000"), (2, "52000"), (3, "53000")):
            await alter(client, broker_id, group, value)
            assert await described(client, broker_id, group) == value, "the broker of the request knows it at once"
            await agreed(client, (1, 2, 3), group, value)
        cluster.kill(2)
        await alter(client, 1, group, "54000")
        await cluster.start(2)
        cluster.expire(3)

        async def registered_again() -> bool | None:
            return cluster.zookeeper.tree.find("/brokers/ids/3") is not None or None

        await until(registered_again)
        await agreed(client, (1, 2, 3), group, "54000")
        await alter(client, 3, group, None)
        await agreed(client, (1, 2, 3), group, default)
        assert not any(path.startswith("/kafkalite/groups/") for path, _ in cluster.zookeeper.tree.walk())
        for broker in cluster.brokers.values():
            assert broker.running.group_configs == {}

    simulate(tmp_path, scenario)


def test_invalid_configs_of_groups_in_the_tree_are_not_used_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(1, 2, 3)
        await alter(client, 1, "billing", "51000")
        await agreed(client, (1, 2, 3), "billing", "51000")
        writer = cluster.brokers[1].running.participant.writer  # type: ignore[attr-defined]
        texts = {KEY: "soon", "consumer.heartbeat.interval.ms": "6000", "unknown": "x"}
        writer.configs.change(group_node("billing"), lambda _current: texts, lambda _written: None)
        await alter(client, 1, "other", "52000")
        await agreed(client, (1, 2, 3), "other", "52000")
        for broker in cluster.brokers.values():
            settings = GroupSettings(broker.running).of("billing")
            assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (45_000, 6_000)
        await agreed(client, (1, 2, 3), "billing", "soon")
        cluster.kill(2)
        await cluster.start(2)
        await agreed(client, (1, 2, 3), "billing", "soon")
        await alter(client, 1, "billing", "53000")
        await agreed(client, (1, 2, 3), "billing", "53000")
        data, _ = cluster.zookeeper.tree.get(group_node("billing").path)
        assert znodes.decode_configs("", data) == {**texts, KEY: "53000"}, "the others are kept"

    simulate(tmp_path, scenario)
    assert any("billing" in each and "soon" in each for each in caplog.messages)


# Topics.


def test_topics_of_all_brokers_reach_every_coordinator(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        controller = await client.controller(1, 2, 3)
        await client.create(controller, "orders", 2)
        owners = {group: (await created(client, 1, group, topic_pattern="or.*")).controller_id for group in GROUPS[:6]}
        assert set(owners.values()) == {1, 2, 3}
        for group, owner in owners.items():
            registered = await client.call(owner, register(group, "c"), 0)
            assert registered.error_code == 0 and set(starts(registered)) == {("orders", 0), ("orders", 1)}
            assert codes(await client.call(owner, commit(group, "orders", {0: 5}, "c", 1), 8)) == [0]
        await client.create(controller, "organs", 1)
        for group, owner in owners.items():

            async def noticed(group: str = group, owner: int = owner) -> bool | None:
                beat = await client.call(owner, beat_plus(group, "c", 1), 0)
                return beat.error_code == Error.REBALANCE_IN_PROGRESS or None

            await until(noticed)
            registered = await client.call(owner, register(group, "c"), 0)
            assert set(starts(registered)) == {("orders", 0), ("orders", 1), ("organs", 0)}
        await client.call(controller, DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000), 5)
        for group, owner in owners.items():

            async def forgotten(group: str = group, owner: int = owner) -> bool | None:
                return offsets_of(await client.call(owner, fetch(group), 8)) == {} or None

            await until(forgotten)

    simulate(tmp_path, scenario)


# Rewinds.


async def filled(client: Client) -> dict[int, int]:
    """A topic with 10 records in each of 6 partitions, one per second; returns the leaders."""
    await client.create(await client.controller(1, 2, 3), "orders", 6)
    leaders = await led(client, 1, "orders", 6)
    for partition, leader in leaders.items():
        for number in range(10):
            records = batch(b"%d" % number, timestamp=NOW_MS + number * 1_000)
            response = await client.call(leader, produce_request("orders", (partition, records)), 9)
            assert response.responses[0].partition_responses[0].error_code == 0
    return leaders


async def rewinding(client: Client, owner: int, *positions: tuple[str, int, int, int]) -> list[tuple[int, int]]:
    response = await client.call(owner, rewind_to("g0", *positions), 0)
    return rewound(response)


def test_a_rewind_uses_the_logs_of_all_leaders(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        leaders = await filled(client)
        owner = (await created(client, 1, "g0", "orders")).controller_id
        assert any(each != owner for each in leaders.values())
        every = range(6)
        cases = (
            (3, -1, 3), (-1, -2, 0), (-1, -1, 10), (77, -1, 10), (-1, NOW_MS + 4_500, 5), (-1, NOW_MS + 99_000, 10),
        )  # fmt: skip
        for offset, timestamp, expected in cases:
            found = await rewinding(client, owner, *(("orders", each, offset, timestamp) for each in every))
            assert found == [(expected, 0)] * 6, (offset, timestamp)
            offsets = offsets_of(await client.call(owner, fetch("g0"), 8))
            assert offsets == {("orders", each): expected for each in every}
        wrong = await rewinding(client, owner, ("orders", 6, 1, -1), ("none", 0, 1, -1), ("orders", 0, -2, -1))
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
        assert wrong == [(-1, unknown), (-1, unknown), (-1, Error.INVALID_REQUEST)]

    simulate(tmp_path, scenario)


def test_a_rewind_names_partitions_whose_leader_is_absent_or_slow(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        leaders = await filled(client)
        owner = (await created(client, 1, "g0", "orders")).controller_id
        slow, dead = (each for each in cluster.brokers if each != owner)
        everything = [("orders", each, 3, -1) for each in range(6)]
        assert await rewinding(client, owner, *everything) == [(3, 0)] * 6
        client.network.stall(f"broker{slow}", PORT, 60.0)
        cluster.kill(dead)
        errors = {owner: (4, 0), slow: (-1, Error.REQUEST_TIMED_OUT), dead: (-1, Error.LEADER_NOT_AVAILABLE)}
        found = await rewinding(client, owner, *(("orders", each, 4, -1) for each in range(6)))
        assert found == [errors[leaders[each]] for each in range(6)]
        offsets = offsets_of(await client.call(owner, fetch("g0"), 8))
        assert offsets == {("orders", each): 4 if leaders[each] == owner else 3 for each in range(6)}

    simulate(tmp_path, scenario)
