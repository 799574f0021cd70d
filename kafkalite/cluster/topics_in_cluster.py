"""Creates, deletes, extends and configures topics of a cluster: writes their nodes, and waits for the controller.

1. As in Kafka, clients send these requests to the controller. Any other broker answers NOT_CONTROLLER, but for topics
   that are created on demand and for configs.
2. A creation is complete when every partition has a leader, a deletion when the nodes are gone. A request that takes
   longer is answered with REQUEST_TIMED_OUT; the change goes on, and the controller does not wait for it any more.
3. Every partition has one replica: a higher replication factor is refused with the reason. Internal topics get one
   replica whatever their factor is, with a warning.

Sources: KafkaApis.handleCreateTopicsRequest, ZkAdminManager.scala of Apache Kafka 3.9.
"""

import logging
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from kafkalite.clock import Clock, Outcome, Random, Then
from kafkalite.cluster.config_writes import ConfigChange, Texts, Written, topic_node
from kafkalite.cluster.image import ClusterTables, TopicImage
from kafkalite.cluster.internal_topics import INTERNAL_TOPICS, InternalTopic
from kafkalite.cluster.topic_writes import TopicWriter
from kafkalite.cluster.topics import (
    REQUEST_MS,
    Change,
    ChangeCompletion,
    NewPartitions,
    NewTopic,
    Outcomes,
    Refusal,
    RefusedError,
    TopicManager,
)
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.slicing import Slicer
from kafkalite.state.controller.events import AwaitDeletion, AwaitTopic

