"""Nodes that a foreign program wrote with invalid values stop nothing: later topics get leaders on every broker."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kafkalite.coordination import znodes
from kafkalite.errors import KafkaErrorCode
from kafkalite.testing.simulated_cluster import SimulatedCluster
from tests.kit.znode_fields import Case, Node, cases, nodes
from tests.story.cluster.foreign_program import FENCES, FOREIGN, VALID, ForeignProgram
from tests.story.cluster.test_three_brokers import Client, led, run, until

NODES = [each for each in nodes() if each.path not in FENCES]
DEPOSE_EVERY = 8


async def create_everywhere(client: Client, name: str) -> None:
    """Create a topic; every broker knows its leaders."""

    async def create() -> bool | None:
        controller = await client.controller(1, 2, 3)
        created = await client.create(controller, name, 3)
        if created.error_code == KafkaErrorCode.NOT_CONTROLLER:  # another one is being elected
            return None
        assert created.error_code in (KafkaErrorCode.NONE, KafkaErrorCode.TOPIC_ALREADY_EXISTS), created
        return True

    await until(create)
    leaders = [await led(client, broker_id, name, 3) for broker_id in (1, 2, 3)]
    assert leaders[0] == leaders[1] == leaders[2]


def drawn(node: Node) -> list[Case]:
    """The cases of a node, each field with some of its values: all of them are decoded by `test_znode_ranges`."""
    found = [each for each in cases(node) if each.field not in VALID]
    return Random(node.path).sample(found, min(len(found), 16))


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.path)
def test_topic_gets_its_leaders_after_a_field_of_a_node_is_out_of_range(node: Node, tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        foreign = ForeignProgram(cluster)
        found = cluster.zookeeper.tree.find(node.path)
        before = found.data if found is not None else None
        for number, case in enumerate(drawn(node)):
            print(case.field)
            foreign.write(node.path, case.data)
            if number % DEPOSE_EVERY == 0:
                foreign.depose()
            await create_everywhere(client, f"after{number}")
            if before is None:
                foreign.delete(node.path)
            else:
                foreign.write(node.path, before)

    run(tmp_path, scenario, settings={"broker.rack": "rack"})


@pytest.mark.parametrize(("path", "data"), FOREIGN, ids=[path for path, _ in FOREIGN])
def test_invalid_node_stops_nothing_else_and_is_logged_once(
    path: str, data: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        foreign = ForeignProgram(cluster)
        foreign.write(path, data)
        await create_everywhere(client, "after")
        foreign.write(f"{znodes.TOPICS}/other", b"[]")
        await create_everywhere(client, "later")
        lines = [each for each in caplog.messages if each.startswith(f"{path}: the node is ignored")]
        assert len(lines) == 1, lines
        foreign.depose()
        await create_everywhere(client, "elected")
        assert cluster.zookeeper.tree.get(path)[0] == data, "it is kept"
        for broker_id in (1, 2, 3):
            cluster.kill(broker_id)
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id)
        await create_everywhere(client, "restarted")

    run(tmp_path, scenario)
