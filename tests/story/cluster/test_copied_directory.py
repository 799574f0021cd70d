"""A copy of a log directory never replaces the broker that it was copied from, whose logs are newer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalite.coordination.znodes.brokers import registration_path
from kafkalite.server.broker import StartError
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.simulated_cluster import MEMBER_SETTINGS, SESSION_MS, ZOOKEEPER, SimulatedCluster, host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.test_older_tree import simulate
from tests.story.cluster.test_three_brokers import Client, led

WAIT_S = 4 * SESSION_MS / 1000


def copied(directory: Path, network: MemoryNetwork) -> SimulatedBroker:
    """A broker with a copy of the log directory of broker 1 as it is now."""
    shutil.copytree(directory / "1", directory / "copy", dirs_exist_ok=True)
    return SimulatedBroker(str(directory / "copy"), network, settings={**MEMBER_SETTINGS, "broker.id": 1}, host="copy")


async def filled(client: Client) -> None:
    await client.create(1, "t", 1)
    await led(client, 1, "t", 1)
    assert await client.produce(1, "t", 0, b"before") == 0


def test_a_copy_of_the_directory_of_a_live_broker_is_refused(tmp_path: Path) -> None:
    """The lock of the copy does not prove that the other process is dead: its session is not closed."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await filled(client)
        copy = copied(tmp_path, client.network)
        assert await client.produce(1, "t", 0, b"after") == 0
        before = cluster.zookeeper.tree.get(registration_path(1))[1].czxid
        with pytest.raises(StartError, match="another broker with id 1 is alive, at PLAINTEXT://broker1:9092"):
            await copy.start()
        assert cluster.zookeeper.tree.get(registration_path(1))[1].czxid == before
        assert await client.values(1, "t", 0) == [b"before", b"after"]

    simulate(tmp_path, scenario)


def test_the_copy_of_a_killed_broker_waits_until_its_session_has_ended(tmp_path: Path) -> None:
    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await filled(client)
        cluster.kill(1)
        copy = copied(tmp_path, client.network)
        await copy.start()
        await copy.stop()
        await cluster.start(1)

    simulate(tmp_path, scenario)


def test_a_member_that_a_copy_has_replaced_waits_and_serves_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its session has ended while it was out of reach: it does not stop, and takes its registration back."""

    async def scenario(cluster: SimulatedCluster, client: Client) -> None:
        await filled(client)
        copy = copied(tmp_path, client.network)
        assert await client.produce(1, "t", 0, b"after") == 0
        cluster.expire(1)
        client.network.disconnect(host_of(1), ZOOKEEPER)
        await pass_time(WAIT_S)
        await copy.start()
        client.network.reconnect(host_of(1), ZOOKEEPER)
        await pass_time(2 * WAIT_S)
        assert "another broker with id 1 is alive, at PLAINTEXT://copy:9092: it has registered while" in caplog.text
        assert cluster.brokers[1].running.broker_id == 1, "it runs"
        await copy.stop()
        await pass_time(2.0)
        await led(client, 1, "t", 1)
        assert await client.values(1, "t", 0) == [b"before", b"after"]

    simulate(tmp_path, scenario)
