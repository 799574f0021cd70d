"""Several whole brokers of one cluster in virtual time, and a server of ZooKeeper's protocol in the same network.

    network = MemoryNetwork(random.Random(7))
    async with SimulatedCluster(directory, network, 3, seed=7) as cluster:
        ...                                     # clients with `network.dial` and `cluster.bootstrap_servers`
        cluster.kill(2)
        cluster.expire(2)                       # its session ends at once, instead of after the session timeout
        await cluster.start(2)
        network.disconnect("broker1", "zookeeper")

The brokers have the sessions of production. The server does not fail, connections to it do.
"""

import asyncio
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from kafkalite.config.keys import SettingValue
from kafkalite.testing.fake_zookeeper import FakeZooKeeper
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import LoopTimers, SimulatedBroker
from kafkalite.testing.virtual_loop import pass_time

PORT = 9092
ZOOKEEPER, ZOOKEEPER_PORT = "zookeeper", 2181
SESSION_MS = 2_000
MEMBER_SETTINGS: Mapping[str, SettingValue] = {
    "zookeeper.connect": f"{ZOOKEEPER}:{ZOOKEEPER_PORT}",
    "zookeeper.session.timeout.ms": SESSION_MS,
}


def host_of(broker_id: int) -> str:
    """Return the host of a broker in the network."""
    return f"broker{broker_id}"


def directories_of(data: str, count: int) -> dict[str, SettingValue]:
    """The configs of a broker with so many log directories; none for one, which is its data directory."""
    return {} if count == 1 else {"log.dirs": ",".join(os.path.join(data, f"d{number}") for number in range(count))}


class SimulatedCluster:
    """Brokers 1 to `count`, an async context manager that begins when they all know each other.

    Arguments:
        directory: of the log directories.
        network: where the brokers listen, as `broker1` and so on, and the server as `zookeeper`.
        count: number of brokers.
        seed: of their random numbers.
        settings: configs of all brokers, under Kafka's names.
        log_dirs: number of log directories of each broker, `d0` and so on in its data directory.

    Attributes:
        zookeeper: the server, with the tree and the sessions.
        brokers: by id.
    """

    def __init__(
        self,
        directory: str,
        network: MemoryNetwork,
        count: int,
        *,
        seed: int = 0,
        settings: Mapping[str, SettingValue] | None = None,
        log_dirs: int = 1,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = LoopTimers(self._loop, self._raised)
        self.zookeeper = FakeZooKeeper(self._clock)
        self._listening = network.listen(self.zookeeper.accept, ZOOKEEPER, ZOOKEEPER_PORT)
        self.brokers = {
            broker_id: SimulatedBroker(
                os.path.join(directory, str(broker_id)),
                network,
                seed=seed * 1_000 + broker_id,
                settings={
                    **MEMBER_SETTINGS,
                    **(settings or {}),
                    **directories_of(os.path.join(directory, str(broker_id)), log_dirs),
                    "broker.id": broker_id,
                },
                host=host_of(broker_id),
                port=PORT,
            )
            for broker_id in range(1, count + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.address for broker in self.brokers.values())

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.start()
        while any(broker.running.image.brokers.ids != self.brokers.keys() for broker in self.brokers.values()):
            await pass_time(0.01)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            await broker.stop()
        self._listening.close()
        self._clock.close()

    async def start(self, broker_id: int) -> None:
        """Start a broker that was killed, and wait until it is registered."""
        await self.brokers[broker_id].start()

    def kill(self, broker_id: int) -> None:
        """End the process of a broker. Its session ends after the session timeout."""
        self.brokers[broker_id].kill()

    def cut_power(self, broker_id: int) -> int:
        """Kill the broker, and lose at random what was not flushed; returns the number of lost changes and names."""
        return self.brokers[broker_id].cut_power()

    def expire(self, broker_id: int) -> None:
        """End the sessions of a broker that is connected to the server; it is notified."""
        for session in list(self.zookeeper.sessions.values()):
            connection = session.connection
            if connection is not None and connection.transport.get_extra_info("peername")[0] == host_of(broker_id):
                self.zookeeper.expire(session.session_id)

    def _raised(self, callback: object, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"exception in {callback!r}", "exception": error})
