"""A tree in memory with several sessions whose transactions may lose their responses; a machine that notes events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from kafkalite.clock import Outcome
from kafkalite.cluster.controller.election import Term
from kafkalite.cluster.peer import Answer, Fail
from kafkalite.coordination import znodes
from kafkalite.coordination.bulk_reads import ensure_nodes
from kafkalite.coordination.embedded import EmbeddedCoordination, EmbeddedSession
from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.coordination.tree import Operation, Watcher
from kafkalite.coordination.znodes import brokers
from kafkalite.model import Endpoint
from kafkalite.state.controller.controller import ControllerCounts
from kafkalite.state.controller.effects import Effect
from kafkalite.state.controller.events import Event
from kafkalite.state.controller.values import Broker, ControllerSettings
from kafkalite.testing.virtual_clock import VirtualClock

TOPIC_ID = bytes(range(16))
Then = Callable[[Outcome], object]


class ShakySession:
    """A session whose transactions can lose their responses, before or after they are executed.

    Attributes:
        lose: how many of the next transactions lose their response.
        executed: whether those are executed.
        sent: all transactions.
        held: the reads of these paths that wait for `release`; None = reads are not held.
    """

    def __init__(self, session: EmbeddedSession) -> None:
        self._session = session
        self.lose = 0
        self.executed = True
        self.sent: list[Sequence[Operation]] = []
        self.held: dict[str, Callable[[], object]] | None = None

    def children(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        if self.held is None:
            self._session.children(path, then, watch)
        else:
            self.held[path] = lambda: self._session.children(path, then, watch)

    def release(self) -> None:
        """Execute the reads that are held, and hold those that follow."""
        assert self.held is not None
        held, self.held = self.held, {}
        for read in held.values():
            read()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def multi(self, operations: Sequence[Operation], then: Then) -> None:
        self.sent.append(operations)
        if not self.lose:
            self._session.multi(operations, then)
            return
        self.lose -= 1
        if self.executed:
            self._session.multi(operations, lambda _outcome: None)
        then(Outcome(error=ConnectionLossError()))


class Service:
    """A tree with the nodes that always exist, and its sessions."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.embedded = EmbeddedCoordination(self.clock)
        self.admin = self.connect()
        self.do(lambda then: ensure_nodes(self.admin, (*znodes.PERSISTENT, "/admin"), then))

    def connect(self) -> Any:
        return ShakySession(self.embedded.connect())

    def expire(self, session: Any) -> None:
        self.embedded.expire(session.session_id)

    def do(self, call: Callable[[Then], object]) -> Any:
        """The result of a call."""
        outcomes: list[Outcome] = []
        call(outcomes.append)
        return outcomes[0].result()

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a node."""
        if self.do(lambda then: self.admin.exists(path, then)) is None:
            self.do(lambda then: ensure_nodes(self.admin, znodes.parents(path), then))
            self.do(lambda then: self.admin.create(path, data, then))
        else:
            self.do(lambda then: self.admin.set(path, data, then))

    def data(self, path: str) -> bytes:
        found: bytes = self.do(lambda then: self.admin.get(path, then))[0]
        return found

    def exists(self, path: str) -> bool:
        return self.do(lambda then: self.admin.exists(path, then)) is not None

    def delete(self, path: str) -> None:
        self.do(lambda then: self.admin.delete(path, then))

    def topic(self, name: str, partitions: int = 1) -> None:
        """A topic as a broker writes it, without states."""
        node = znodes.TopicNode(TOPIC_ID, dict.fromkeys(range(partitions), (1,)))
        self.write(znodes.topic_path(name), znodes.encode_topic(node))

    def register(self, broker_id: int) -> None:
        """A registration; its session is the administrator's."""
        endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092)
        self.write(
            brokers.registration_path(broker_id),
            brokers.encode_registration(brokers.BrokerRegistration((endpoint,), timestamp_ms=1)),
        )


class NotingMachine:
    """A machine that notes its events, and returns the effects that a test has scripted for a type of event."""

    unclean_elections = 0

    def counts(self) -> ControllerCounts:
        return ControllerCounts(0, 0, 0)

    def __init__(self, settings: ControllerSettings, script: dict[type, Callable[[Any], Iterable[Effect]]]) -> None:
        self.settings = settings
        self.events: list[Event] = []
        self._script = script

    def steps(self, event: Event, now_ms: int) -> Generator[None, None, Iterable[Effect]]:
        self.events.append(event)
        yield
        scripted = self._script.get(type(event))
        return () if scripted is None else scripted(event)

    def of(self, kind: type) -> list[Any]:
        """The events of a type."""
        return [event for event in self.events if isinstance(event, kind)]


class NotingPeer:
    """A broker whose responses the test gives."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.calls: deque[tuple[Any, Answer, Fail]] = deque()
        self.closed = False

    def call(self, request: Any, answer: Answer, fail: Fail) -> None:
        self.calls.append((request, answer, fail))

    def close(self) -> None:
        self.closed = True


class NotingHost:
    """A broker as the runtime sees it."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.peers: list[NotingPeer] = []

    def controller_settings(self, term: Term) -> ControllerSettings:
        return ControllerSettings(self.broker_id, term.epoch)

    def allows_unclean_elections(self, configs: Mapping[str, str]) -> bool:
        return configs.get("unclean.leader.election.enable") == "true"

    def min_insync_replicas(self, configs: Mapping[str, str]) -> int | None:
        return int(configs["min.insync.replicas"]) if "min.insync.replicas" in configs else None

    @property
    def min_insync_replicas_default(self) -> int:
        return 1

    def new_topic_id(self) -> bytes:
        return TOPIC_ID

    def peer(self, broker: Broker) -> NotingPeer:
        self.peers.append(NotingPeer(broker))
        return self.peers[-1]

    def endpoint_of(self, broker: Broker) -> Endpoint | None:
        return broker.endpoints[0]
