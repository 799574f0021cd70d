"""Calls to the other brokers, over a network in memory."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kafkalite.cluster.broker_peers import OPEN_MAX, BrokerPeers, CallResult
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import Endpoint
from kafkalite.net.peer_dial import PeerDial
from kafkalite.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import SimulatedBroker
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.virtual_time import LoopTime

BROKER = 7
LIMIT_S = 2.0
ADDRESS = "broker", 9092
UNAVAILABLE = CallResult(None, Error.COORDINATOR_NOT_AVAILABLE)
TIMED_OUT = CallResult(None, Error.REQUEST_TIMED_OUT)
Scenario = Callable[["Calls", SimulatedBroker], Coroutine[Any, Any, None]]


class Calls:
    """The peers of a broker, and what its calls ended with."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.results: list[CallResult] = []
        self.endpoints = {BROKER: Endpoint("PLAINTEXT", *ADDRESS)}
        limit_ms = round(LIMIT_S * 1000)
        self.peers = BrokerPeers(
            lambda: self.endpoints, "1", PeerDial(network.dial), LoopTime(network.loop), lambda: limit_ms
        )

    def call(self, broker_id: int = BROKER) -> None:
        before = len(self.results)
        self.peers.call(broker_id, ListGroupsRequest(), self.results.append)
        assert len(self.results) == before, "nothing ends inside a call"

    async def ended(self, count: int) -> list[CallResult]:
        while len(self.results) < count:
            await pass_time(0.01)
        return self.results

    def connections(self) -> int:
        return len(self.network.servers[ADDRESS].links)


def run(directory: Path, scenario: Scenario) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with SimulatedBroker(str(directory), network) as broker:
            calls = Calls(network)
            await scenario(calls, broker)
            calls.peers.close()

    run_virtually(main)


def test_calls_of_a_broker_share_a_connection(tmp_path: Path) -> None:
    async def scenario(calls: Calls, _broker: SimulatedBroker) -> None:
        calls.call()
        calls.call()
        assert all(isinstance(each.response, ListGroupsResponse) for each in await calls.ended(2))
        calls.call()
        await calls.ended(3)
        assert calls.connections() == 1 and {each.error for each in calls.results} == {0}

    run(tmp_path, scenario)


def test_brokers_that_are_not_alive_or_refuse_connections_are_not_available(tmp_path: Path) -> None:
    async def scenario(calls: Calls, broker: SimulatedBroker) -> None:
        calls.call(8)
        assert await calls.ended(1) == [UNAVAILABLE]
        broker.kill()
        calls.call()
        assert await calls.ended(2) == [UNAVAILABLE] * 2
        await broker.start()
        calls.call()
        assert (await calls.ended(3))[2].error == 0

    run(tmp_path, scenario)


def test_a_call_ends_at_its_limit_and_later_ones_use_another_connection(tmp_path: Path) -> None:
    async def scenario(calls: Calls, _broker: SimulatedBroker) -> None:
        calls.call()
        await calls.ended(1)
        begin = calls.network.loop.time()
        calls.network.stall(*ADDRESS, LIMIT_S + 1)
        calls.call()
        await pass_time(LIMIT_S - 0.5)
        calls.call()  # on the stalled connection, which continues within its limit
        assert (await calls.ended(2))[1] == TIMED_OUT
        assert LIMIT_S <= calls.network.loop.time() - begin < LIMIT_S + 0.1
        assert (await calls.ended(3))[2].error == 0
        calls.call()
        assert (await calls.ended(4))[3].error == 0
        assert calls.connections() == 2
        await pass_time(LIMIT_S)
        assert calls.connections() == 1

    run(tmp_path, scenario)


def test_a_broker_with_another_address_gets_another_connection(tmp_path: Path) -> None:
    async def scenario(calls: Calls, _broker: SimulatedBroker) -> None:
        calls.call()
        await calls.ended(1)
        calls.network.stall(*ADDRESS, 60.0)
        calls.call()
        calls.endpoints = {BROKER: Endpoint("PLAINTEXT", "elsewhere", 9092)}
        calls.call()
        assert (await calls.ended(3))[1:] == [UNAVAILABLE] * 2
        await pass_time(0.1)
        assert calls.connections() == 0
        calls.endpoints = {}
        calls.call()
        assert (await calls.ended(4))[3] == UNAVAILABLE

    run(tmp_path, scenario)


def test_call_ends_when_its_broker_is_not_alive_any_more(tmp_path: Path) -> None:
    """No other call has to follow: a broker has one AlterPartition request in flight."""

    async def scenario(calls: Calls, _broker: SimulatedBroker) -> None:
        calls.call()
        await calls.ended(1)
        begin = calls.network.loop.time()
        calls.network.stall(*ADDRESS, 60.0)
        calls.call()
        calls.peers.brokers_changed()
        await pass_time(0.1)
        assert len(calls.results) == 1, "it is alive"
        calls.endpoints = {}
        calls.peers.brokers_changed()
        assert (await calls.ended(2))[1] == UNAVAILABLE
        assert calls.network.loop.time() - begin < LIMIT_S

    run(tmp_path, scenario)


def test_disconnect_ends_the_calls_of_one_broker(tmp_path: Path) -> None:
    """Without a packet of the other side, as behind a half open connection."""

    async def scenario(calls: Calls, _broker: SimulatedBroker) -> None:
        calls.call()
        await calls.ended(1)
        calls.network.stall(*ADDRESS, 60.0)
        calls.call()
        calls.peers.disconnect(BROKER + 1)
        await pass_time(0.1)
        assert len(calls.results) == 1
        calls.peers.disconnect(BROKER)
        assert (await calls.ended(2))[1] == UNAVAILABLE

    run(tmp_path, scenario)


def test_open_calls_are_bounded(tmp_path: Path) -> None:
    async def scenario(calls: Calls, _broker: SimulatedBroker) -> None:
        calls.network.stall(*ADDRESS, 60.0)
        for _ in range(OPEN_MAX + 2):
            calls.call()
        too_many = CallResult(None, Error.THROTTLING_QUOTA_EXCEEDED)
        assert await calls.ended(2) == [too_many] * 2
        assert (await calls.ended(OPEN_MAX + 2))[2:] == [TIMED_OUT] * OPEN_MAX
        calls.call()
        await pass_time(0.1)
        assert len(calls.results) == OPEN_MAX + 2

    run(tmp_path, scenario)


def test_open_and_later_calls_end_with_the_peers(tmp_path: Path) -> None:
    async def scenario(calls: Calls, _broker: SimulatedBroker) -> None:
        calls.network.stall(*ADDRESS, 60.0)
        calls.call()
        await pass_time(LIMIT_S + 0.1)
        calls.call()
        calls.peers.close()
        assert calls.results == [TIMED_OUT, UNAVAILABLE]
        calls.call()
        assert await calls.ended(3) == [TIMED_OUT, UNAVAILABLE, UNAVAILABLE]
        await pass_time(61.0)
        assert calls.connections() == 0

    run(tmp_path, scenario)
