"""Changes of config nodes: none of two is lost, each is notified once, and a lost response is read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.configs.writes import (
    ATTEMPTS_MAX,
    ConfigNode,
    ConfigWriter,
    Texts,
    Written,
    broker_node,
    group_node,
    topic_node,
)
from kafkalite.config.keys import ConfigError
from kafkalite.coordination import znodes
from kafkalite.errors import KafkaErrorCode, reason_of
from tests.unit.cluster.controller.kit import Service, ShakySession

ORDERS = topic_node("orders")
NODES = [ORDERS, broker_node(None), broker_node(3), group_node("g")]


class Rig:
    """Two brokers that change configs over sessions of their own."""

    def __init__(self) -> None:
        self.service = Service()
        for path in (znodes.GROUP_CHANGES, znodes.GROUP_CONFIGS):  # a start creates them
            self.service.write(path, b"")
        self.service.topic("orders")
        self.shaky = ShakySession(self.service.connect())
        self.one = ConfigWriter(self.shaky)  # type: ignore[arg-type]
        self.two = ConfigWriter(self.service.connect())
        self.results: list[Written] = []

    def set(self, writer: ConfigWriter, node: ConfigNode, key: str, *, meanwhile: Callable[[], object] = int) -> None:
        """Set one key; `meanwhile` runs between the read and the write."""

        def change(current: Texts | None) -> Texts:
            nonlocal meanwhile
            run, meanwhile = meanwhile, int
            run()
            return {**(current or {}), key: "1"}

        writer.change(node, change, self.results.append)

    def texts(self, node: ConfigNode) -> Mapping[str, str]:
        return znodes.decode_configs(node.path, self.service.data(node.path))

    def notices(self, node: ConfigNode) -> list[bytes]:
        names = self.service.do(lambda then: self.service.admin.children(node.changes, then))[0]
        return [self.service.data(f"{node.changes}/{name}") for name in names]

    def errors(self) -> list[int]:
        return [each.error for each in self.results]


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.entity)
@pytest.mark.parametrize("exists", [False, True], ids=["first", "later"])
def test_two_brokers_that_change_a_node_at_once_keep_both_keys(node: ConfigNode, exists: bool) -> None:
    rig = Rig()
    if exists:
        rig.set(rig.one, node, "old")
    rig.set(rig.one, node, "a", meanwhile=lambda: rig.set(rig.two, node, "b"))
    assert rig.texts(node) == {**({"old": "1"} if exists else {}), "a": "1", "b": "1"}
    assert set(rig.errors()) == {0} and len(rig.notices(node)) == len(rig.results)
    assert set(rig.notices(node)) == {znodes.encode_config_change(node.entity)}


def test_the_node_of_a_group_ends_with_its_last_text_and_not_with_one_of_another_broker() -> None:
    rig, node = Rig(), group_node("g")
    rig.one.change(node, lambda _current: {}, rig.results.append)
    assert not rig.service.exists(node.path) and rig.errors() == [0]
    rig.set(rig.one, node, "a")
    added = False

    def clear(current: Texts | None) -> Texts:
        nonlocal added
        if not added:
            added = True
            rig.set(rig.two, node, "b")
        return {key: text for key, text in (current or {}).items() if key != "a"}

    rig.one.change(node, clear, rig.results.append)
    assert rig.texts(node) == {"b": "1"}
    rig.one.change(node, lambda _current: {}, rig.results.append)
    assert not rig.service.exists(node.path) and set(rig.errors()) == {0}


@pytest.mark.parametrize("executed", [True, False])
def test_a_change_without_a_response_is_read_back(executed: bool) -> None:
    rig = Rig()
    rig.shaky.lose, rig.shaky.executed = 1, executed
    rig.set(rig.one, ORDERS, "a")
    assert rig.errors() == [0 if executed else KafkaErrorCode.KAFKA_STORAGE_ERROR]
    assert rig.service.exists(ORDERS.path) == executed


def test_validation_alone_writes_nothing() -> None:
    rig = Rig()
    rig.one.change(ORDERS, lambda _current: {"a": "1"}, rig.results.append, validate_only=True)
    assert rig.results == [Written(0, {"a": "1"})] and not rig.service.exists(ORDERS.path)


def test_a_refused_change_and_one_of_a_topic_that_is_gone_write_nothing() -> None:
    rig = Rig()

    def refuse(_current: Texts | None) -> Texts:
        raise ConfigError("a", "a is wrong")

    rig.one.change(ORDERS, refuse, rig.results.append)
    rig.set(rig.one, topic_node("gone"), "a")
    assert rig.errors() == [KafkaErrorCode.INVALID_CONFIG, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert reason_of(rig.results[0].error) == "a is wrong"
    assert not rig.service.exists(ORDERS.path) and not rig.service.exists(topic_node("gone").path)


def test_invalid_contents_are_only_replaced_as_a_whole() -> None:
    rig = Rig()
    rig.service.write(ORDERS.path, b"no JSON")

    def one(current: Texts | None) -> Texts:
        if current is None:
            raise ConfigError("", "single configs cannot be changed")
        return {**current, "a": "1"}

    rig.one.change(ORDERS, one, rig.results.append)
    assert reason_of(rig.results[0].error) == f"{ORDERS.path}: not JSON; single configs cannot be changed"
    assert rig.service.data(ORDERS.path) == b"no JSON"
    rig.one.change(ORDERS, lambda _current: {"a": "1"}, rig.results.append)
    assert rig.texts(ORDERS) == {"a": "1"} and rig.errors()[1] == 0


def test_a_change_that_others_always_precede_ends() -> None:
    rig = Rig()
    rig.set(rig.two, ORDERS, "b")
    rig.results.clear()
    numbers = iter(range(10_000))

    def change(current: Texts | None) -> Texts:
        data = znodes.encode_configs({"n": str(next(numbers))})
        rig.service.admin.set(ORDERS.path, data, lambda _outcome: None)
        return {**(current or {}), "a": "1"}

    rig.one.change(ORDERS, change, rig.results.append)
    assert rig.errors() == [KafkaErrorCode.REQUEST_TIMED_OUT] and next(numbers) == ATTEMPTS_MAX


def test_an_exception_of_a_change_completes_it() -> None:
    rig = Rig()

    def broken(_current: Texts | None) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rig.one.change(ORDERS, broken, rig.results.append)
    assert rig.errors() == [KafkaErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_session_without_a_service_fails_the_change() -> None:
    rig = Rig()
    rig.service.expire(rig.shaky)  # type: ignore[arg-type]
    outcomes: list[Outcome] = []
    rig.shaky.get(ORDERS.path, outcomes.append)
    rig.set(rig.one, ORDERS, "a")
    assert outcomes[0].error is not None and rig.errors() == [KafkaErrorCode.KAFKA_STORAGE_ERROR]
