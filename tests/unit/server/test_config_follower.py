"""Configs of topics, brokers and groups in the tree: applied at the start of a session, and with each change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.cluster.membership.current_session import CurrentSession
from kafkalite.cluster.topic_writes import TopicWriter
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination import znodes
from kafkalite.server.config_follower import ConfigFollower
from kafkalite.server.topic_reader import TopicReader
from tests.unit.cluster.controller.kit import Service


class Broker:
    """Broker 1, which hosts the topic `orders`, and what it has applied."""

    broker_id = 1
    hosted_topics = ("orders",)

    def __init__(self) -> None:
        self.config = BrokerConfig()
        self.group_configs: dict[str, dict[str, str]] = {"old": {"consumer.session.timeout.ms": "50000"}}
        self.applied: list[Any] = []

    def apply_configs(self, default: Mapping[str, str], own: Mapping[str, str]) -> None:
        self.applied.append((dict(default), dict(own)))

    def apply_group_configs(self, group: str, texts: Mapping[str, str]) -> None:
        self.applied.append((group, dict(texts)))

    def configure_topic(self, name: str, overrides: Mapping[str, str]) -> None:
        self.applied.append((name, dict(overrides)))

    def take(self) -> list[Any]:
        applied, self.applied = self.applied, []
        return applied


class Rig:
    """A follower, and a broker that changes configs."""

    def __init__(self) -> None:
        self.service = Service()
        for path in (znodes.GROUP_CHANGES, znodes.GROUP_CONFIGS):  # a start creates them
            self.service.write(path, b"")
        self.writer = TopicWriter(self.service.connect())
        self.broker = Broker()
        session = self.service.connect()
        reader = TopicReader(CurrentSession(session), self.service.clock)
        self.follower = ConfigFollower(self.broker, session, reader, self.service.clock)

    def change(self, topic: str, **configs: str) -> None:
        self.writer.configure_topic(topic, configs, lambda error: None)


def test_everything_is_read_at_the_start_of_a_session() -> None:
    rig = Rig()
    rig.change("orders", retention_ms="1")
    rig.writer.configure_broker(1, {"log.cleaner.threads": "2"}, lambda error: None)
    rig.writer.configure_group("g", {"consumer.session.timeout.ms": "46000"}, lambda error: None)
    assert rig.broker.applied == []
    rig.follower.start()
    applied = rig.broker.take()
    assert ("orders", {"retention_ms": "1"}) in applied
    assert ({}, {"log.cleaner.threads": "2"}) in applied
    assert ("g", {"consumer.session.timeout.ms": "46000"}) in applied
    assert ("old", {}) in applied, "it has none any more"


def test_changes_are_applied_to_what_they_name() -> None:
    rig = Rig()
    rig.follower.start()
    rig.broker.take()
    rig.change("a.b", retention_ms="2")
    rig.writer.configure_broker(2, {"log.cleaner.threads": "3"}, lambda error: None)
    rig.writer.configure_broker(None, {"log.cleaner.threads": "4"}, lambda error: None)
    rig.writer.configure_group("g", {"consumer.session.timeout.ms": "47000"}, lambda error: None)
    assert rig.broker.take() == [
        ("a.b", {"retention_ms": "2"}),
        ({"log.cleaner.threads": "4"}, {}),
        ("g", {"consumer.session.timeout.ms": "47000"}),
    ], "not the config of another broker"


def test_invalid_configs_of_a_group_leave_it_unchanged() -> None:
    rig = Rig()
    rig.follower.start()
    rig.broker.take()
    rig.writer.configure_group("g", {"consumer.session.timeout.ms": "1"}, lambda error: None)
    assert rig.broker.take() == []


def test_nothing_is_applied_after_the_end_of_the_session() -> None:
    rig = Rig()
    rig.follower.start()
    rig.broker.take()
    rig.follower.close()
    rig.change("orders", retention_ms="3")
    assert rig.broker.take() == []
