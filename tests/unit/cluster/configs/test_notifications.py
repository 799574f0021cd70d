"""The notifications of changed configs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.configs.expiring_nodes import EXPIRATION_MS
from kafkalite.cluster.configs.notifications import RELOAD_S, ConfigWatcher
from kafkalite.cluster.configs.writes import ConfigNode, broker_node, topic_node
from kafkalite.cluster.topics.node_writes import TopicWriter
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError, NoAuthError
from kafkalite.testing.virtual_clock import VirtualClock
from tests.unit.cluster.controller.kit import Service


class SkewedClock:
    """A clock whose wall time is ahead of another one's."""

    def __init__(self, clock: VirtualClock, ahead_ms: int) -> None:
        self._clock, self._ahead_ms = clock, ahead_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self._ahead_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


class Rig:
    """A watcher that notes what has changed, and a broker that changes it."""

    def __init__(self) -> None:
        self.service = Service()
        self.writer = TopicWriter(self.service.connect())
        self.changed: list[tuple[str, str]] = []
        self.loads = 0
        self.session = self.service.connect()

    def watch(self) -> ConfigWatcher:
        watcher = ConfigWatcher(self.session, self.service.clock, lambda *each: self.changed.append(each), self._loaded)
        watcher.start()
        return watcher

    def _loaded(self) -> None:
        self.loads += 1

    def change(self, topic: str) -> None:
        self.service.write(znodes.topic_path(topic), b"")
        self.replace(topic_node(topic))

    def replace(self, node: ConfigNode) -> None:
        self.writer.configs.change(node, lambda _current: {}, lambda written: None)

    def notices(self) -> list[str]:
        names: list[str] = self.service.do(lambda then: self.service.admin.children(znodes.CONFIG_CHANGES, then))[0]
        return names

    def delete_all(self) -> None:
        for name in self.notices():
            path = f"{znodes.CONFIG_CHANGES}/{name}"
            self.service.do(partial(self.service.admin.delete, path))

    def write(self, number: int, data: bytes) -> None:
        self.service.write(f"{znodes.CONFIG_CHANGE_PREFIX}{number:010}", data)


def test_every_later_change_is_reported_once_and_in_order() -> None:
    rig = Rig()
    rig.change("before")
    rig.watch()
    assert rig.changed == [] and rig.loads == 1
    rig.change("a.b")
    rig.replace(broker_node(None))
    rig.replace(broker_node(7))
    assert rig.changed == [("topics", "a.b"), ("brokers", "<default>"), ("brokers", "7")] and rig.loads == 1


def test_the_first_version_is_read_and_garbage_and_foreign_names_are_skipped() -> None:
    rig = Rig()
    rig.watch()
    rig.service.write(f"{znodes.CONFIG_CHANGES}/other", b"")
    rig.write(1, b"garbage")
    rig.write(2, b'{"version":3,"entity_path":"topics/x"}')
    rig.write(3, b'{"version":2,"entity_path":"topics"}')
    rig.write(4, b'{"version":1,"entity_type":"topics","entity_name":"old"}')
    assert rig.changed == [("topics", "old")]


def test_old_notifications_are_deleted_when_others_are_handled() -> None:
    rig = Rig()
    rig.watch()
    rig.change("old")
    rig.service.clock.advance(EXPIRATION_MS + 1)
    assert len(rig.notices()) == 1
    rig.change("new")
    assert len(rig.notices()) == 1 and rig.changed == [("topics", "old"), ("topics", "new")]


def test_a_closed_watcher_and_one_without_a_session_report_nothing() -> None:
    rig = Rig()
    watcher = rig.watch()
    watcher.close()
    rig.change("a")
    assert rig.changed == []
    rig.watch()
    rig.service.expire(rig.session)
    rig.change("b")
    assert rig.changed == []


def test_notifications_that_another_broker_deletes_at_once_are_not_missed() -> None:
    """Its clock is ahead by more than the age of old notifications, or its session is faster."""
    rig = Rig()
    rig.watch()
    reads: list[Callable[[], None]] = []
    get = rig.session.get
    rig.session.get = lambda *call: reads.append(partial(get, *call))  # type: ignore[method-assign, assignment]
    rig.change("read too late")
    rig.delete_all()
    for read in reads:
        read()
    assert rig.changed == [] and rig.loads == 1
    rig.service.clock.advance(round(RELOAD_S * 1000))
    assert rig.loads == 2, "everything is read"
    children = rig.session.children
    lists: list[Callable[[], None]] = []
    rig.session.children = lambda *call: lists.append(partial(children, *call))  # type: ignore[method-assign, assignment]
    rig.change("listed too late")
    rig.delete_all()
    for listing in lists:
        listing()
    rig.service.clock.advance(round(RELOAD_S * 1000))
    assert rig.changed == [] and rig.loads == 3, "the number of creations shows it"


@pytest.mark.parametrize("error", [ConnectionLossError(), NoAuthError()])
def test_a_notification_that_cannot_be_read_lets_everything_be_read(error: CoordinationError) -> None:
    rig = Rig()
    rig.watch()
    rig.session.get = lambda path, then, watch=None: then(Outcome(error=error))  # type: ignore[method-assign]
    for topic in ("a", "b", "c"):
        rig.change(topic)
    assert rig.loads == 1
    rig.service.clock.advance(round(RELOAD_S * 1000))
    assert rig.changed == [] and rig.loads == 2, "once for all"


@pytest.mark.parametrize("ahead_ms", [EXPIRATION_MS + 60_000, -EXPIRATION_MS - 60_000])
def test_a_clock_of_a_broker_that_differs_deletes_no_new_notification(ahead_ms: int) -> None:
    rig = Rig()
    clock = SkewedClock(rig.service.clock, ahead_ms)
    watcher = ConfigWatcher(rig.session, clock, lambda *each: rig.changed.append(each))  # type: ignore[arg-type]
    watcher.start()
    for topic in ("a", "b", "c"):
        rig.change(topic)
    assert len(rig.notices()) == 3 and [name for _, name in rig.changed] == ["a", "b", "c"]
