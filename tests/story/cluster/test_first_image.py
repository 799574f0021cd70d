"""A broker that joins its cluster describes it only once it knows it, and is started by then, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.coordination.tree import Create
from kafkalite.coordination.znodes.brokers import registration_path
from kafkalite.coordination.znodes.controller import CONTROLLER
from kafkalite.errors import KafkaConnectionError
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import SESSION_MS, SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.story.cluster.test_three_brokers import Client


async def first_metadata(client: Client, broker_id: int) -> MetadataResponse:
    """The first response that the broker gives to a client that connects as soon as it can."""
    while True:
        try:
            return await client.metadata(broker_id)
        except KafkaConnectionError:
            await pass_time(0.001)


async def first_description(client: Client, broker_id: int) -> DescribeClusterResponse:
    while True:
        try:
            found: DescribeClusterResponse = await client.call(broker_id, DescribeClusterRequest(), 0)
        except KafkaConnectionError:
            await pass_time(0.001)
        else:
            return found


@pytest.mark.parametrize("restarted", (1, 2), ids=("the controller", "another broker"))
def test_the_first_response_of_a_started_broker_describes_the_whole_cluster(tmp_path: Path, restarted: int) -> None:
    async def main() -> None:
        network = MemoryNetwork(delay_s=(0.001, 0.004))
        async with SimulatedCluster(str(tmp_path), network, 2) as cluster:
            client = Client(network)
            assert await client.controller(1, 2) == 1
            await cluster.brokers[restarted].stop()
            asked = [asyncio.create_task(each(client, restarted)) for each in (first_metadata, first_description)]
            await cluster.start(restarted)
            image = cluster.brokers[restarted].running.image
            assert image.controller_id > 0 and image.brokers.ids == {1, 2}, "a broker that is started knows its cluster"
            metadata, description = await asyncio.gather(*asked)
            assert [each.node_id for each in metadata.brokers] == [1, 2]
            assert [each.broker_id for each in description.brokers] == [1, 2]
            assert {metadata.controller_id, description.controller_id} == {image.controller_id}

    run_virtually(main)


def test_metadata_waits_while_the_registration_of_an_earlier_process_lasts(tmp_path: Path) -> None:
    """As after a restart of the machine, which has another boot id."""

    async def main() -> None:
        network = MemoryNetwork()
        cluster = SimulatedCluster(str(tmp_path), network, 2)
        tree = cluster.zookeeper.tree
        await cluster.start(2)
        session = tree.open_session()
        tree.multi([Create(registration_path(1), tree.get(registration_path(2))[0], True)], session, 0)
        cluster.zookeeper.fire()
        starting = asyncio.create_task(cluster.start(1))
        asked = asyncio.create_task(first_metadata(Client(network), 1))
        await pass_time(1.5 * SESSION_MS / 1000)
        assert not starting.done() and not asked.done()
        tree.close_session(session)
        cluster.zookeeper.fire()
        assert [each.node_id for each in (await asked).brokers] == [1, 2]
        await starting
        for broker in cluster.brokers.values():
            await broker.stop()

    run_virtually(main)


def without_controller(directory: Path, network: MemoryNetwork) -> SimulatedCluster:
    """A cluster in whose tree another program is the controller, for ever."""
    cluster = SimulatedCluster(str(directory), network, 1)
    data = b'{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1}'
    tree = cluster.zookeeper.tree
    tree.multi([Create(CONTROLLER, data)], tree.open_session(), 0)
    return cluster


def test_a_start_without_a_controller_ends_after_twice_the_session_timeout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        cluster = without_controller(tmp_path, network)
        asked = asyncio.create_task(first_metadata(Client(network), 1))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cluster.start(1)
        assert 2 * SESSION_MS / 1000 <= loop.time() - begun < 2 * SESSION_MS / 1000 + 0.5
        assert (await asked).controller_id == -1
        assert "no controller has described the cluster within 4 s" in caplog.text
        await cluster.brokers[1].stop()

    run_virtually(main)


def test_a_start_that_waits_for_a_controller_can_be_killed(tmp_path: Path) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        cluster = without_controller(tmp_path, network)
        asked = asyncio.create_task(first_metadata(Client(network), 1))
        starting = asyncio.create_task(cluster.start(1))
        await pass_time(SESSION_MS / 2000)
        assert not asked.done() and not starting.done()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        asked.cancel()

    run_virtually(main)
