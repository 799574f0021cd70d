"""Decides whether this broker may change topics, and applies durable changes: `OwnTopics` for a broker that is alone.

`controlled_topics` does so for a broker in a cluster, where only the controller changes topics.
"""

import math
from typing import NamedTuple, Protocol

from kafkalite.clock import Random, Then
from kafkalite.cluster.changes import Change, ChangeCompletion, Refusal
from kafkalite.cluster.metadata.image import ClusterTables, TopicImage
from kafkalite.cluster.topics.internal_topics import InternalTopic
from kafkalite.config.broker import BrokerConfig
from kafkalite.slicing import Slicer

REQUEST_MS = 30_000  # timeout of a request that has none


class ChangeRequest(NamedTuple):
    """The request that a change belongs to.

    Arguments:
        deadline: in seconds of the monotonic clock; the request is then answered with REQUEST_TIMED_OUT.
        controlled: whether its changes fail with NOT_CONTROLLER if this broker is not the controller at their end.
    """

    deadline: float
    controlled: bool


class TopicHost(Protocol):
    """The part of the broker that topics use."""

    random: Random
    slicer: Slicer

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def tables(self) -> ClusterTables: ...


class TopicControl(Protocol):
    """Decides whether this broker may change topics, and applies durable changes.

    Attributes:
        shared: whether other brokers create topics, too. One that exists is then as good as created, and a created one
            has no leader yet.
    """

    shared: bool

    def admit(self, timeout_ms: int) -> ChangeRequest | Refusal:
        """Return a request of a client with its deadline, or why this broker cannot serve it."""

    def broker_request(self) -> ChangeRequest:
        """Return a request of this broker itself, for internal topics and those that are created on demand."""

    def run(self, request: ChangeRequest, change: Change, complete: ChangeCompletion) -> None:
        """Run a change of a request, and complete it by its deadline."""

    def internal_factor(self, topic: InternalTopic) -> int:
        """Return the replication factor of an internal topic."""

    def warn_of_few_replicas(self, topic: InternalTopic) -> None:
        """Warn that an internal topic, which was created, has fewer replicas than configured."""

    def topic_changed(self, request: ChangeRequest, topic: TopicImage, done: Then) -> None:
        """Apply a `topic` that was created or has more partitions, on behalf of `request`; `done` is called then."""

    def topic_gone(self, request: ChangeRequest, name: str, done: Then) -> None:
        """Apply the deletion of the topic `name`, on behalf of `request`; `done` is called then."""

    def configs_changed(self, topic: TopicImage, done: Then) -> None:
        """Apply configs of a topic."""


class OwnHost(TopicHost, Protocol):
    """A broker that is alone, which applies the changes of topics itself."""

    def topic_changed(self, topic: TopicImage, done: Then) -> None: ...
    def topic_gone(self, name: str, done: Then) -> None: ...


class OwnTopics:
    """The control of topics by a broker that is alone: it may change all, and waits for nothing but its disk."""

    shared = False

    def __init__(self, host: OwnHost) -> None:
        self._host = host

    def admit(self, _timeout_ms: int) -> ChangeRequest:
        """Accept every request."""
        return self.broker_request()

    def broker_request(self) -> ChangeRequest:
        """Return a request without a deadline."""
        return ChangeRequest(math.inf, False)

    def run(self, _request: ChangeRequest, change: Change, complete: ChangeCompletion) -> None:
        """Run a change."""
        change(complete)

    def internal_factor(self, _topic: InternalTopic) -> int:
        """Return 1, whatever is configured: there is one broker."""
        return 1

    def warn_of_few_replicas(self, topic: InternalTopic) -> None:
        """Warn of one replica."""
        topic.warn_of_one_replica(self._host.config)

    def topic_changed(self, _request: ChangeRequest, topic: TopicImage, done: Then) -> None:
        """Host a topic or its new partitions."""
        self._host.topic_changed(topic, done)

    def topic_gone(self, _request: ChangeRequest, name: str, done: Then) -> None:
        """Drop a topic."""
        self._host.topic_gone(name, done)

    def configs_changed(self, topic: TopicImage, done: Then) -> None:
        """Apply configs of a topic."""
        self._host.topic_changed(topic, done)
