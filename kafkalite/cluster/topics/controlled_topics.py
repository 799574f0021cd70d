"""Defines `ControlledTopics`: in a cluster, the controller applies changes of topics, and a request waits for it.

1. As in Kafka, clients send these requests to the controller. Any other broker answers NOT_CONTROLLER, but for topics
   that are created on demand and for configs.
2. A creation is complete when every partition has a leader, a deletion when the nodes are gone. A request that takes
   longer is answered with REQUEST_TIMED_OUT; the change goes on, and the controller does not wait for it any more.
3. Internal topics get exactly the configured factor: their coordinators wait until as many brokers are alive.

Sources: KafkaApis.handleCreateTopicsRequest, ZkAdminManager.scala of Apache Kafka 3.9.
"""

import math
from collections.abc import Callable
from typing import Protocol

from kafkalite.clock import Clock, Outcome, Then
from kafkalite.cluster.changes import Change, ChangeCompletion, Refusal, RefusedError
from kafkalite.cluster.metadata.image import TopicImage
from kafkalite.cluster.topics.control import REQUEST_MS, ChangeRequest, TopicHost
from kafkalite.cluster.topics.internal_topics import InternalTopic
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller.events import AwaitDeletion, AwaitTopic

NOT_CONTROLLER = Refusal(KafkaErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
TIMED_OUT = Refusal(KafkaErrorCode.REQUEST_TIMED_OUT, "The change takes longer than the timeout of the request.")


class ActiveController(Protocol):
    """The controller, if it is on this broker."""

    @property
    def active(self) -> bool: ...
    def submit(self, event: AwaitTopic | AwaitDeletion, done: Callable[[int], object]) -> None: ...


class ControlledTopics:
    """The control of topics by a broker in a cluster.

    Arguments:
        broker: this broker.
        controller: the controller, if it is on this broker.
        clock: for the deadlines of requests.
    """

    shared = True

    def __init__(self, broker: TopicHost, controller: ActiveController, clock: Clock) -> None:
        self._broker = broker
        self._controller = controller
        self._clock = clock

    def admit(self, timeout_ms: int) -> ChangeRequest | Refusal:
        """Accept requests of clients on the controller."""
        return ChangeRequest(self._deadline(timeout_ms), True) if self._controller.active else NOT_CONTROLLER

    def broker_request(self) -> ChangeRequest:
        """Return a request that any broker may execute."""
        return ChangeRequest(self._deadline(REQUEST_MS), False)

    def _deadline(self, timeout_ms: int) -> float:
        limit_ms = self._broker.config.kafkalite_client_timeout_max_ms
        return self._clock.monotonic() + min(max(0, timeout_ms), limit_ms) / 1000

    def run(self, request: ChangeRequest, change: Change, complete: ChangeCompletion) -> None:
        """Run a change; at the deadline it is completed with REQUEST_TIMED_OUT, and its own result is dropped.

        A change that this broker could not wait for, because another controller was elected, is NOT_CONTROLLER.
        """
        timer = self._clock.call_at(request.deadline, complete, TIMED_OUT)

        def ended(refusal: Refusal | None) -> None:
            timer.cancel()
            moved = request.controlled and refusal is None and not self._controller.active
            complete(NOT_CONTROLLER if moved else refusal)

        try:
            change(ended)
        except Exception:
            timer.cancel()
            raise

    def internal_factor(self, topic: InternalTopic) -> int:
        """Return the configured factor."""
        return topic.replicas(self._broker.config)

    def warn_of_few_replicas(self, _topic: InternalTopic) -> None:
        """Do nothing: an internal topic has all its replicas."""

    def topic_changed(self, request: ChangeRequest, topic: TopicImage, done: Then) -> None:
        """Wait until every partition has a leader, on the controller; elsewhere complete at once."""
        count, deadline_ms = len(topic.partitions), deadline_ms_of(request)
        self._wait(AwaitTopic(None, topic.name, topic.topic_id, count, deadline_ms), done)

    def topic_gone(self, request: ChangeRequest, name: str, done: Then) -> None:
        """Wait until a topic is deleted."""
        self._wait(AwaitDeletion(None, name, deadline_ms_of(request)), done)

    def configs_changed(self, topic: TopicImage, done: Then) -> None:
        """Every broker applies them when it is notified."""
        done(Outcome())

    def _wait(self, event: AwaitTopic | AwaitDeletion, done: Then) -> None:
        def completed(error: int) -> None:
            if error:
                done(Outcome(error=RefusedError(error, f"The controller: {KafkaErrorCode(error).name}.")))
            else:
                done(Outcome())

        if self._controller.active:
            self._controller.submit(event, completed)
        else:
            done(Outcome())


def deadline_ms_of(request: ChangeRequest) -> int:
    """The time in ms at which the controller waits no longer: not before the request has its own answer."""
    return math.ceil(request.deadline * 1000)
