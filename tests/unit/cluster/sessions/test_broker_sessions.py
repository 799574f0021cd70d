"""A broker over several sessions."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.sessions.broker_sessions import BrokerSessions
from kafkalite.cluster.sessions.registration import RETRY_S
from kafkalite.coordination.errors import (
    AuthenticationError,
    BadArgumentsError,
    ConnectionLossError,
    InvalidAclError,
    NoAuthError,
    TlsError,
)
from kafkalite.coordination.znodes import CLUSTER_ID, encode_cluster_id
from kafkalite.coordination.znodes.brokers import BrokerRegistration, registration_path
from kafkalite.model import Endpoint
from tests.unit.cluster.controller.kit import Service

WAIT_MS = 3_000
REFUSALS = [AuthenticationError(), InvalidAclError("/kafka"), NoAuthError("/kafka"), TlsError()]


class Node:
    """A broker with its sessions; `log` has what they have called."""

    broker_id, cluster_id = 1, "ours"

    def __init__(self, service: Service) -> None:
        self.service = service
        self.log: list[str] = []
        self.epochs: list[int] = []
        self.refusal: Exception | None = None
        self.attempts = 0
        self.connecting = True  # False: the next session is opened by `reconnect`
        self.reconnect: Callable[[], None] = lambda: None
        self.counters: list[Outcome] = []  # outcomes of the next raises
        self.sessions = BrokerSessions(self, self._connect, service.clock, WAIT_MS)

    def _connect(self, then: Any, on_lost: Any, _on_suspended: Any, _on_resumed: Any) -> None:
        self.attempts += 1
        if not self.connecting:
            self.reconnect = lambda: self._connect(then, on_lost, _on_suspended, _on_resumed)
            self.connecting = True
        elif self.refusal is None:
            then(Outcome(self.service.embedded.connect(on_lost)))
        else:
            then(Outcome(error=self.refusal))

    def begin(self) -> None:
        self.sessions.open(Outcome.result)
        self.sessions.start()

    def registration(self) -> BrokerRegistration:
        return BrokerRegistration((Endpoint("PLAINTEXT", "own", 9092),), timestamp_ms=len(self.epochs))

    def raise_counters(self, _session: Any, then: Any) -> None:
        if self.counters:
            self.log.append("counters")
        then(self.counters.pop(0) if self.counters else Outcome())

    def joined(self, _session: Any, broker_epoch: int) -> None:
        self.log.append("joined")
        self.epochs.append(broker_epoch)

    def left(self) -> None:
        self.log.append("left")

    def refused(self, reason: str) -> None:
        self.log.append(reason)


def service_of(cluster_id: str = "ours") -> Service:
    service = Service()
    service.write(CLUSTER_ID, encode_cluster_id(cluster_id))
    return service


def test_a_broker_joins_and_joins_again_after_each_lost_session() -> None:
    service = service_of()
    node = Node(service)
    node.begin()
    assert node.log == ["joined"] and node.sessions.broker_epoch == node.epochs[0]
    for _ in range(3):
        assert node.sessions.session is not None
        service.embedded.expire(node.sessions.session.session_id)
    assert node.log == ["joined", *["left", "joined"] * 3]
    assert node.epochs == sorted(set(node.epochs)) and node.sessions.broker_epoch == node.epochs[-1]


def test_a_broker_registers_after_it_has_raised_the_counters_of_the_tree() -> None:
    """Otherwise an older tree that was restored would give its ids out again."""
    service = service_of()
    node = Node(service)
    node.counters = [Outcome(error=ConnectionLossError()), Outcome()]
    node.begin()
    assert node.log == ["counters"] and not service.exists(registration_path(1))
    service.clock.advance(1000 * RETRY_S)
    assert node.log == ["counters", "counters", "joined"]


def test_a_registered_broker_that_finds_another_broker_with_its_id_waits_until_that_one_has_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other one may have a copy of its log directory: the logs here have what was acknowledged since."""
    service = service_of()
    node, other = Node(service), Node(service)
    node.begin()
    assert node.sessions.session is not None
    other.sessions.open(Outcome.result)
    first = node.sessions.session
    node.connecting = False
    service.embedded.expire(first.session_id)
    other.sessions.start()
    assert other.log == ["joined"]
    node.reconnect()
    for _ in range(3):
        service.clock.advance(WAIT_MS)
    assert node.log == ["joined", "left"]
    assert "another broker with id 1 is alive, at PLAINTEXT://own:9092: it has registered while" in caplog.text
    assert other.sessions.session is not None
    session = other.sessions.session
    other.sessions.close()
    service.embedded.expire(session.session_id)
    assert node.log == ["joined", "left", "joined"]


