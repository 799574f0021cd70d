"""Reads of topics from the tree: they wait for the coordination service, and name nodes that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.clock import Outcome, Then
from kafkalite.cluster.sessions.current_session import CurrentSession
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError, NoAuthError, NoNodeError
from kafkalite.coordination.tree import Watcher
from kafkalite.server.configs import topic_reader
from kafkalite.server.configs.topic_reader import INVALID_RETRY_S, RETRY_S, TopicReader
from tests.unit.cluster.controller.kit import Service

ORDERS = znodes.topic_path("orders")
CONFIGS = znodes.topic_config_path("orders")


class FailingSession(CurrentSession):
    """A session whose next reads fail with `errors`."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.errors: list[CoordinationError] = []

    def get(self, path: str, then: Then, watch: Watcher | None = None) -> None:
        if self.errors:
            then(Outcome(error=self.errors.pop(0)))
        else:
            super().get(path, then, watch)


class Rig:
    """A reader, and what it has found."""

    def __init__(self) -> None:
        self.service = Service()
        self.session = FailingSession(self.service.connect())
        self.reader = TopicReader(self.session, self.service.clock)
        self.found: list[Any] = []

    def count(self) -> None:
        self.reader.count_partitions("orders", self.found.append)

    def pass_s(self, seconds: float) -> None:
        self.service.clock.advance(round(seconds * 1000))


def test_partitions_are_counted() -> None:
    rig = Rig()
    rig.count()
    rig.service.topic("orders", 3)
    rig.count()
    assert rig.found == [0, 3]


def test_read_that_raises_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reader, "READS_MAX", 1)
    rig = Rig()
    for name in ("a", "b", "c"):
        rig.service.topic(name, 1)
    get = rig.session.get

    def raising(path: str, then: Then, watch: Watcher | None = None) -> None:
        if path == znodes.topic_config_path("b"):
            raise ZeroDivisionError
        get(path, then, watch)

    monkeypatch.setattr(rig.session, "get", raising)
    with pytest.raises(ZeroDivisionError):
        rig.reader.read(["a", "b", "c"], rig.found.append)
    assert [{name: configs is None for name, configs in found.items()} for found in rig.found] == [
        {"a": False, "b": True, "c": False}
    ]


def test_reads_are_repeated_while_the_service_is_out_of_reach() -> None:
    rig = Rig()
    rig.service.topic("orders", 3)
    rig.session.errors = [ConnectionLossError(), ConnectionLossError()]
    rig.count()
    rig.pass_s(RETRY_S)
    assert rig.found == []
    rig.pass_s(RETRY_S)
    assert rig.found == [3]


def test_a_read_without_a_session_continues_in_the_next_one() -> None:
    rig = Rig()
    rig.service.topic("orders", 3)
    rig.session.session = None
    rig.count()
    rig.session.session = rig.service.connect()
    rig.pass_s(RETRY_S)
    assert rig.found == [3]


def test_an_invalid_node_is_named_and_counted_when_it_is_repaired(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.service.topic("orders", 3)
    valid = rig.service.data(ORDERS)
    rig.service.write(ORDERS, b"[]")
    rig.count()
    assert rig.found == [] and f"cannot be counted, next attempt in 10 s: {ORDERS}" in caplog.text
    rig.service.write(ORDERS, valid)
    rig.pass_s(INVALID_RETRY_S)
    assert rig.found == [3]


@pytest.mark.parametrize("error", [NoAuthError(CONFIGS), None], ids=["not readable", "not valid"])
def test_configs_that_cannot_be_read_are_named_and_not_taken_for_none(
    error: CoordinationError | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker must host it all the same, and apply what comes after it."""
    rig = Rig()
    rig.service.write(CONFIGS, b"garbage")
    rig.session.errors = [] if error is None else [error]
    rig.reader.read(["orders", "other"], rig.found.append)
    assert rig.found == [{"orders": None, "other": {}}]
    assert f"{CONFIGS}: the configs cannot be read" in caplog.text


def test_configs_of_many_topics_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reader, "READS_MAX", 7)
    rig = Rig()
    waiting: list[tuple[str, Then]] = []
    monkeypatch.setattr(rig.session, "get", lambda path, then, watch=None: waiting.append((path, then)))
    topics = [f"topic-{number:03}" for number in range(100)]
    rig.reader.read(topics, rig.found.append)
    most = 0
    while waiting:
        most = max(most, len(waiting))
        _, then = waiting.pop(0)
        then(Outcome(error=NoNodeError()))
    assert most == 7 and rig.found == [{topic: {} for topic in topics}]
