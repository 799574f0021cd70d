"""A session, a fake server and a proxy between them, in virtual time."""

import functools
import random
from collections.abc import Callable, Coroutine
from typing import Any

from kafkalite.clock import Outcome
from kafkalite.coordination.tree import WatchEvent
from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession, connect_zookeeper
from kafkalite.testing.fake_zookeeper import FakeZooKeeper
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.virtual_clock import SeededRandom
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.virtual_time import LoopTime
from tests.kit.zookeeper_proxy import ZooKeeperProxy

HOST, PORT = "zk", 2181
SERVER = ("behind", 2182)
TIMEOUT_MS = 6000


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in virtual time."""

    @functools.wraps(test)
    def run(*instance: Any, **arguments: Any) -> None:
        run_virtually(lambda: test(*instance, **arguments))

    return run


class Rig:
    """Everything of a test, and the log of what the session reports, in order."""

    def __init__(self, seed: int = 0, fragment_bytes: int = 0) -> None:
        self.clock = LoopTime()
        self.network = MemoryNetwork(random.Random(seed), fragment_bytes=fragment_bytes)
        self.random = SeededRandom(seed)
        self.server = FakeZooKeeper(self.clock)
        self.network.listen(self.server.accept, *SERVER)
        self.proxy = ZooKeeperProxy(self.network.dial, *SERVER)
        self.network.listen(self.proxy.accept, HOST, PORT)
        self.log: list[Any] = []

    def connect(self, servers: str = f"{HOST}:{PORT}", **named: Any) -> ZooKeeperSession:
        return connect_zookeeper(
            servers, named.pop("timeout_ms", TIMEOUT_MS), self.note("connected"),
            dial=named.pop("dial", self.network.dial), clock=self.clock, random=self.random,
            on_lost=lambda: self.log.append("lost"), on_suspended=lambda: self.log.append("suspended"),
            on_resumed=lambda: self.log.append("resumed"), **named,
        )  # fmt: skip

    async def connected(self, servers: str = f"{HOST}:{PORT}", **named: Any) -> ZooKeeperSession:
        session = self.connect(servers, **named)
        await pass_time(0.1)
        assert self.take() == [("connected", "session")]
        return session

    def note(self, name: str) -> Callable[[Outcome], None]:
        """A `then` that logs (name, value or type of the error)."""

        def then(outcome: Outcome) -> None:
            value = "session" if isinstance(outcome.value, ZooKeeperSession) else outcome.value
            self.log.append((name, type(outcome.error) if outcome.error else value))

        return then

    def watch(self, event: WatchEvent) -> None:
        self.log.append((event.kind, event.path))

    async def events_within(self, seconds: float) -> list[Any]:
        """The log of the next seconds."""
        await pass_time(seconds)
        return self.take()

    def sent(self, record: type[Any]) -> list[Any]:
        """The requests of one type that the server has received."""
        return [each for each in self.server.requests if isinstance(each, record)]

    def take(self) -> list[Any]:
        """The log since the last call."""
        log, self.log = self.log, []
        return log