def test_a_session_that_is_lost_before_the_broker_serves_is_replaced_at_its_start() -> None:
    service = service_of()
    node = Node(service)
    node.sessions.open(Outcome.result)
    assert node.sessions.session is not None
    service.embedded.expire(node.sessions.session.session_id)
    assert node.log == [] and not node.sessions.session
    node.sessions.start()
    assert node.log == ["joined"] and node.sessions.session


def test_an_empty_tree_stops_the_broker_and_nothing_is_changed() -> None:
    service = service_of()
    node = Node(service)
    node.begin()
    session = node.sessions.session
    assert session is not None
    service.delete(CLUSTER_ID)
    before = [path for path, _ in service.embedded.tree.walk() if path != registration_path(1)]
    service.embedded.expire(session.session_id)
    assert node.log[:2] == ["joined", "left"] and "has no /cluster/id" in node.log[2] and len(node.log) == 3
    assert [path for path, _ in service.embedded.tree.walk()] == before


def test_the_tree_of_another_cluster_stops_the_broker() -> None:
    node = Node(service_of("theirs"))
    node.begin()
    (reason,) = node.log
    assert "belongs to cluster theirs, this broker to ours" in reason and node.sessions.broker_epoch is None
    assert not node.service.exists(registration_path(1))


def test_invalid_contents_of_the_cluster_id_stop_the_broker() -> None:
    service = service_of()
    service.write(CLUSTER_ID, b"garbage")
    node = Node(service)
    node.begin()
    assert "not JSON" in node.log[0]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
def test_a_registered_broker_repeats_a_session_that_an_operator_may_make_possible(refusal: Exception) -> None:
    service = service_of()
    node = Node(service)
    node.begin()
    node.refusal = refusal
    assert node.sessions.session is not None
    service.embedded.expire(node.sessions.session.session_id)
    for attempts in range(2, 5):
        assert node.log == ["joined", "left"] and node.attempts == attempts
        service.clock.advance(1_000 * RETRY_S)
    node.refusal = None
    service.clock.advance(1_000 * RETRY_S)
    assert node.log == ["joined", "left", "joined"] and node.sessions.session is not None


def test_a_closing_broker_does_not_repeat_a_session() -> None:
    service = service_of()
    node = Node(service)
    node.begin()
    node.refusal = TlsError()
    assert node.sessions.session is not None
    service.embedded.expire(node.sessions.session.session_id)
    node.sessions.close()
    node.refusal, attempts = None, node.attempts
    service.clock.advance(10_000 * RETRY_S)
    assert node.attempts == attempts and node.log == ["joined", "left"]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
def test_a_refused_session_prevents_the_start_of_a_broker_that_was_never_registered(refusal: Exception) -> None:
    service = service_of()
    node = Node(service)
    node.sessions.open(Outcome.result)
    assert node.sessions.session is not None
    service.embedded.expire(node.sessions.session.session_id)
    node.refusal = refusal
    node.sessions.start()
    (reason,) = node.log
    assert f"refuses this broker: {refusal}" in reason


def test_a_service_that_refuses_a_new_session_stops_the_broker() -> None:
    service = service_of()
    node = Node(service)
    node.begin()
    node.refusal = BadArgumentsError()
    assert node.sessions.session is not None
    service.embedded.expire(node.sessions.session.session_id)
    assert node.log[:2] == ["joined", "left"] and "refuses this broker" in node.log[2]


def test_a_closing_broker_does_not_join_again() -> None:
    service = service_of()
    node = Node(service)
    node.begin()
    node.sessions.close()
    assert node.sessions.session is not None
    service.embedded.expire(node.sessions.session.session_id)
    assert node.log == ["joined"] and not service.exists(registration_path(1))
