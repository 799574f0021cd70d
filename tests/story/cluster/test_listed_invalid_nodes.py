"""DescribeCoordination lists the nodes that the controller leaves out, in virtual time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kafkalite.coordination import znodes
from kafkalite.coordination.znodes.controller import CONTROLLER, CONTROLLER_EPOCH
from kafkalite.protocol.extensions.describe_coordination import DescribeCoordinationRequest
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.test_invalid_nodes import ForeignProgram, create_everywhere
from tests.story.cluster.test_three_brokers import Client, run

BROKERS = (1, 2, 3)
STATE = znodes.state_path("orders", 0)


async def listed(client: Client, broker_id: int) -> dict[str, str]:
    """The invalid nodes that a broker names, with the reasons."""
    found = await client.call(broker_id, DescribeCoordinationRequest(), 0)
    assert found.invalid_node_count == len(found.invalid_nodes)
    return {each.path: each.reason for each in found.invalid_nodes}


async def of_the_controller(client: Client) -> dict[str, str]:
    """The invalid nodes that the controller names; the other brokers name none."""
    controller = await client.controller(*BROKERS)
    assert [await listed(client, each) for each in BROKERS if each != controller] == [{}, {}]
    return await listed(client, controller)


def test_the_controller_lists_invalid_nodes_until_they_are_corrected(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        foreign = ForeignProgram(cluster)
        assert await of_the_controller(client) == {}
        foreign.write(f"{znodes.TOPICS}/bad name", b"{}")
        foreign.write(f"{znodes.BROKER_IDS}/7", b'{"version":5,"endpoints":[]}')
        await pass_time(0.5)
        found = await of_the_controller(client)
        assert list(found) == [f"{znodes.BROKER_IDS}/7", f"{znodes.TOPICS}/bad name"] and all(found.values())
        foreign.depose()  # the next controller reads the tree
        await pass_time(0.5)
        assert await of_the_controller(client) == found
        foreign.delete(f"{znodes.TOPICS}/bad name")
        foreign.delete(f"{znodes.BROKER_IDS}/7")
        await pass_time(0.5)
        assert await of_the_controller(client) == {}

    run(tmp_path, scenario)


def test_nodes_below_a_deleted_topic_are_not_listed_any_more(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await create_everywhere(client, "orders")
        foreign = ForeignProgram(cluster)
        foreign.write(STATE, b"garbage")
        foreign.depose()
        await pass_time(0.5)
        assert list(await of_the_controller(client)) == [STATE]
        foreign.delete(znodes.topic_path("orders"))
        await pass_time(0.5)
        assert await of_the_controller(client) == {}

    run(tmp_path, scenario)


def test_every_broker_lists_an_invalid_epoch_and_logs_it_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await client.controller(*BROKERS)
        foreign = ForeignProgram(cluster)
        valid = cluster.zookeeper.tree.get(CONTROLLER_EPOCH)[0]
        foreign.write(CONTROLLER_EPOCH, b"last")
        foreign.delete(CONTROLLER)
        await pass_time(59.0)
        for broker_id in BROKERS:
            assert await listed(client, broker_id) == {CONTROLLER_EPOCH: "not a controller epoch"}
        lines = [each for each in caplog.messages if each.startswith("no controller can be elected: ")]
        assert len(lines) == len(BROKERS), "one line of each broker, though it tries again each second"
        foreign.write(CONTROLLER_EPOCH, valid)
        await pass_time(5.0)
        assert [await listed(client, each) for each in BROKERS] == [{}, {}, {}]
        await create_everywhere(client, "later")

    with caplog.at_level(logging.ERROR, "kafkalite.controller"):
        run(tmp_path, scenario)
