"""Starts that are refused, with nothing changed: an empty tree, another cluster's, a directory of a broker alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kafkalite.coordination.tree import Create
from kafkalite.coordination.znodes import CLUSTER_ID
from kafkalite.server.broker import StartError
from kafkalite.server.process.resources import ADOPTING
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.simulated_cluster import MEMBER_SETTINGS, SESSION_MS, SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(main)


def paths(cluster: SimulatedCluster) -> list[str]:
    return [path for path, _ in cluster.zookeeper.tree.walk()]


async def started_and_stopped(directory: Path) -> None:
    """Use the log directories of brokers 1 and 2 in a cluster."""
    async with SimulatedCluster(str(directory), MemoryNetwork(), 2):
        pass


def test_an_empty_tree_is_refused_and_stays_empty(tmp_path: Path) -> None:
    async def main() -> None:
        await started_and_stopped(tmp_path)
        cluster = SimulatedCluster(str(tmp_path), MemoryNetwork(), 2)
        before = paths(cluster)
        with pytest.raises(StartError, match="has no /cluster/id: it is empty or another one"):
            await cluster.start(1)
        await pass_time(1.0)
        assert paths(cluster) == before
        assert (tmp_path / "1" / "meta.properties").exists()

    run(main)


def test_the_tree_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        await started_and_stopped(tmp_path / "theirs")
        network = MemoryNetwork()
        cluster = SimulatedCluster(str(tmp_path / "ours"), network, 1, seed=9)
        async with cluster:
            other = SimulatedBroker(
                str(tmp_path / "theirs" / "2"), network, settings={**MEMBER_SETTINGS, "broker.id": 2}, host="other"
            )
            before = paths(cluster)
            with pytest.raises(
                StartError, match=r"the tree belongs to cluster .* restore the tree, or correct zookeeper"
            ):
                await other.start()
            assert paths(cluster) == before

    run(main)


def test_a_directory_with_the_journal_of_a_broker_alone_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with SimulatedBroker(str(tmp_path / "1"), MemoryNetwork(), settings={"broker.id": 1}):
            pass
        cluster = SimulatedCluster(str(tmp_path), MemoryNetwork(), 1)
        with pytest.raises(StartError, match="belongs to a broker that is alone"):
            await cluster.start(1)
        assert CLUSTER_ID not in paths(cluster)

    run(main)


def test_a_directory_of_a_cluster_is_refused_by_a_broker_alone(tmp_path: Path) -> None:
    async def main() -> None:
        await started_and_stopped(tmp_path)
        alone = SimulatedBroker(str(tmp_path / "1"), MemoryNetwork(), settings={"broker.id": 1})
        with pytest.raises(StartError, match=r"set zookeeper\.connect"):
            await alone.start()

    run(main)


def test_two_brokers_with_one_id_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with SimulatedCluster(str(tmp_path), network, 2) as cluster:
            settings = {**MEMBER_SETTINGS, "broker.id": 1}
            other = SimulatedBroker(str(tmp_path / "other"), network, settings=settings, host="other")
            with pytest.raises(StartError, match="another broker with id 1 is alive, at PLAINTEXT://broker1:9092"):
                await other.start()
            assert "/brokers/ids/1" in paths(cluster)

    run(main)


def test_an_interrupted_adoption_is_refused(tmp_path: Path) -> None:
    """By the adopted broker, whose journal has another name, and by one with empty log directories."""

    async def main() -> None:
        cluster = SimulatedCluster(str(tmp_path), MemoryNetwork(), 2)
        nodes = [Create(path, b"") for path in ("/brokers", "/brokers/topics", "/brokers/topics/orders")]
        tree = cluster.zookeeper.tree
        tree.multi(nodes, tree.open_session(), 0)
        before = paths(cluster)
        with pytest.raises(StartError, match="the tree has topics, but no /cluster/id: `kafkalite cluster adopt` was"):
            await cluster.start(1)
        (tmp_path / "2").mkdir()
        (tmp_path / "2" / ADOPTING).touch()
        with pytest.raises(StartError, match="`kafkalite cluster adopt` was interrupted: repeat it"):
            await cluster.start(2)
        assert paths(cluster) == before

    run(main)


def test_rejected_credentials_keep_the_key_of_the_earlier_session(tmp_path: Path) -> None:
    """The start with the right ones ends the session of the killed process, instead of waiting for its timeout."""

    async def main() -> None:
        digest = tmp_path / "digest"
        digest.write_text("kafka:secret")
        digest.chmod(0o600)
        settings = {"kafkalite.zookeeper.digest.file": str(digest)}
        async with SimulatedCluster(str(tmp_path), MemoryNetwork(), 1, settings=settings) as cluster:
            cluster.kill(1)
            (earlier,) = cluster.zookeeper.sessions
            cluster.zookeeper.passwords = {b"kafka:other"}
            with pytest.raises(StartError, match="zookeeper:2181: the credentials are rejected"):
                await cluster.start(1)
            cluster.zookeeper.passwords = {b"kafka:secret"}
            assert earlier in cluster.zookeeper.sessions
            started_at = asyncio.get_running_loop().time()
            await cluster.start(1)
            assert asyncio.get_running_loop().time() - started_at < SESSION_MS / 1000 / 2
            assert earlier not in cluster.zookeeper.sessions and len(cluster.zookeeper.sessions) == 1

    run(main)
