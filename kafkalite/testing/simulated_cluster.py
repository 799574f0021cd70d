"""Several whole brokers of one cluster in virtual time, and their coordination service.

    network = MemoryNetwork(random.Random(7))
    async with SimulatedCluster(directory, network, 3, seed=7) as cluster:
        ...                                     # clients with `network.dial` and "broker1:9092"
        cluster.kill(2)
        cluster.expire(2)                       # its session ends at once, instead of after the session timeout
        await cluster.start(2)

The service is one tree in memory with sessions. The session of a killed broker ends after the session timeout.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafkalite.clock import Outcome
from kafkalite.config.keys import SettingValue
from kafkalite.coordination.backend import Then
from kafkalite.coordination.embedded import EmbeddedCoordination, EmbeddedSession
from kafkalite.coordination.errors import SessionExpiredError
from kafkalite.coordination.tree import ANY_VERSION, Operation, Watcher
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_broker import LoopTimers, SimulatedBroker

PORT = 9092
SESSION_MS = 2_000
DELAY_S = 0.001
PASSWORD = bytes(16)
STEP_S = 1e-7  # between messages of one session: the loop does not keep the order of timers with equal times


class SimulatedSession:
    """A session of one process with the service. Requests and responses take `DELAY_S`, in order.

    Attributes:
        alive: False = the process has ended, or is cut off: nothing arrives any more, in either direction.
    """

    def __init__(self, session: EmbeddedSession, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._loop = loop
        self._arrives_at = 0.0
        self.alive = True

    @property
    def session_id(self) -> int:
        """The owner of the ephemeral nodes."""
        return self._session.session_id

    @property
    def key(self) -> tuple[int, bytes]:
        """The id and the password of the session."""
        return self.session_id, PASSWORD

    def continued(self) -> "SimulatedSession":
        """The same session, of another process."""
        return SimulatedSession(self._session, self._loop)

    @property
    def lost(self) -> bool:
        """Whether the session is over."""
        return self._session.lost

    @property
    def suspended(self) -> bool:
        """False: a simulated session ends, but is not suspended."""
        return False

    def get(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(data, Stat) of a node."""
        self._call(lambda done: self._session.get(path, done, self._watch(watch)), then)

    def exists(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """Stat of a node, or None."""
        self._call(lambda done: self._session.exists(path, done, self._watch(watch)), then)

    def children(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        """(names of the children in order, Stat) of a node."""
        self._call(lambda done: self._session.children(path, done, self._watch(watch)), then)

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool = False, sequence: bool = False) -> None:
        """Create a node; `CreatedNode`."""
        self._call(lambda done: self._session.create(path, data, done, ephemeral=ephemeral, sequence=sequence), then)

    def set(self, path: str, data: bytes, then: Then, version: int = ANY_VERSION) -> None:
        """Replace a node's data if it has this version; the new Stat."""
        self._call(lambda done: self._session.set(path, data, done, version), then)

    def delete(self, path: str, then: Then, version: int = ANY_VERSION) -> None:
        """Remove a node if it has this version; None."""
        self._call(lambda done: self._session.delete(path, done, version), then)

    def multi(self, operations: Sequence[Operation], then: Then) -> None:
        """Execute all operations or none; a list with `CreatedNode`, Stat or None for each."""
        self._call(lambda done: self._session.multi(operations, done), then)

    def close(self, then: Then) -> None:
        """End the session; None."""
        self._call(self._session.close, then)

    def later(self, callback: Callable[..., object], *args: object) -> None:
        """Call back in the process of the session, after the delay."""
        self._arrives_at = max(self._arrives_at + STEP_S, self._loop.time() + DELAY_S)
        self._loop.call_at(self._arrives_at, self._arrive, callback, args)

    def _arrive(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        if self.alive:
            callback(*args)

    def _call(self, call: Callable[[Then], object], then: Then) -> None:
        self.later(call, lambda outcome: self.later(then, outcome))

    def _watch(self, watch: Watcher | None) -> Watcher | None:
        return None if watch is None else DelayedWatch(self, watch)


class DelayedWatch:
    """A watch whose event arrives after the delay. Equal ones count once."""

    def __init__(self, session: SimulatedSession, watch: Watcher) -> None:
        self._session = session
        self._watch = watch

    def __call__(self, event: Any) -> None:
        self._session.later(self._watch, event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DelayedWatch) and (self._session, self._watch) == (other._session, other._watch)

    def __hash__(self) -> int:
        return hash((id(self._session), self._watch))


class SimulatedCluster:
    """Brokers 1 to `count`, an async context manager.

    Arguments:
        directory: of the log directories.
        network: where the brokers listen, as `broker1` and so on.
        count: number of brokers.
        seed: of their random numbers.
        settings: configs of all brokers, under Kafka's names.

    Attributes:
        service: the tree.
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
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._clock = LoopTimers(loop, self._raised)
        self.service = EmbeddedCoordination(self._clock)
        self._sessions: dict[int, list[SimulatedSession]] = {}
        self._killed: dict[int, SimulatedSession] = {}  # by session id
        own = {"zookeeper.connect": "zookeeper:2181", "zookeeper.session.timeout.ms": SESSION_MS, **(settings or {})}
        self.brokers = {
            broker_id: SimulatedBroker(
                os.path.join(directory, str(broker_id)),
                network,
                seed=seed * 1_000 + broker_id,
                settings={**own, "broker.id": broker_id},
                host=f"broker{broker_id}",
                port=PORT,
                cluster=self.connector(broker_id),
            )
            for broker_id in range(1, count + 1)
        }

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            await broker.stop()
        self._clock.close()

    async def start(self, broker_id: int) -> None:
        """Start a broker that was killed, and wait until it is registered."""
        await self.brokers[broker_id].start()

    def kill(self, broker_id: int) -> None:
        """End the process of a broker. Its session ends after the session timeout."""
        self.brokers[broker_id].kill()
        self._cut_off(broker_id)

    def cut_power(self, broker_id: int) -> int:
        """As `kill`, and lose at random what was not flushed; returns the number of lost changes and names."""
        lost = self.brokers[broker_id].cut_power()
        self._cut_off(broker_id)
        return lost

    def _cut_off(self, broker_id: int) -> None:
        sessions, self._sessions[broker_id] = self._sessions.get(broker_id, []), []
        for session in sessions:
            session.alive = False
            self._killed[session.session_id] = session
            self._loop.call_later(SESSION_MS / 1000, self._end, session)

    def expire(self, broker_id: int) -> None:
        """End the session of a live broker; it is notified."""
        for session in self._sessions.get(broker_id, []):
            self._end(session)

    def _end(self, session: SimulatedSession) -> None:
        if not session.lost:
            self.service.expire(session.session_id)

    def connector(self, broker_id: int) -> Callable[..., object]:
        """Opens the sessions of a broker with the service: `Ports.cluster`."""

        def connect(
            _servers: str,
            _timeout_ms: int,
            then: Then,
            *,
            on_lost: Callable[[], object],
            key: tuple[int, bytes] | None = None,
            **_: object,
        ) -> None:
            session: SimulatedSession
            if key is not None:
                self._continue(key[0], then)
                return

            def lost() -> None:
                session.later(on_lost)

            session = SimulatedSession(self.service.connect(lost), self._loop)
            self._sessions.setdefault(broker_id, []).append(session)
            session.later(then, Outcome(session))

        return connect

    def _continue(self, session_id: int, then: Then) -> None:
        """Continue the session of a killed process; one that is over, also of the same process, has expired."""
        earlier = self._killed.get(session_id)
        if earlier is None or earlier.lost:
            self._loop.call_later(DELAY_S, then, Outcome(error=SessionExpiredError()))
        else:
            session = earlier.continued()
            session.later(then, Outcome(session))

    def _raised(self, callback: object, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"exception in {callback!r}", "exception": error})
