"""Questions about offsets that only the leader of a partition can answer: grouped by leader, retried until an answer.

Pure: no I/O, no clock. The driver sends the requests of `requests` and reports their ends. Invariants:
1. Each lookup ends once, by its `done`, unless it is cancelled: with a result, or with an error that is not retriable.
2. A leader has one open request of a class; a partition is at most once in a request.
3. A partition without a leader delays no other partition.
Sources: OffsetsRequestManager.java, OffsetFetcherUtils.java of Apache Kafka 4.3; KIP-320.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Generic, NamedTuple, TypeVar

from kafkalite.errors import KafkaError, KafkaErrorCode, error_for
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkalite.protocol.schema import Request, Response
from kafkalite_sdk.client.cluster_view import NO_LEADER, ClusterView
from kafkalite_sdk.values import ListedOffset

Result = TypeVar("Result")
RequestType = TypeVar("RequestType", bound=Request)
ResponseType = TypeVar("ResponseType", bound=Response)
UNSUPPORTED_FORMAT = KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class EpochEnd(NamedTuple):
    """The largest epoch in the log up to the requested one, and the offset after its last record; -1 = none."""

    leader_epoch: int
    end_offset: int


class Lookup(Generic[Result]):
    """One question.

    Attributes:
        key: timestamp in ms, or leader epoch.
        done: called with the result or the error.
    """

    __slots__ = ("done", "key", "open", "retry_at", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, key: int, done: Callable[[Result | KafkaError], object]
    ) -> None:
        self.topic_partition = topic_partition
        self.key = key
        self.done = done
        self.open = False
        self.retry_at = 0.0


class LookupCall(Generic[RequestType, Result]):
    """A request to the broker `node`, and its lookups by partition."""

    __slots__ = ("lookups", "node", "request", "version_max")

    def __init__(self, node: int, request: RequestType, lookups: dict[TopicPartition, Lookup[Result]]) -> None:
        self.node = node
        self.request = request
        self.lookups = lookups
        self.version_max: int | None = None


class LeaderLookups(Generic[RequestType, ResponseType, Result]):
    """The open questions of one class of request.

    Arguments:
        view: knows the leaders.
        retry_backoff_s: pause after a retriable error.

    Attributes:
        stale_topics: those with an unknown or wrong leader; the driver requests their metadata and clears the set.
    """

    def __init__(self, view: ClusterView, retry_backoff_s: float) -> None:
        self.stale_topics: set[str] = set()
        self._view = view
        self._retry_backoff_s = retry_backoff_s
        self._lookups: dict[Lookup[Result], None] = {}
        self._busy: set[int] = set()

    def find(
        self, topic_partition: TopicPartition, key: int, done: Callable[[Result | KafkaError], object]
    ) -> Lookup[Result]:
        """Ask the leader of a partition.

        Arguments:
            topic_partition: the partition.
            key: timestamp in ms, or leader epoch.
            done: called with the result or the error, unless the lookup is cancelled.
        """
        lookup: Lookup[Result] = Lookup(topic_partition, key, done)
        self._lookups[lookup] = None
        return lookup

    def cancel(self, lookup: Lookup[Result]) -> None:
        """Forget a lookup; its `done` is not called any more."""
        self._lookups.pop(lookup, None)

    def requests(self, now: float, usable: Callable[[int], bool]) -> Iterator[LookupCall[RequestType, Result]]:
        """Yield the requests that leave now.

        Arguments:
            now: in seconds of the loop's clock.
            usable: whether a broker may get a request.
        """
        by_leader: dict[int, dict[TopicPartition, Lookup[Result]]] = {}
        for lookup in self._lookups:
            if lookup.open or lookup.retry_at > now:
                continue
            leader = self._view.leader(*lookup.topic_partition)
            if leader == NO_LEADER:
                self.stale_topics.add(lookup.topic_partition.topic)
            elif leader not in self._busy and usable(leader):
                by_leader.setdefault(leader, {}).setdefault(lookup.topic_partition, lookup)
        for leader, lookups in by_leader.items():
            asked = list(lookups.values())
            call = LookupCall(leader, self._request(asked), lookups)
            self._busy.add(leader)  # nothing of this raises behind the request: they would stay open
            for lookup in asked:
                lookup.open = True
            yield call

    def answered(self, call: LookupCall[RequestType, Result], response: ResponseType, now: float) -> None:
        """The response to a request has arrived; `now` in seconds of the loop's clock."""
        self._busy.discard(call.node)
        outcomes = dict(self._outcomes(response))
        for topic_partition, lookup in call.lookups.items():
            code, result = outcomes.get(topic_partition, (int(KafkaErrorCode.UNKNOWN_SERVER_ERROR), None))
            if lookup not in self._lookups:
                continue
            if result is not None:
                self._end(lookup, result)
            else:
                self._failed(lookup, error_for(code, str(topic_partition)), now)

    def lost(self, call: LookupCall[RequestType, Result], error: KafkaError, now: float) -> None:
        """A request has no response; `now` in seconds of the loop's clock."""
        self._busy.discard(call.node)
        for lookup in call.lookups.values():
            if lookup in self._lookups:
                self._failed(lookup, error, now)

    def _failed(self, lookup: Lookup[Result], error: KafkaError, now: float) -> None:
        if not error.retriable:
            self._end(lookup, error)
            return
        lookup.open = False
        lookup.retry_at = now + self._retry_backoff_s
        self.stale_topics.add(lookup.topic_partition.topic)

    def _end(self, lookup: Lookup[Result], outcome: Result | KafkaError) -> None:
        del self._lookups[lookup]
        lookup.done(outcome)

    def wake_at(self, now: float) -> float:
        """Return when `requests` has something to do without a response or new metadata; infinity = never."""
        return min((each.retry_at for each in self._lookups if not each.open and each.retry_at > now), default=inf)

    @abstractmethod
    def _request(self, lookups: Iterable[Lookup[Result]]) -> RequestType:
        """Build the request for these lookups."""

    @abstractmethod
    def _outcomes(self, response: ResponseType) -> Iterator[tuple[TopicPartition, tuple[int, Result | None]]]:
        """Yield the error code of each partition, and its result unless it has an error."""


