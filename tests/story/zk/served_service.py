"""The served tree in virtual time: its server, and sessions over its wire protocol on connections in memory."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalite_sdk.zk.membership.effects import Call, Children, Exists, Get

from kafkalite.clock import Outcome
from kafkalite.coordination.served.server import TreeServer
from kafkalite.coordination.transactions import JournaledTree
from kafkalite.coordination.tree import NO_SESSION, Create, Delete, Operation, Set, WatchEvent
from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession, connect_zookeeper
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.virtual_clock import SeededRandom
from tests.kit.virtual_time import LoopTime
from tests.story.controller.schedule import Job, Schedule

HOST, PORT = "coordination", 2181


class LoopSchedule(Schedule):
    """The schedule of a loop of virtual time."""

    def __init__(self, chance: random.Random) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(chance)

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return round(self._loop.time() * 1000)

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        """The loop has the time."""

    def at(self, at_ms: int, job: Job) -> None:
        self._loop.call_at(max(at_ms, self.now_ms) / 1000, job)


class ServedService:
    """The interface of `service.Service`, over a `TreeServer`."""

    def __init__(self, chance: random.Random, timeout_ms: int) -> None:
        self.schedule = LoopSchedule(chance)
        self.timeout_ms = timeout_ms
        self.clock = LoopTime()
        self.journaled = JournaledTree(self.clock)
        self.tree = self.journaled.tree
        self.random = SeededRandom(chance.randrange(1 << 30))
        self.server = TreeServer(self.journaled, self.clock, self.random)
        self.network = MemoryNetwork(random.Random(chance.random()), delay_s=(0.0001, 0.01))
        self.network.listen(self.server.accept, HOST, PORT)
        self.changed: Callable[[int, tuple[Operation, ...]], object] = lambda session, operations: None
        self.session = self.tree.open_session()
        self.opened = 0
        self.failures: list[AssertionError] = []
        self.loses_response: Callable[[], bool] = lambda: False  # connections break at any time instead
        self._multi, self._close_session = self.tree.multi, self.tree.close_session
        self.tree.multi = self._observed_multi  # type: ignore[method-assign]
        self.tree.close_session = self._observed_close  # type: ignore[method-assign]

    def open(self, client: Any) -> "ServedClientSession":
        """Begin a session."""
        self.opened += 1
        return ServedClientSession(self, client, f"client{self.opened}")

    def change(self, *operations: Operation) -> bool:
        """A change of the administrator; False = it was rejected."""
        outcomes: list[Outcome] = []
        self.journaled.change(operations, self.session, list, outcomes.append)
        [outcome] = outcomes
        return outcome.error is None

    def expire(self, session: int) -> None:
        """End a session."""
        if session in self.server.sessions:
            self.server.expire(self.server.sessions[session])

    def _observed_multi(self, operations: Any, session: int, *arguments: Any) -> list[Any]:
        for operation in operations:
            node = self.tree.find(operation.path) if isinstance(operation, Delete) else None
            strange = node is not None and node.owner not in (NO_SESSION, session) and session != self.session
            if strange and session in self.tree.sessions:
                self.failures.append(AssertionError(f"{operation.path} belongs to another session"))
        results = self._multi(operations, session, *arguments)
        self._check(session, tuple(operations))
        return list(results)

    def _observed_close(self, session: int, *arguments: Any) -> None:
        paths = sorted(self.tree.sessions.get(session, ()))
        self._close_session(session, *arguments)
        self._check(session, tuple(map(Delete, paths)))

    def _check(self, session: int, operations: tuple[Operation, ...]) -> None:
        """Check the invariants; the server would log an exception and go on."""
        try:
            self.changed(session, operations)
        except AssertionError as error:
            self.failures.append(error)


class ServedClientSession:
    """The interface of `service.ClientSession`, over a `ZooKeeperSession`."""

    def __init__(self, service: ServedService, client: Any, host: str) -> None:
        self.service = service
        self.client = client
        self.over = False
        self.disconnected_at = 0
        self._host = host
        self._wire: ZooKeeperSession = connect_zookeeper(
            f"{HOST}:{PORT}",
            service.timeout_ms,
            self._established,
            dial=partial(service.network.dial, origin=host),
            clock=service.clock,
            random=service.random,
            on_lost=self._lost,
            on_suspended=self._suspended,
            on_resumed=lambda: self.over or client.resumed(),
        )

    @property
    def session_id(self) -> int:
        return self._wire.session_id

    @property
    def connected(self) -> bool:
        return not self._wire.suspended and not self._wire.lost

    def call(self, call: Call, then: Callable[[Outcome], None], fire: Callable[[], None]) -> None:
        wire = self._wire

        def fired(event: WatchEvent) -> None:
            fire()

        if isinstance(call, Get | Exists | Children):
            read: Any = {Get: wire.get, Exists: wire.exists, Children: wire.children}[type(call)]
            read(call.path, then, fired if call.watch else None)
        elif isinstance(call, Create):
            wire.create(call.path, call.data, then, ephemeral=call.ephemeral)
        elif isinstance(call, Delete):
            wire.delete(call.path, then, call.version)
        elif isinstance(call, Set):
            wire.set(call.path, call.data, then, call.version)
        else:
            wire.multi(call, then)

    def disconnect(self) -> None:
        """Connections break, or bytes are no longer delivered; new connections wait."""
        network = self.service.network
        if self.service.schedule.chance.random() < 0.7:
            for link in network._links(frozenset((self._host, HOST))):
                link.reset()
        network.disconnect(self._host, HOST)

    def reconnect(self) -> None:
        self.service.network.reconnect(self._host, HOST)

    def expire(self) -> None:
        self.service.expire(self.session_id)

    def kill(self) -> None:
        self.over = True
        self._wire.stop()

    def end(self) -> None:
        self.over = True
        self._wire.close(lambda outcome: None)

    def _established(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._lost()
        elif self.over:
            self._wire.close(lambda outcome: None)
        else:
            self.client.established()

    def _suspended(self) -> None:
        self.disconnected_at = self.service.schedule.now_ms
        if not self.over:
            self.client.suspended()

    def _lost(self) -> None:
        if not self.over:
            self.over = True
            self.client.lost()
