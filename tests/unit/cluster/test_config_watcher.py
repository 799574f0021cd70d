"""The notifications of changed configs."""

from kafkalite.cluster.change_notifications import EXPIRATION_MS
from kafkalite.cluster.config_watcher import ConfigWatcher
from kafkalite.cluster.topic_writes import TopicWriter
from kafkalite.coordination import znodes
from tests.unit.cluster.controller.kit import Service


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
        self.writer.configure_topic(topic, {}, lambda error: None)

    def notices(self) -> list[str]:
        names: list[str] = self.service.do(lambda then: self.service.admin.children(znodes.CONFIG_CHANGES, then))[0]
        return names

    def write(self, number: int, data: bytes) -> None:
        self.service.write(f"{znodes.CONFIG_CHANGE_PREFIX}{number:010}", data)


def test_every_later_change_is_reported_once_and_in_order() -> None:
    rig = Rig()
    rig.change("before")
    rig.watch()
    assert rig.changed == [] and rig.loads == 1
    rig.change("a.b")
    rig.writer.configure_broker(None, {}, lambda error: None)
    rig.writer.configure_broker(7, {}, lambda error: None)
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
