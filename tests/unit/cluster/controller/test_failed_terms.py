"""An unexpected exception ends the controller's term: no event is continued half-executed."""

import logging
from itertools import pairwise
from typing import Any

import pytest

from kafkalite.cluster.controller import tree_reader
from kafkalite.cluster.controller.runtime import FAILURE_PAUSE_MAX_S
from kafkalite.coordination import znodes
from kafkalite.coordination.znodes import controller
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.controller import effects, events
from tests.unit.cluster.controller.kit import Service
from tests.unit.cluster.controller.test_runtime import Node, on

UNKNOWN_BROKER = 9
FAILING = effects.SendStopReplica(1, UNKNOWN_BROKER, 1, ())
WRITE = effects.Write(1, (effects.DeleteTopicConfig("orders"),))


def request_deletion(service: Service, name: str = "x") -> None:
    service.write(controller.delete_topic_path(name), b"")


def test_exception_in_an_effect_ends_the_term_and_the_effects_behind_it_are_not_executed() -> None:
    service = Service()
    service.write(znodes.topic_config_path("orders"), b"")
    node = Node(service, on(events.DeletionsChanged, FAILING, WRITE))
    codes: list[int] = []
    node.runtime.submit(events.AwaitDeletion(None, "x", 0), codes.append)
    request_deletion(service)
    assert not node.runtime.active and codes == [KafkaErrorCode.NOT_CONTROLLER]
    assert service.exists(znodes.topic_config_path("orders")), "the write behind the failed effect"
    assert not service.exists(controller.CONTROLLER), "another broker may be elected at once"
    service.clock.advance(900)
    assert not node.runtime.active
    service.clock.advance(200)
    assert node.runtime.active and node.runtime.epoch == 2 and len(node.machines) == 2


def test_another_broker_is_elected_while_the_one_that_failed_pauses() -> None:
    service = Service()
    first = Node(service, on(events.DeletionsChanged, FAILING))
    second = Node(service, broker_id=2)
    request_deletion(service)
    assert not first.runtime.active and second.runtime.active
    service.clock.advance(10_000)
    assert not first.runtime.active and second.runtime.epoch == 2


def test_exception_of_the_machine_ends_the_term(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_event: Any) -> Any:
        raise ZeroDivisionError("planted")

    service = Service()
    node = Node(service, {events.SnapshotRead: fail})
    begun = service.clock.monotonic()
    starts = [0.0]
    while service.clock.monotonic() - begun < 400:
        before = len(node.machines)
        service.clock.advance(1_000)
        if len(node.machines) > before:
            starts.append(service.clock.monotonic() - begun)
    pauses = [round(later - earlier) for earlier, later in pairwise(starts)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 32] and set(pauses[6:]) == {FAILURE_PAUSE_MAX_S}
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == len(node.machines), "one line for each term"
    assert [each.exc_info is not None for each in errors] == [True, *[False] * (len(errors) - 1)], "one traceback"


def test_exception_in_the_callback_of_a_read_ends_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    node = Node(service)

    def fail(path: str, data: bytes) -> Any:
        raise IndexError("planted")

    monkeypatch.setattr(znodes, "decode_topic", fail)
    service.topic("orders")
    node.script.update(on(events.TopicsChanged, effects.ReadTopic("orders")))
    service.topic("other")
    assert not node.runtime.active
    monkeypatch.undo()
    node.script.clear()
    service.clock.advance(2_000)
    assert node.runtime.active


def test_exception_of_a_read_that_begins_when_another_has_ended_ends_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many reads are open; a read that is lost would leave the event incomplete for ever."""
    monkeypatch.setattr(tree_reader, "READS_MAX", 1)
    service = Service()
    node = Node(service)
    get, waiting = node.session._session.get, []

    def held(path: str, then: Any, watch: Any = None) -> None:
        if path == znodes.state_path("orders", 1):
            raise ZeroDivisionError("planted")
        waiting.append(lambda: get(path, then, watch))

    node.session.get = held
    keys = tuple(TopicPartition("orders", index) for index in range(2))
    node.script.update(on(events.DeletionsChanged, effects.ReadStates(1, keys)))
    request_deletion(service)
    assert node.runtime.active
    waiting.pop()()
    assert not node.runtime.active
