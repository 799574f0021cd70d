"""Reads the committed offsets of a group with OffsetFetch.

Pure: no I/O, no clock. Invariants:
1. Each question ends once: with an offset or None for each of its partitions, or with an error that is not retriable.
2. One request is open. It asks for all partitions that wait, for each of them once.
3. After an error of a topic, also one that ends the question, its offsets are requested again after a pause, which
   doubles with each error. Other topics do not wait.
4. Offsets of open transactions are not returned; the question is retried until they are stable (KIP-447).
Sources: ConsumerCoordinator.java and CommitRequestManager.java of Apache Kafka 4.3.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

from kafkalite.backoff import exponential_pause
from kafkalite.errors import KafkaError, KafkaErrorCode, error_for, with_right
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkalite_sdk.values import OffsetAndMetadata

Committed = dict[TopicPartition, OffsetAndMetadata | None]
OffsetsDone = Callable[[Committed | KafkaError], object]
VERSION_MAX = 9  # v10 names topics by id; a re-created topic would have no offsets until its id is known
ALL = ""
COORDINATOR_LOST = (KafkaErrorCode.NOT_COORDINATOR, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)
Topics = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics
ResponseTopic = OffsetFetchResponse.OffsetFetchResponseTopic
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup


class Question:
    """Partitions whose offsets are wanted, not before `retry_at`."""

    __slots__ = ("done", "partitions", "retry_at", "topics")

    def __init__(self, partitions: list[TopicPartition], done: OffsetsDone) -> None:
        self.partitions = partitions
        self.topics = {each.topic for each in partitions}
        self.done = done
        self.retry_at = 0.0


class Pause(NamedTuple):
    """The errors in a row of a topic, and the time before which its offsets are not requested again."""

    failures: int
    until: float


class FetchOffsetsCall(NamedTuple):
    """A request to the coordinator, and the questions that it answers."""

    request: OffsetFetchRequest
    questions: list[Question]
    version_max: int = VERSION_MAX


class CommittedOffsets:
    """The open questions.

    Arguments:
        group: whose offsets are read.
        retry_backoff_s: pause after an error, doubled with each further error.
        retry_backoff_max_s: longest pause.

    Attributes:
        coordinator_lost: the driver must find the coordinator again; it resets the attribute.
    """

    def __init__(self, group: str, retry_backoff_s: float, retry_backoff_max_s: float) -> None:
        self.coordinator_lost = False
        self._group = group
        self._retry_backoff_s = retry_backoff_s
        self._retry_backoff_max_s = retry_backoff_max_s
        self._pauses: dict[str, Pause] = {}  # by topic; ALL = the whole group
        self._waiting: list[Question] = []
        self._open: FetchOffsetsCall | None = None

    @property
    def needs_coordinator(self) -> bool:
        """Whether a request waits for the coordinator."""
        return bool(self._waiting)

    def fetch(self, partitions: Iterable[TopicPartition], done: OffsetsDone) -> Question:
        """Read offsets.

        Arguments:
            partitions: whose offsets are wanted.
            done: called with the offsets, None = no offset is committed, or with the error.
        """
        question = Question(list(partitions), done)
        question.retry_at = self._paused_until(question)
        self._waiting.append(question)
        return question

    def cancel(self, question: Question) -> None:
        """Forget a question; its `done` is not called any more."""
        for questions in (self._waiting, self._open.questions if self._open is not None else []):
            if question in questions:
                questions.remove(question)

    def requests(self, now: float) -> Iterator[FetchOffsetsCall]:
        """Yield the request that leaves now for the coordinator; `now` in seconds of the loop's clock."""
        if not self._waiting or self._open is not None:
            return
        due = [each for each in self._waiting if each.retry_at <= now]
        if due:
            self._open = FetchOffsetsCall(self._request(due), due)
            self._waiting = [each for each in self._waiting if each.retry_at > now]
            yield self._open

    def _request(self, questions: list[Question]) -> OffsetFetchRequest:
        topics: dict[str, dict[int, None]] = {}
        for question in questions:
            for topic, partition in question.partitions:
                topics.setdefault(topic, {})[partition] = None
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self._group,
            topics=[Topics(name=name, partition_indexes=list(indexes)) for name, indexes in topics.items()],
        )
        single = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes))
            for name, indexes in topics.items()
        ]
        return OffsetFetchRequest(group_id=self._group, topics=single, groups=[group], require_stable=True)

    def answered(self, call: FetchOffsetsCall, response: OffsetFetchResponse, now: float) -> None:
        """The response to a request has arrived; `now` in seconds of the loop's clock."""
        offsets, code = _outcomes(response)
        if code:
            self._failed(
                call.questions, error_for(code, with_right(code, f"group {self._group}", "read", self._group)), now, ALL
            )
            return
        self._pauses.pop(ALL, None)
        self._open = None
        for question in call.questions:
            self._answer(question, offsets, now)

    def _answer(
        self, question: Question, offsets: dict[TopicPartition, tuple[int, OffsetAndMetadata]], now: float
    ) -> None:
        found: Committed = {}
        for each in question.partitions:
            code, offset = offsets.get(each, (int(KafkaErrorCode.UNKNOWN_SERVER_ERROR), None))
            if code:
                self._failed([question], error_for(code, f"group {self._group}, {each}"), now, each.topic)
                return
            found[each] = offset if offset is not None and offset.offset >= 0 else None
        for topic in question.topics:
            self._pauses.pop(topic, None)
        question.done(found)

    def lost(self, call: FetchOffsetsCall, error: KafkaError, now: float) -> None:
        """A request has no response; `now` in seconds of the loop's clock."""
        self.coordinator_lost = True
        self._failed(call.questions, error, now, ALL)

    def _failed(self, questions: list[Question], error: KafkaError, now: float, topic: str) -> None:
        self._open = None
        self.coordinator_lost |= error.code in COORDINATOR_LOST
        self._pause(topic, now)
        for question in questions:
            if error.retriable:
                question.retry_at = self._paused_until(question)
                self._waiting.append(question)
            else:
                question.done(error)

    def _pause(self, topic: str, now: float) -> None:
        failures = 1 + (self._pauses[topic].failures if topic in self._pauses else 0)
        pause_s = exponential_pause(self._retry_backoff_s, failures, self._retry_backoff_max_s)
        self._pauses[topic] = Pause(failures, now + pause_s)

    def _paused_until(self, question: Question) -> float:
        pauses = (self._pauses[topic].until for topic in (ALL, *question.topics) if topic in self._pauses)
        return max(pauses, default=0.0)

    def fail(self, error: KafkaError) -> None:
        """Fail the questions that wait: they cannot be sent."""
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            question.done(error)

    def wake_at(self, now: float) -> float:
        """Return when `requests` has something to do without a response; infinity = never."""
        pauses = (each.retry_at for each in self._waiting if each.retry_at > now)
        return min(pauses, default=inf) if self._open is None else inf


def _outcomes(response: OffsetFetchResponse) -> tuple[dict[TopicPartition, tuple[int, OffsetAndMetadata]], int]:
    """Return error code and offset by partition, and the error code of the whole response."""
    topics: Iterable[ResponseTopic | GroupResponse.OffsetFetchResponseTopics] = response.topics
    code = response.error_code
    for group in response.groups:  # the one that was asked for; none up to v7
        topics, code = group.topics, group.error_code
    offsets = {
        TopicPartition(topic.name, each.partition_index): (
            each.error_code,
            OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch),
        )
        for topic in topics
        for each in topic.partitions
    }
    return offsets, code
