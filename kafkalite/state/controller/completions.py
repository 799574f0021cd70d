"""Requests of clients that wait until a topic is created, has grown or is deleted.

A created partition is complete once it is led and this broker's image has it, because the client asks this broker next
(DelayedCreatePartitions.scala). A deletion is complete once the nodes of the topic are deleted, so that a client may
create it again, or as soon as it waits only for replicas that are not available.
"""

from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller.effects import Completion, Effect
from kafkalite.state.controller.events import AwaitDeletion, AwaitTopic
from kafkalite.state.controller.known_topics import Topic
from kafkalite.state.controller.states import TopicState
from kafkalite.state.controller.values import TimerName, Token
from kafkalite.state.effects import CancelTimer, SetTimer

AWAIT = "await"  # first part of the names of the timers


class _Waiting(NamedTuple):
    """A request. `topic_id`: None = it waits for a deletion."""

    number: int
    token: Token
    topic: str
    topic_id: bytes | None
    partitions: int

    @property
    def timer(self) -> TimerName:
        return AWAIT, self.number


class Completions:
    """The requests that wait; each is completed once.

    Arguments:
        effects: the list that every event fills; it stays the same object.
    """

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._waiting: dict[int, _Waiting] = {}
        self._by_topic: dict[str, list[_Waiting]] = {}
        self._last = 0

    def await_topic(self, event: AwaitTopic, topic: Topic | None) -> None:
        """Wait until all partitions of a topic are led; `topic` None = it is not known yet."""
        self._wait(event, event.topic_id, event.partitions)
        if topic is not None and topic.state is TopicState.ACTIVE:
            self.published(topic)

    def await_deletion(self, event: AwaitDeletion) -> None:
        """Wait until a topic is deleted."""
        self._wait(event, None, 0)

    def published(self, topic: Topic) -> None:
        """More partitions of a topic may be led and known to this broker."""
        for each in self._by_topic.get(topic.name, ()):
            if each.topic_id == topic.topic_id and topic.published >= each.partitions:
                self._complete(each, KafkaErrorCode.NONE)

    def deletion_begun(self, topic: Topic) -> None:
        """A topic is being deleted, or does not exist any more: the requests that created it fail."""
        for each in self._by_topic.get(topic.name, ()):
            if each.topic_id == topic.topic_id:
                self._complete(each, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def deleted(self, name: str) -> None:
        """A topic is deleted, as far as it can be now."""
        for each in self._by_topic.get(name, ()):
            if each.topic_id is None:
                self._complete(each, KafkaErrorCode.NONE)

    def expired(self, number: int) -> None:
        """The deadline of a request has passed."""
        if (waiting := self._waiting.get(number)) is not None:
            self._complete(waiting, KafkaErrorCode.REQUEST_TIMED_OUT)

    def fail_all(self, error: int) -> None:
        """Complete all requests with an error."""
        for waiting in list(self._waiting.values()):
            self._complete(waiting, error)

    def _wait(self, event: AwaitTopic | AwaitDeletion, topic_id: bytes | None, partitions: int) -> None:
        self._last += 1
        waiting = _Waiting(self._last, event.token, event.topic, topic_id, partitions)
        self._waiting[self._last] = waiting
        self._by_topic.setdefault(event.topic, []).append(waiting)
        self._effects.append(SetTimer(waiting.timer, event.deadline_ms))

    def _complete(self, waiting: _Waiting, error: int) -> None:
        del self._waiting[waiting.number]
        others = [each for each in self._by_topic[waiting.topic] if each is not waiting]
        if others:
            self._by_topic[waiting.topic] = others
        else:
            del self._by_topic[waiting.topic]
        self._effects += (CancelTimer(waiting.timer), Completion(waiting.token, error))
