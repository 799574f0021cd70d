"""Topics of a cluster: who answers, what is waited for, and when a request ends without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.metadata.image import ClusterTables, TopicImage, new_partition
from kafkalite.cluster.metadata.live_brokers import BrokerImage, LiveBrokers
from kafkalite.cluster.sessions.current_session import CurrentSession
from kafkalite.cluster.topics.auto_creation import create_on_demand
from kafkalite.cluster.topics.controlled_topics import NOT_CONTROLLER, TIMED_OUT, ControlledTopics
from kafkalite.cluster.topics.internal_topics import OFFSETS
from kafkalite.cluster.topics.manager import NewPartitions, NewTopic, TopicManager
from kafkalite.cluster.topics.node_writes import TopicWriter
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination import znodes
from kafkalite.coordination.znodes.controller import delete_topic_path
from kafkalite.errors import KafkaErrorCode
from kafkalite.slicing import Slicer
from kafkalite.state.controller.events import AwaitDeletion, AwaitTopic
from kafkalite.testing.virtual_clock import SeededRandom
from tests.unit.cluster.controller.kit import TOPIC_ID, Service

TIMEOUT_MS = 1_000


class Broker:
    """A broker with a controller that waits until the test completes what it was asked for."""

    def __init__(self, **settings: str) -> None:
        self.service = Service()
        self.clock = self.service.clock
        self.config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.random = SeededRandom(1)
        self.slicer = Slicer(self.clock, lambda callback, error: None)
        self.tables = ClusterTables("cluster", 1, LiveBrokers(BrokerImage(each) for each in (1, 2, 3)))
        self.active = True
        self.waiting: list[tuple[AwaitTopic | AwaitDeletion, Callable[[int], object]]] = []
        self.session = CurrentSession(self.service.connect())
        control = ControlledTopics(self, self, self.clock)
        self.topics = TopicManager(self, TopicWriter(self.session), control)
        self.outcomes: list[list[Refusal | None]] = []

    def submit(self, event: AwaitTopic | AwaitDeletion, done: Callable[[int], object]) -> None:
        self.waiting.append((event, done))

    def create(self, factor: int | None = None) -> None:
        new = NewTopic("orders", 2, factor)
        self.topics.create([new], validate_only=False, then=self.outcomes.append, timeout_ms=TIMEOUT_MS)

    def known(self, partitions: int = 2) -> None:
        """The image has the topic."""
        self.tables.put(TopicImage("orders", TOPIC_ID, (new_partition((1,)),) * partitions))
        self.service.topic("orders", partitions)

    def move_at_the_next_write(self, patch: pytest.MonkeyPatch) -> None:
        """Another controller is elected while the next write is under way."""
        session = self.session.session

        def moving(write: Callable[..., object], *arguments: Any, **named: Any) -> None:
            self.active = False
            write(*arguments, **named)

        for name in ("multi", "set", "create"):
            patch.setattr(session, name, partial(moving, getattr(session, name)), raising=False)

    def error(self) -> int | None:
        """The error of the only request, None if there is none."""
        ((refusal,),) = self.outcomes
        return None if refusal is None else refusal.error


def test_a_creation_is_answered_when_the_controller_says_so() -> None:
    broker = Broker()
    broker.create()
    assert broker.outcomes == [] and broker.service.exists(znodes.topic_path("orders"))
    (event, done) = broker.waiting.pop()
    assert isinstance(event, AwaitTopic) and (event.topic, event.partitions) == ("orders", 2)
    done(0)
    assert broker.error() is None
    broker.clock.advance(10 * TIMEOUT_MS)
    assert len(broker.outcomes) == 1 and broker.clock.timers == 0


def test_a_creation_is_answered_at_its_timeout_and_goes_on() -> None:
    broker = Broker()
    broker.create()
    broker.clock.advance(TIMEOUT_MS)
    assert broker.outcomes == [[TIMED_OUT]] and broker.service.exists(znodes.topic_path("orders"))
    broker.waiting.pop()[1](0)
    assert len(broker.outcomes) == 1


@pytest.mark.parametrize("error", [KafkaErrorCode.NOT_CONTROLLER, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_an_error_of_the_controller_is_the_answer(error: int) -> None:
    broker = Broker()
    broker.create()
    broker.waiting.pop()[1](error)
    assert broker.error() == error


@pytest.mark.parametrize("change", ["create", "grow", "delete"])
def test_a_controller_that_moves_before_it_waits_acknowledges_no_change(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    if change != "create":
        broker.known()
    broker.move_at_the_next_write(monkeypatch)
    if change == "create":
        broker.create()
    elif change == "grow":
        more = NewPartitions("orders", 5, None)
        broker.topics.grow([more], validate_only=False, then=broker.outcomes.append, timeout_ms=TIMEOUT_MS)
    else:
        broker.topics.delete(["orders"], broker.outcomes.append, TIMEOUT_MS)
    assert not broker.active and broker.outcomes == [[NOT_CONTROLLER]] and not broker.waiting


def test_another_broker_answers_not_controller_and_writes_nothing() -> None:
    broker = Broker()
    broker.active = False
    broker.create()
    broker.topics.delete(["a", "b"], broker.outcomes.append)
    more = NewPartitions("orders", 3, None)
    broker.topics.grow([more], validate_only=False, then=broker.outcomes.append)
    assert broker.outcomes == [[NOT_CONTROLLER], [NOT_CONTROLLER] * 2, [NOT_CONTROLLER]]
    assert not broker.service.exists(znodes.topic_path("orders"))


def test_a_deletion_is_requested_and_awaited() -> None:
    broker = Broker()
    broker.known()
    broker.topics.delete(["orders"], broker.outcomes.append, TIMEOUT_MS)
    assert broker.service.exists(delete_topic_path("orders")) and broker.outcomes == []
    (event, done) = broker.waiting.pop()
    assert isinstance(event, AwaitDeletion) and event.topic == "orders"
    done(0)
    assert broker.error() is None


def test_added_partitions_are_awaited() -> None:
    broker = Broker()
    broker.known()
    more = NewPartitions("orders", 5, None)
    broker.topics.grow([more], validate_only=False, then=broker.outcomes.append, timeout_ms=TIMEOUT_MS)
    (event, done) = broker.waiting.pop()
    assert isinstance(event, AwaitTopic) and event.partitions == 5
    done(0)
    assert broker.error() is None
    assert len(znodes.decode_topic("", broker.service.data(znodes.topic_path("orders"))).replicas) == 5


def test_more_replicas_than_live_brokers_are_refused_with_the_reason() -> None:
    broker = Broker()
    broker.create(factor=4)
    assigned = NewTopic("assigned", assignments={0: (1, 2, 7)}, assignment_count=1)
    broker.topics.create([assigned], validate_only=False, then=broker.outcomes.append)
    (first,), (second,) = broker.outcomes
    assert first is not None and second is not None
    assert (first.error, second.error) == (
        KafkaErrorCode.INVALID_REPLICATION_FACTOR,
        KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
    )
    assert "available brokers: 3" in (first.message or "") and "[7] are not alive" in (second.message or "")


def test_a_broker_that_knows_no_brokers_yet_creates_nothing() -> None:
    broker = Broker()
    broker.tables = ClusterTables("cluster", 1, LiveBrokers())
    broker.create()
    assert broker.error() == KafkaErrorCode.INVALID_REPLICATION_FACTOR


def test_an_internal_topic_is_created_by_any_broker() -> None:
    broker = Broker(offsets_topic_replication_factor="1")
    broker.active = False
    refusals: list[Refusal | None] = []
    broker.topics.create_internal(OFFSETS, refusals.append)
    assert refusals == [None]
    node = znodes.decode_topic("", broker.service.data(znodes.topic_path(OFFSETS.name)))
    assert {len(replicas) for replicas in node.replicas.values()} == {1}
    broker.topics.create_internal(OFFSETS, refusals.append)
    assert refusals == [None, None], "another broker was faster"


def test_as_many_replicas_as_live_brokers_are_accepted() -> None:
    broker = Broker()
    assigned = NewTopic("own", assignments={0: (1, 2)}, assignment_count=1)
    topics = [NewTopic("three", 4, 3), NewTopic("four", 4, 4), assigned]
    broker.topics.create(topics, validate_only=True, then=broker.outcomes.append)
    three, four, own = broker.outcomes[0]
    assert three is None and own is None
    assert four is not None and four.error == KafkaErrorCode.INVALID_REPLICATION_FACTOR


def test_internal_topics_have_exactly_the_configured_factor_once_enough_brokers_are_alive() -> None:
    broker = Broker(offsets_topic_replication_factor="3", offsets_topic_num_partitions="4")
    broker.active = False
    refusals: list[Refusal | None] = []
    three = broker.tables
    broker.tables = ClusterTables("cluster", 1, LiveBrokers(BrokerImage(each) for each in (1, 2)))
    broker.topics.create_internal(OFFSETS, refusals.append)
    assert refusals[0] is not None and refusals[0].error == KafkaErrorCode.INVALID_REPLICATION_FACTOR
    assert not broker.service.exists(znodes.topic_path(OFFSETS.name))
    broker.tables = three
    broker.topics.create_internal(OFFSETS, refusals.append)
    node = znodes.decode_topic("", broker.service.data(znodes.topic_path(OFFSETS.name)))
    assert refusals[1] is None and {len(replicas) for replicas in node.replicas.values()} == {3}


def test_topics_on_demand_have_no_leader_yet() -> None:
    broker = Broker()
    broker.active = False
    errors: list[dict[str, int]] = []
    create_on_demand(broker.topics, broker.config, ["a", "a", "b"], errors.append)
    create_on_demand(broker.topics, broker.config, ["a"], errors.append)
    none = KafkaErrorCode.LEADER_NOT_AVAILABLE
    assert errors == [{"a": none, "b": none}, {"a": none}], "also if another broker was faster"


def test_configs_are_changed_from_those_in_the_tree() -> None:
    broker = Broker()
    broker.known()
    path = znodes.topic_config_path("orders")
    broker.service.write(path, znodes.encode_configs({"retention.ms": "1"}))
    refusals: list[Refusal | None] = []
    for validate_only in (True, False):
        broker.topics.configure(
            "orders", lambda current: {**(current or {}), "a": "b"}, validate_only=validate_only, then=refusals.append
        )
    assert refusals == [None, None]
    assert znodes.decode_configs(path, broker.service.data(path)) == {"retention.ms": "1", "a": "b"}
    broker.session.session = None
    broker.topics.configure("orders", lambda _current: {}, validate_only=False, then=refusals.append)
    assert refusals[2] is not None and refusals[2].error == KafkaErrorCode.KAFKA_STORAGE_ERROR


def test_without_a_session_every_call_fails_and_a_new_one_is_used() -> None:
    broker = Broker()
    session, broker.session.session = broker.session.session, None
    assert broker.session.lost and broker.session.suspended and broker.session.session_id == 0
    broker.create()
    assert broker.error() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    broker.session.session = session
    broker.outcomes.clear()
    broker.create()
    assert len(broker.waiting) == 1 and not broker.session.lost


@pytest.mark.parametrize("change", ["create", "grow", "delete"])
def test_the_controller_waits_no_longer_than_the_request(change: str) -> None:
    broker = Broker()
    if change != "create":
        broker.known()
    broker.clock.advance(0.25)
    if change == "create":
        broker.create()
    elif change == "grow":
        more = NewPartitions("orders", 5, None)
        broker.topics.grow([more], validate_only=False, then=broker.outcomes.append, timeout_ms=TIMEOUT_MS)
    else:
        broker.topics.delete(["orders"], broker.outcomes.append, TIMEOUT_MS)
    begin_ms = broker.clock.monotonic() * 1000
    ((event, _),) = broker.waiting
    assert begin_ms + TIMEOUT_MS <= event.deadline_ms < begin_ms + TIMEOUT_MS + 1


def test_requests_with_different_timeouts_have_their_own_deadlines() -> None:
    broker = Broker()
    for name, timeout_ms in (("first", 9 * TIMEOUT_MS), ("second", TIMEOUT_MS)):
        new = NewTopic(name, 1, None)
        broker.topics.create([new], validate_only=False, then=broker.outcomes.append, timeout_ms=timeout_ms)
    deadlines = {event.topic: event.deadline_ms for event, _ in broker.waiting}
    assert deadlines["first"] - deadlines["second"] == 8 * TIMEOUT_MS
