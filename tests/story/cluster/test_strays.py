"""Logs that an older tree does not name become strays, and are logs of their partitions again with the newer one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kafkalite.coordination.tree import Create, Delete, Operation
from kafkalite.coordination.znodes import topic_path
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.story.cluster.test_three_brokers import Client

Change = Callable[[SimulatedCluster], None]


class Nodes:
    """The nodes of a topic, which are removed from the tree and restored."""

    def __init__(self, cluster: SimulatedCluster, topic: str) -> None:
        path = topic_path(topic)
        self._tree = cluster.zookeeper.tree
        found = [(each, node.data) for each, node in self._tree.walk() if f"{each}/".startswith(f"{path}/")]
        self._found = sorted(found)

    def remove(self) -> None:
        self._apply([Delete(path) for path, _ in reversed(self._found)])

    def restore(self) -> None:
        self._apply([Create(path, data) for path, data in self._found])

    def _apply(self, operations: list[Operation]) -> None:
        self._tree.multi(operations, self._tree.open_session(), 0)


def simulate(directory: Path, scenario: Callable[[SimulatedCluster, Client], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with SimulatedCluster(str(directory), network, 1) as cluster:
            client = Client(network)
            await client.controller(1)
            await scenario(cluster, client)

    run_virtually(main)


async def filled(client: Client, topic: str) -> None:
    """A topic with three records in each of two partitions."""
    assert (await client.create(1, topic, 2)).error_code == 0
    for partition in range(2):
        assert await client.produce(1, topic, partition, b"a", b"b", b"c") == 0


def strays(directory: Path) -> list[str]:
    """The partitions that are strays in the log directory of broker 1."""
    return sorted(each.name.partition(".")[0] for each in (directory / "1").iterdir() if each.name.endswith("-stray"))


async def made_strays(cluster: SimulatedCluster, client: Client, topic: str) -> Nodes:
    """Start the broker with a tree that does not have the topic."""
    nodes = Nodes(cluster, topic)
    await cluster.brokers[1].stop()
    nodes.remove()
    await cluster.start(1)
    await client.controller(1)
    await pass_time(1.0)
    return nodes


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_start_returns_strays_that_the_tree_assigns_again(
    tmp_path: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await filled(client, "orders")
        nodes = await made_strays(cluster, client, "orders")
        assert strays(tmp_path) == ["orders-0", "orders-1"]
        await (cluster.brokers[1].stop() if end == "stop" else _killed(cluster))
        nodes.restore()
        await cluster.start(1)
        await client.controller(1)
        await pass_time(1.0)
        assert strays(tmp_path) == [] and "orders-0: the stray orders-0." in caplog.text
        for partition in range(2):
            assert await client.values(1, "orders", partition) == [b"a", b"b", b"c"]
            assert await client.produce(1, "orders", partition, b"d") == 0
        await cluster.brokers[1].stop()
        await cluster.start(1)
        await client.controller(1)
        await pass_time(1.0)
        assert await client.values(1, "orders", 0) == [b"a", b"b", b"c", b"d"]

    simulate(tmp_path, scenario)


async def _killed(cluster: SimulatedCluster) -> None:
    cluster.kill(1)


def test_a_running_broker_does_not_replace_a_stray_by_an_empty_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await filled(client, "orders")
        nodes = await made_strays(cluster, client, "orders")
        nodes.restore()
        cluster.zookeeper.fire()
        await pass_time(2.0)
        assert "orders-0 is offline: its log was made the stray orders-0." in caplog.text
        assert await client.leaders(1, "orders") == {0: -1, 1: -1}
        assert strays(tmp_path) == ["orders-0", "orders-1"] and not (tmp_path / "1" / "orders-0").exists()
        await cluster.brokers[1].stop()
        await cluster.start(1)
        await client.controller(1)
        await pass_time(1.0)
        assert await client.values(1, "orders", 1) == [b"a", b"b", b"c"]

    simulate(tmp_path, scenario)


def test_strays_of_another_topic_with_the_name_are_kept(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await filled(client, "orders")
        await made_strays(cluster, client, "orders")
        await filled(client, "orders")
        await cluster.brokers[1].stop()
        await cluster.start(1)
        await client.controller(1)
        await pass_time(1.0)
        assert strays(tmp_path) == ["orders-0", "orders-1"]
        assert await client.values(1, "orders", 0) == [b"a", b"b", b"c"]

    simulate(tmp_path, scenario)


def test_one_of_two_strays_of_a_partition_is_not_chosen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await filled(client, "orders")
        nodes = await made_strays(cluster, client, "orders")
        await cluster.brokers[1].stop()
        (stray,) = (tmp_path / "1").glob("orders-0.*-stray")
        copy = stray.with_name(f"orders-0.{'0' * 32}-stray")
        copy.mkdir()
        for each in stray.iterdir():
            (copy / each.name).write_bytes(each.read_bytes())
        nodes.restore()
        await cluster.start(1)
        await client.controller(1)
        await pass_time(1.0)
        assert strays(tmp_path) == ["orders-0", "orders-0"]
        assert "the stray is kept" in caplog.text and "there is another stray of orders-0" in caplog.text
        assert await client.leaders(1, "orders") == {0: -1, 1: 1}

    simulate(tmp_path, scenario)
