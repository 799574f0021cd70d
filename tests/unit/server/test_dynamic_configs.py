"""Configs of topics, brokers and groups in the tree: applied at the start of a session, and with each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.configs.client_quotas import QuotaEntity
from kafkalite.cluster.configs.quota_writes import QuotaChange
from kafkalite.cluster.configs.writes import ConfigNode, Texts, broker_node, group_node, topic_node
from kafkalite.cluster.metadata.image import ClusterTables
from kafkalite.cluster.sessions.current_session import CurrentSession
from kafkalite.cluster.topics.node_writes import TopicWriter
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.server.configs.dynamic_configs import RETRY_S, ConfigFollower
from kafkalite.server.configs.topic_reader import TopicReader
from kafkalite.slicing import Slicer
from kafkalite.testing.virtual_clock import VirtualClock
from tests.unit.cluster.controller.kit import Service


def fail(_callback: object, error: BaseException) -> None:
    raise error


class Quotas(dict[Any, Any]):
    """The client quotas that the broker has applied."""

    def replace_all(self, found: Mapping[Any, Mapping[str, float]]) -> None:
        self.clear()
        self.update(found)

    def replace(self, entity: Any, values: Mapping[str, float]) -> None:  # type: ignore[override]
        self[entity] = dict(values)


class Broker:
    """Broker 1, which hosts the topic `orders`, and what it has applied."""

    broker_id = 1
    hosted_topics = ("orders",)
    authorizer = None
    credentials = None
    tokens = None

    def __init__(self) -> None:
        self.config = BrokerConfig()
        self.tables = ClusterTables("cluster")
        self.group_configs: dict[str, dict[str, str]] = {"old": {"consumer.session.timeout.ms": "50000"}}
        self.applied: list[Any] = []
        self.quotas = Quotas()
        self.slicer = Slicer(VirtualClock(), fail)

    def apply_configs(self, default: Texts | None, own: Texts | None) -> None:
        self.applied.append(tuple(None if each is None else dict(each) for each in (default, own)))

    def apply_group_configs(self, group: str, texts: Mapping[str, str]) -> None:
        self.applied.append((group, dict(texts)))

    def configure_topic(self, name: str, overrides: Texts | None) -> None:
        self.applied.append((name, None if overrides is None else dict(overrides)))

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
        self.session = self.service.connect()
        self.follower = self.again()

    def again(self) -> ConfigFollower:
        reader = TopicReader(CurrentSession(self.session), self.service.clock)
        return ConfigFollower(self.broker, self.session, reader, self.service.clock)

    def change(self, topic: str, **configs: str) -> None:
        self.service.write(znodes.topic_path(topic), b"")
        self.replace(topic_node(topic), configs)

    def replace(self, node: ConfigNode, configs: Mapping[str, str]) -> None:
        self.writer.configs.change(node, lambda _current: configs, lambda written: None)


def test_everything_is_read_at_the_start_of_a_session() -> None:
    rig = Rig()
    rig.change("orders", retention_ms="1")
    rig.replace(broker_node(1), {"log.cleaner.threads": "2"})
    rig.replace(group_node("g"), {"consumer.session.timeout.ms": "46000"})
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
    rig.replace(broker_node(2), {"log.cleaner.threads": "3"})
    rig.replace(broker_node(None), {"log.cleaner.threads": "4"})
    rig.replace(group_node("g"), {"consumer.session.timeout.ms": "47000"})
    assert rig.broker.take() == [
        ("a.b", {"retention_ms": "2"}),
        ({"log.cleaner.threads": "4"}, {}),
        ("g", {"consumer.session.timeout.ms": "47000"}),
    ], "not the config of another broker"


def test_configs_that_cannot_be_read_are_not_taken_for_none(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.follower.start()
    rig.broker.take()
    for node in (topic_node("orders"), broker_node(1), group_node("g")):
        rig.replace(node, {"a": "b"})
        rig.broker.take()
        rig.service.write(node.path, b"no JSON")
    rig.follower.close()
    rig.again().start()
    applied = rig.broker.take()
    assert ("orders", None) in applied and ({}, None) in applied
    assert not any(each[0] == "g" for each in applied), "those of the group are unchanged"
    for path in ("/topics/orders", "/brokers/1", "/groups/g"):
        assert f"{path}: the configs cannot be read: " in caplog.text


def test_reads_are_repeated_until_the_service_is_within_reach() -> None:
    rig = Rig()
    rig.follower.start()
    rig.broker.take()
    get = rig.session.get

    def lose(path: str, then: Callable[[Outcome], object], watch: Any = None) -> None:
        if "changes" in path:
            get(path, then, watch)
        else:
            then(Outcome(error=ConnectionLossError()))

    rig.session.get = lose  # type: ignore[method-assign]
    rig.replace(broker_node(1), {"log.cleaner.threads": "3"})
    rig.replace(group_node("g"), {"consumer.session.timeout.ms": "47000"})
    assert rig.broker.take() == []
    rig.session.get = get  # type: ignore[method-assign]
    rig.service.clock.advance(round(RETRY_S * 1000))
    assert rig.broker.take() == [({}, {"log.cleaner.threads": "3"}), ("g", {"consumer.session.timeout.ms": "47000"})]


def test_nothing_is_applied_after_the_end_of_the_session() -> None:
    rig = Rig()
    rig.follower.start()
    rig.broker.take()
    rig.follower.close()
    rig.change("orders", retention_ms="3")
    assert rig.broker.take() == []


def test_quotas_are_read_at_the_start_and_with_each_change() -> None:
    rig = Rig()
    alice, app = QuotaEntity((("user", "alice"),)), QuotaEntity((("user", "alice"), ("client-id", None)))
    anyone = QuotaEntity((("ip", None),))

    def change(entity: QuotaEntity, **texts: str | None) -> None:
        QuotaChange(rig.writer.configs._session, entity, texts, notify=True, then=lambda refusal: None).start()

    change(app, producer_byte_rate="10")
    rig.follower.start()
    assert rig.broker.quotas == {app: {"producer_byte_rate": 10.0}}
    change(alice, consumer_byte_rate="5")
    change(anyone, connection_creation_rate="7")
    change(app, producer_byte_rate=None, request_percentage="2.5")
    assert rig.broker.quotas == {
        alice: {"consumer_byte_rate": 5.0},
        app: {"request_percentage": 2.5},
        anyone: {"connection_creation_rate": 7.0},
    }
    change(anyone, connection_creation_rate=None)
    assert rig.broker.quotas[anyone] == {}
