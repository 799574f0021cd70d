"""A broker that does not reach its coordination service says since when, in virtual time; `cluster status` shows it."""

from __future__ import annotations

from pathlib import Path

from kafkalite.cli.cluster.commands import state_of
from kafkalite.cli.cluster.replica_counts import ReplicaCounts
from kafkalite.cli.cluster.status import BrokerStatus, ClusterStatus
from kafkalite.protocol.extensions.describe_coordination import DescribeCoordinationRequest
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import SESSION_MS, ZOOKEEPER, SimulatedCluster
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.story.cluster.test_three_brokers import Client


async def suspended_ms(client: Client, broker_id: int) -> int:
    found: int = (await client.call(broker_id, DescribeCoordinationRequest(), 0)).suspended_ms
    return found


def test_a_suspended_session_is_described_until_it_is_resumed_or_lost(tmp_path: Path) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with SimulatedCluster(str(tmp_path), network, 2):
            client = Client(network)
            await client.controller(1, 2)
            assert await suspended_ms(client, 1) == -1
            network.disconnect("broker1", ZOOKEEPER)
            await pass_time(SESSION_MS * 0.9 / 1000)
            found = await suspended_ms(client, 1)
            assert 0 <= found < SESSION_MS and await suspended_ms(client, 2) == -1
            await pass_time(0.05)
            assert found + 50 <= await suspended_ms(client, 1) <= found + 60
            network.reconnect("broker1", ZOOKEEPER)
            await pass_time(1.5)
            assert await suspended_ms(client, 1) == -1

    run_virtually(main)


def test_status_names_brokers_that_are_cut_off() -> None:
    connected = BrokerStatus(1, "host1", 9092, None, True, True, False, "zk:2181", None, 0, 0, 0)
    brokers = [
        connected,
        connected._replace(broker=2, controller=False, outage_s=12.4, pending_isr_changes=3),
        connected._replace(broker=3, controller=False, answers=False, coordination=None),
        connected._replace(broker=4, controller=False, denied=True, coordination=None),
    ]
    assert [state_of(each) for each in brokers] == ["answers", "cut off", "silent", "no right"]
    status = ClusterStatus("id", 1, brokers, [], {}, 0, 0, [], ReplicaCounts(0, 0, 0, 0), [], 0, 2)
    assert status.problems == [
        "broker 2 has not reached zk:2181 for 12 s: "
        "it serves, but changes of topics, configs and in-sync replicas wait or fail; 3 of in-sync replicas wait"
    ]
