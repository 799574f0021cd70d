"""Calls between brokers, over a network in memory."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kafkalite.cluster.peer import Peer
from kafkalite.model import Endpoint
from kafkalite.net.peer_dial import PeerDial
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.virtual_loop import pass_time, run_virtually

TIMEOUT_S = 2.0
Scenario = Callable[["Calls", MemoryNetwork, SimulatedBroker], Coroutine[Any, Any, None]]


class Calls:
    """A peer, and what its calls ended with."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.ended: list[Any] = []
        self.peer = Peer(Endpoint("PLAINTEXT", "broker", 9092), "test", PeerDial(network.dial), TIMEOUT_S)

    def call(self, request: Any = None) -> None:
        self.peer.call(request or ListGroupsRequest(), self.ended.append, self.ended.append)

    async def until(self, count: int) -> None:
        """Wait until this many calls have ended."""
        while len(self.ended) < count:
            await pass_time(0.01)


def run(directory: Path, scenario: Scenario) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with SimulatedBroker(str(directory), network) as broker:
            calls = Calls(network)
            await scenario(calls, network, broker)
            calls.peer.close()

    run_virtually(main)


def test_calls_share_one_connection_and_are_answered_in_order(tmp_path: Path) -> None:
    async def scenario(calls: Calls, network: MemoryNetwork, _broker: SimulatedBroker) -> None:
        for _ in range(3):
            calls.call()
        assert calls.ended == [], "nothing ends inside a call"
        await calls.until(3)
        assert all(isinstance(each, ListGroupsResponse) for each in calls.ended)
        calls.call()
        await calls.until(4)
        assert len(network.servers["broker", 9092].links) == 1

    run(tmp_path, scenario)


def test_without_a_broker_each_call_fails_and_the_next_one_connects_again(tmp_path: Path) -> None:
    async def scenario(calls: Calls, network: MemoryNetwork, broker: SimulatedBroker) -> None:
        broker.kill()
        calls.call()
        calls.call()
        await calls.until(2)
        assert all("cannot connect to broker:9092" in each for each in calls.ended)
        await broker.start()
        calls.call()
        await calls.until(3)
        assert isinstance(calls.ended[2], ListGroupsResponse)
        network.reset("broker", 9092)
        await pass_time(0.1)
        calls.call()
        await calls.until(4)
        assert isinstance(calls.ended[3], ListGroupsResponse)

    run(tmp_path, scenario)


def test_a_broker_that_does_not_answer_fails_the_call_at_its_deadline(tmp_path: Path) -> None:
    async def scenario(calls: Calls, network: MemoryNetwork, _broker: SimulatedBroker) -> None:
        calls.call()
        await calls.until(1)
        network.stall("broker", 9092, 60.0)
        calls.call()
        await pass_time(TIMEOUT_S - 0.1)
        assert len(calls.ended) == 1
        await calls.until(2)
        assert "did not answer" in calls.ended[1]

    run(tmp_path, scenario)


def test_a_request_that_the_broker_does_not_serve_fails(tmp_path: Path) -> None:
    async def scenario(calls: Calls, _network: MemoryNetwork, _broker: SimulatedBroker) -> None:
        calls.call()
        await calls.until(1)
        calls.call(StopReplicaRequest(controller_id=1, controller_epoch=1))
        assert len(calls.ended) == 1, "nothing ends inside a call"
        await calls.until(2)
        assert "StopReplica" in calls.ended[1]

    run(tmp_path, scenario)


def test_calls_of_a_closed_peer_end_without_a_callback(tmp_path: Path) -> None:
    async def scenario(calls: Calls, _network: MemoryNetwork, _broker: SimulatedBroker) -> None:
        calls.call()
        calls.peer.close()
        await pass_time(2 * TIMEOUT_S)
        assert calls.ended == []
        others = Calls(_network)
        others.call()
        await others.until(1)
        others.call()
        others.peer.close()
        await pass_time(2 * TIMEOUT_S)
        assert len(others.ended) == 1

    run(tmp_path, scenario)