class OffsetLookups(LeaderLookups[ListOffsetsRequest, ListOffsetsResponse, ListedOffset]):
    """Finds offsets by timestamp with ListOffsets.

    Arguments:
        view: knows the leaders.
        retry_backoff_s: pause after a retriable error.
        isolation_level: 1 = the end of the log is the last stable offset.
    """

    def __init__(self, view: ClusterView, retry_backoff_s: float, isolation_level: int) -> None:
        super().__init__(view, retry_backoff_s)
        self._isolation_level = isolation_level

    def _request(self, lookups: Iterable[Lookup[ListedOffset]]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for each in lookups:
            name, partition = each.topic_partition
            topic = topics.setdefault(name, ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=partition,
                    current_leader_epoch=self._view.leader_epoch(*each.topic_partition),
                    timestamp=each.key,
                )
            )
        return ListOffsetsRequest(replica_id=-1, isolation_level=self._isolation_level, topics=list(topics.values()))

    def _outcomes(
        self, response: ListOffsetsResponse
    ) -> Iterator[tuple[TopicPartition, tuple[int, ListedOffset | None]]]:
        for topic in response.topics:
            for each in topic.partitions:
                code = 0 if each.error_code == UNSUPPORTED_FORMAT else each.error_code
                result = ListedOffset(each.offset, each.timestamp, each.leader_epoch)
                yield TopicPartition(topic.name, each.partition_index), (code, None if code else result)


class EpochLookups(LeaderLookups[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, EpochEnd]):
    """Finds the ends of leader epochs with OffsetForLeaderEpoch."""

    def _request(self, lookups: Iterable[Lookup[EpochEnd]]) -> OffsetForLeaderEpochRequest:
        topics: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
        for each in lookups:
            name, partition = each.topic_partition
            topic = topics.setdefault(name, OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[]))
            topic.partitions.append(
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
                    partition=partition,
                    current_leader_epoch=self._view.leader_epoch(*each.topic_partition),
                    leader_epoch=each.key,
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values()))

    def _outcomes(
        self, response: OffsetForLeaderEpochResponse
    ) -> Iterator[tuple[TopicPartition, tuple[int, EpochEnd | None]]]:
        for topic in response.topics:
            for each in topic.partitions:
                result = None if each.error_code else EpochEnd(each.leader_epoch, each.end_offset)
                yield TopicPartition(topic.topic, each.partition), (each.error_code, result)