LOGGER = logging.getLogger("kafkalite.cluster")
NOT_CONTROLLER = Refusal(KafkaErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
TIMED_OUT = Refusal(KafkaErrorCode.REQUEST_TIMED_OUT, "The change takes longer than the timeout of the request.")
ONE_REPLICA = "every partition has one replica in this version of kafkalite"


class ActiveController(Protocol):
    """The controller, if it is on this broker."""

    @property
    def active(self) -> bool: ...
    def submit(self, event: AwaitTopic | AwaitDeletion, done: Callable[[int], object]) -> None: ...


class ClusterTopicHost(Protocol):
    """The broker, as topics use it."""

    config: BrokerConfig
    clock: Clock
    random: Random
    slicer: Slicer

    @property
    def tables(self) -> ClusterTables: ...

    @property
    def controller(self) -> ActiveController: ...


class ControlledTopics:
    """The `TopicHost` of a change in a cluster: the controller applies it, so it is waited for.

    Arguments:
        broker: this broker.
        deadline: of the request, in seconds of the monotonic clock; then the controller waits no longer.
    """

    def __init__(self, broker: ClusterTopicHost, deadline: float) -> None:
        self._broker = broker
        self._deadline_ms = math.ceil(deadline * 1000)  # not before the request has its own answer
        self.random = broker.random
        self.slicer = broker.slicer

    @property
    def config(self) -> BrokerConfig:
        """The configs of the broker."""
        return self._broker.config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._broker.config = config

    @property
    def tables(self) -> ClusterTables:
        """The image."""
        return self._broker.tables

    def topic_changed(self, topic: TopicImage, done: Then) -> None:
        """Wait until every partition has a leader, on the controller; elsewhere complete at once."""
        count = len(topic.partitions)
        self._wait(AwaitTopic(None, topic.name, topic.topic_id, count, self._deadline_ms), done)

    def topic_gone(self, name: str, done: Then) -> None:
        """Wait until a topic is deleted."""
        self._wait(AwaitDeletion(None, name, self._deadline_ms), done)

    def _wait(self, event: AwaitTopic | AwaitDeletion, done: Then) -> None:
        controller = self._broker.controller

        def completed(error: int) -> None:
            if error:
                done(Outcome(error=RefusedError(error, f"The controller: {KafkaErrorCode(error).name}.")))
            else:
                done(Outcome())

        if controller.active:
            controller.submit(event, completed)
        else:
            done(Outcome())


class NodeStore:
    """The `Store` of a cluster: the nodes that brokers write."""

    def __init__(self, writer: TopicWriter) -> None:
        self.create_topic = writer.create_topic
        self.update_topic = writer.add_partitions
        self._writer = writer

    def delete_topic(self, topic: TopicImage, then: Callable[[int], None]) -> None:
        """Ask the controller to delete a topic."""
        self._writer.request_deletion(topic.name, then)

    def change_topic_configs(
        self, name: str, change: ConfigChange, then: Callable[[Written], object], *, validate_only: bool
    ) -> None:
        """Change the configs of a topic in the tree."""
        self._writer.configs.change(topic_node(name), change, then, validate_only=validate_only)


class TopicsInCluster(TopicManager):
    """Changes the topics of a cluster.

    Arguments:
        broker: this broker.
        writer: of the nodes.
    """

    def __init__(self, broker: ClusterTopicHost, writer: TopicWriter) -> None:
        super().__init__(ControlledTopics(broker, broker.clock.monotonic()), NodeStore(writer))
        self._broker = broker
        self._writer = writer
        self._log = RateLimitedLog(LOGGER, broker.clock)
        self._deadline = 0.0  # of the request whose changes begin
        self._controlled = False  # whether that request is one to the controller

    def create(
        self, asked: list[NewTopic], *, validate_only: bool, then: Outcomes, timeout_ms: int = REQUEST_MS
    ) -> None:
        """Create topics, on the controller."""
        if self._is_controller(len(asked), then, timeout_ms):
            super().create(asked, validate_only=validate_only, then=then)

    def delete(self, names: list[str], then: Outcomes, timeout_ms: int = REQUEST_MS) -> None:
        """Delete topics, on the controller."""
        if self._is_controller(len(names), then, timeout_ms):
            super().delete(names, then)

    def grow(
        self, asked: list[NewPartitions], *, validate_only: bool, then: Outcomes, timeout_ms: int = REQUEST_MS
    ) -> None:
        """Add partitions, on the controller."""
        if self._is_controller(len(asked), then, timeout_ms):
            super().grow(asked, validate_only=validate_only, then=then)

    def create_on_demand(self, names: list[str], then: Callable[[dict[str, int]], None]) -> None:
        """Create topics of a Metadata request, on any broker. They have no leader yet: LEADER_NOT_AVAILABLE."""
        if not self._broker.config.auto_create_topics_enable:
            then({})
            return
        asked = [self._on_demand(name) for name in dict.fromkeys(names)]

        def created(outcomes: list[Refusal | None]) -> None:
            errors: dict[str, int] = {}
            for new, refusal in zip(asked, outcomes, strict=True):
                made = refusal is None or refusal.error == KafkaErrorCode.TOPIC_ALREADY_EXISTS
                errors[new.name] = KafkaErrorCode.LEADER_NOT_AVAILABLE if made or refusal is None else refusal.error
            then(errors)

        self._create_here(asked, created)

    def create_internal(self, topic: InternalTopic, then: ChangeCompletion) -> None:
        """Create an internal topic, on any broker; one that another broker has just created is not refused."""

        def created(outcomes: list[Refusal | None]) -> None:
            (refusal,) = outcomes
            exists = refusal is not None and refusal.error == KafkaErrorCode.TOPIC_ALREADY_EXISTS
            then(None if exists else refusal)

        self._create_here([self._internal(topic)], created)

    def _create_here(self, asked: list[NewTopic], then: Outcomes) -> None:
        self._deadline, self._controlled = self._deadline_after(REQUEST_MS), False
        super().create(asked, validate_only=False, then=then)

    def _internal(self, topic: InternalTopic) -> NewTopic:
        config = self._broker.config
        if topic.replicas(config) > 1:
            text = "%s: one replica, not %d: %s"
            self._log(logging.WARNING, topic.name, text, topic.name, topic.replicas(config), ONE_REPLICA)
        return NewTopic(topic.name, topic.partitions(config), 1, configs=topic.configs(config))

    def _on_demand(self, name: str) -> NewTopic:
        internal = INTERNAL_TOPICS.get(name)
        return NewTopic(name) if internal is None else self._internal(internal)

    # The timeout of a request.

    def _is_controller(self, count: int, then: Outcomes, timeout_ms: int) -> bool:
        """Whether this broker is the controller; else the request is refused."""
        if not self._broker.controller.active:
            then([NOT_CONTROLLER] * count)
            return False
        self._deadline, self._controlled = self._deadline_after(timeout_ms), True
        return True

    def _deadline_after(self, timeout_ms: int) -> float:
        limit_ms = self._broker.config.kafkalite_client_timeout_max_ms
        return self._broker.clock.monotonic() + min(max(0, timeout_ms), limit_ms) / 1000

    def _begin(self, names: list[str], changes: list[Change], then: Outcomes) -> None:
        timed = partial(self._timed, self._deadline, self._controlled)
        super()._begin(names, [partial(timed, change) for change in changes], then)

    def _timed(self, deadline: float, controlled: bool, change: Change, complete: ChangeCompletion) -> None:
        """Run a change; at the deadline it is completed with REQUEST_TIMED_OUT, and its own result is dropped.

        A change that this broker could not wait for, because another controller was elected, is NOT_CONTROLLER.
        """
        timer = self._broker.clock.call_at(deadline, complete, TIMED_OUT)

        def ended(refusal: Refusal | None) -> None:
            timer.cancel()
            moved = controlled and refusal is None and not self._broker.controller.active
            complete(NOT_CONTROLLER if moved else refusal)

        self._host = ControlledTopics(self._broker, deadline)
        try:
            change(ended)
        except Exception:
            timer.cancel()
            raise

    # Configs.

    def _apply_configs(self, topic: TopicImage, texts: Texts, complete: ChangeCompletion) -> None:
        """Every broker applies them when it is notified."""
        complete(None)

    # Validation.

    def _assign_replicas(self, count: int, factor: int, first_partition: int) -> list[tuple[int, ...]]:
        if factor > 1:
            text = f"The replication factor is {factor}, expected 1: {ONE_REPLICA}."
            raise RefusedError(KafkaErrorCode.INVALID_REPLICATION_FACTOR, text)
        if not len(self._broker.tables.brokers):
            raise RefusedError(KafkaErrorCode.INVALID_REPLICATION_FACTOR, "This broker does not know the others yet.")
        return super()._assign_replicas(count, factor, first_partition)

    def _check_assignment(self, assignment: Iterable[tuple[int, ...]], factor: int) -> None:
        if factor > 1:
            text = f"The assignment has {factor} replicas of a partition, expected 1: {ONE_REPLICA}."
            raise RefusedError(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        super()._check_assignment(assignment, factor)
