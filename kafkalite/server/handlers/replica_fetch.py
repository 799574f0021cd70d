"""Fetches of replicas: the part of Fetch, key 1, for followers (`replica_id` >= 0, from v15 on in `ReplicaState`).

A fetch visits the partitions that it names and those that are marked (`state/replica_sessions`); with none of them it
costs the same for any number of partitions in the session. Each visit records the fetch with the leader; then the
partition is read up to its log end.

- It is answered with `min_bytes` of records, an error, a diverging epoch or deleted records, else after `max_wait_ms`.
  One that opens a session is answered at once: the follower learns the session and all high watermarks.
- Records complete a waiting fetch when all partitions of the loop iteration are written, so that one response has them.
- A higher high watermark is in the next response: with the next records, or after the wait. Only while consumers read
  from the follower it completes the fetch, `WATERMARK_DELAY_S` later, so that records of that time share a response.
- A throttled replica that is not in sync receives no records while `leader.replication.throttled.rate` is exceeded.
- Bytes that are not in memory are read ahead in jobs; other partitions with records are answered meanwhile. A full
  response has such partitions without records: followers reject one that lacks a requested partition
  (FetchSessionHandler.verifyFullFetchResponsePartitions).
- Fetches are only served on the listener between brokers.

Deviations: Kafka answers a full fetch without records after the wait, visits all partitions, reads before it records,
and sends the current leaders of KIP-951 also to followers.
Sources: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch of Apache Kafka 3.9.
"""

from collections.abc import Generator, Iterator
from functools import partial
from itertools import groupby

from kafkalite._speedups.storage.page_cache import PageCacheMiss
from kafkalite.clock import Outcome, Timer
from kafkalite.cluster.partition.delayed_fetch import enough_for_follower
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.reads import PartitionRead, ends_early
from kafkalite.cluster.partition.replica_reads import find_rejection, log_end_of, read_to_log_end, record
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.server.requests.call import OBJECTS_MAX, PartitionCall
from kafkalite.server.requests.fetched_partition import TopicResponse, partition_data, read_ahead_error, topic_of
from kafkalite.server.requests.replica_context import named_in_steps, session_of, sessions_of_replicas
from kafkalite.state.fetch_sessions import EPOCH_INITIAL, SESSION_NONE
from kafkalite.state.replica_sessions import ReplicaPartition, ReplicaSession, ReplicaSessions

WATERMARK_DELAY_S = 0.005

News = tuple[ReplicaPartition, PartitionRead]


def fetch_of_replica(call: PartitionCall, request: FetchRequest, replica_id: int, broker_epoch: int) -> None:
    """Serve a fetch of a replica.

    Arguments:
        call: of the request.
        request: the request.
        replica_id, broker_epoch: of the follower; epoch -1 = not sent.
    """
    if call.refuse_of_client(of_brokers=True):
        return
    sessions = sessions_of_replicas(call)
    session = session_of(call, request, sessions, replica_id, broker_epoch)
    if isinstance(session, KafkaErrorCode):
        call.answer(FetchResponse(error_code=session, session_id=SESSION_NONE, responses=[]))
        return
    objects = len(session.marked)
    for topic in request.topics:
        objects += 1 + len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        objects += 1 + len(forgotten.partitions)
    fetch = ReplicaFetch(call, request, sessions, session)
    call.in_slices(named_in_steps(request, session), objects, fetch.start, changes=True)


class ReplicaFetch:
    """A fetch of a replica from its first visit to its response.

    Arguments:
        call, request: of the fetch.
        sessions: of all replicas.
        session: that it continues, or a new one.
    """

    __slots__ = (
        "_bytes_max",
        "_bytes_min",
        "_call",
        "_deadline",
        "_due",
        "_recorded",
        "_request",
        "_session",
        "_sessions",
        "_timer",
        "_waits",
        "_watermark_timer",
    )

    def __init__(
        self, call: PartitionCall, request: FetchRequest, sessions: ReplicaSessions, session: ReplicaSession
    ) -> None:
        self._call = call
        self._request = request
        self._sessions = sessions
        self._session = session
        self._bytes_max = min(request.max_bytes, call.context.config.fetch_max_bytes)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._deadline = 0.0
        self._due = request.max_wait_ms <= 0  # a response is due, whatever it contains
        self._recorded = False  # the fetch of a partition: this broker has a session for the replica
        self._waits = False
        self._timer: Timer | None = None
        self._watermark_timer: Timer | None = None

    def start(self, _named: object = None) -> None:
        """Visit the named and the marked partitions for the first time."""
        opening = self._request.session_epoch == EPOCH_INITIAL
        if opening or self._session.urgent or not self._session.partitions:
            self._due = True
        self._session.urgent = False
        wait_ms = min(self._request.max_wait_ms, self._call.context.config.kafkalite_client_timeout_max_ms)
        self._deadline = self._call.context.clock.monotonic() + wait_ms / 1000
        self._serve(first=True)

    # Visits.

    def _serve(self, *, first: bool = False) -> None:
        """Visit the marked partitions, in several loop iterations if they are many, and continue with the result.

        `first`: the request has just arrived: its fetches are recorded.
        """
        marked = self._session.take_marked()
        self._call.in_slices(self._visit_in_steps(marked, first), len(marked), self._visited, changes=True)

    def _visit_in_steps(self, marked: list[ReplicaPartition], first: bool) -> Generator[None, None, list[News]]:
        news: list[News] = []
        left, empty = self._bytes_max, True
        is_full = self._session.id == SESSION_NONE
        for part in marked:
            found = self._visit(part, left, empty, first)
            if found is not None:
                size = found.size if found.miss is None else found.miss.size
                left -= size  # not more is read ahead than the response may hold
                empty = empty and not size
                if (found.miss is None or is_full) and part.has_news(
                    found.error, found.size, found.high_watermark, found.log_start_offset, found.diverging is not None
                ):
                    news.append((part, found))
            yield
        return news

    def _visit(self, part: ReplicaPartition, bytes_left: int, min_one: bool, first: bool) -> PartitionRead | None:
        """Record and read one partition; None while a job reads its bytes."""
        if first:
            part.renew(self._session.previous_ms)
        partition = self._resolve(part)
        if not isinstance(partition, Partition):
            return self._keep(part, PartitionRead(partition))
        found = find_rejection(partition, part)
        if found is not None:
            return self._keep(part, found)
        if first:
            error = record(partition, part)
            if error:
                return self._keep(part, PartitionRead(error))
            self._recorded = True
            self._session.marked.pop(part, None)  # the response has the high watermark to which it has led
        return self._read(part, partition, bytes_left, min_one)

    def _read(
        self, part: ReplicaPartition, partition: Partition, bytes_left: int, min_one: bool
    ) -> PartitionRead | None:
        if part.cancel is not None:
            return None
        ahead, part.ahead = part.ahead, None
        assert ahead is None or isinstance(ahead, Outcome)
        if ahead is not None and isinstance(ahead.error, Exception):
            return self._keep(part, PartitionRead(read_ahead_error(partition, part.fetch_offset, ahead.error)))
        miss = None if ahead is None else ahead.value
        max_bytes = min(part.max_bytes, bytes_left)
        if self._must_wait(partition):
            max_bytes, min_one = 0, False
        found = read_to_log_end(partition, part, max_bytes, min_one=min_one, read_ahead=miss)
        if found.miss is not None:
            self._start_read_ahead(part, found.miss)
        elif found.error or part.fetch_offset < log_end_of(partition):
            self._keep(part, found)
        else:
            part.at_end = part.progress is not None
            if self._session.replica_id not in partition.isr:
                self._keep(part, found)
        return found

    def _must_wait(self, partition: Partition) -> bool:
        """Whether the follower of a partition is throttled and not in sync, while the quota is exceeded."""
        if not self._is_throttled(partition) or self._session.replica_id in partition.isr:
            return False
        limit = self._call.context.config.leader_replication_throttled_rate
        return self._sessions.quota.pause_ms(limit, self._now_ms()) > 0

    def _is_throttled(self, partition: Partition) -> bool:
        return self._sessions.quota.is_throttled(
            partition.config.leader_replication_throttled_replicas, partition.index
        )

    def _now_ms(self) -> int:
        return int(self._call.context.clock.monotonic() * 1000)

    def _keep(self, part: ReplicaPartition, found: PartitionRead) -> PartitionRead:
        """Keep a partition marked: the next fetch visits it again, whether it names it or not."""
        self._session.marked[part] = None
        return found

    def _resolve(self, part: ReplicaPartition) -> Partition | KafkaErrorCode:
        """Return the hosted partition, which marks this session from now on, or a Kafka error code."""
        partition = part.handle
        if isinstance(partition, Partition) and not partition.error:
            return partition
        replicas, by_id = self._call.context.replicas, self._session.by_id
        found = replicas.partition(part.topic, part.topic_id, part.partition, by_id=by_id)
        if isinstance(found, Partition):
            part.attach(found)
        else:
            part.detach()
        return found

    # What follows.

    def _visited(self, news: list[News]) -> None:
        if self._due or enough_for_follower(news, self._bytes_min, stops_early):
            self._answer(news)
            return
        for part, _ in news:
            self._session.marked[part] = None
        if self._session.missed:  # in an earlier slice of this visit, or before it
            self._due, self._session.urgent = self._session.urgent, False
            self._serve()
        elif self._call.context.clock.monotonic() >= self._deadline:
            self._due = True
            self._serve()
        else:
            self._wait(news)

    def _wait(self, news: list[News]) -> None:
        """Wait for a mark, at most until the deadline."""
        self._session.waiting = self
        self._waits = True
        self._call.reply.on_gone = self._gone
        if self._timer is None:
            self._timer = self._call.context.clock.call_at(self._deadline, self._expired)
        now_ms = self._session.fetched_ms
        if any(part.is_read(now_ms) and found.high_watermark != part.high_watermark_sent for part, found in news):
            self.wake_soon()

    def wake(self, *, urgent: bool) -> None:
        """Continue after the writes of this loop iteration; without any, in the next one."""
        self._session.waiting = None  # one mark is enough
        self._due = self._due or urgent
        if not self._call.context.replicas.after_writes(self._continue):
            clock = self._call.context.clock
            clock.call_at(clock.monotonic(), self._continue)

    def wake_soon(self) -> None:
        """Answer with a higher high watermark after a short delay."""
        if self._watermark_timer is None:
            clock = self._call.context.clock
            self._watermark_timer = clock.call_at(clock.monotonic() + WATERMARK_DELAY_S, self._expired)

    def _expired(self) -> None:
        """A response is due: the wait has ended."""
        self._due = True
        self._continue()

    def _continue(self) -> None:
        if not self._waits:  # continued already
            return
        self._end_wait()
        try:
            self._serve()
        except Exception as error:
            self._call.fail(error)

    def _end_wait(self) -> None:
        self._waits = False
        self._call.reply.on_gone = None
        if self._session.waiting is self:
            self._session.waiting = None

    def _cancel_timers(self) -> None:
        timers, self._timer, self._watermark_timer = (self._timer, self._watermark_timer), None, None
        for timer in timers:
            if timer is not None:
                timer.cancel()

    def _gone(self) -> None:
        """The follower has disconnected; its sessions are closed."""
        self._end_wait()
        self._cancel_timers()
        if not self._sessions.is_open(self._session):
            self._sessions.free(self._session)

    # Bytes that are not in memory.

    def _start_read_ahead(self, part: ReplicaPartition, miss: PageCacheMiss) -> None:
        part.cancel = self._call.context.read_ahead.read(miss, partial(read_ahead_done, part))

    # The response.

    def _answer(self, news: list[News]) -> None:
        self._cancel_timers()
        session_id = self._session_id()
        if session_id is None:
            error = KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._call.answer(FetchResponse(error_code=error, session_id=SESSION_NONE, responses=[]))
        elif len(news) <= OBJECTS_MAX:
            responses: list[TopicResponse] = []
            for (name, topic_id), parts in groupby(self._sent(news), topic_of):
                data = [partition_data(part, found) for part, found in parts]
                responses.append(TopicResponse(topic=name, topic_id=topic_id, partitions=data))
            self._call.answer(FetchResponse(session_id=session_id, responses=responses))
        else:
            self._call.answer_from(self._response_in_steps(session_id, news), len(news))

    def _session_id(self) -> int | None:
        """Return the session id of the response, 0 = none, after a new session was opened; None if it is closed."""
        session, sessions = self._session, self._sessions
        opening = self._request.session_epoch == EPOCH_INITIAL
        if opening and self._recorded and not self._call.connection.closed:
            sessions.open(session)
        if session.id != SESSION_NONE and session.has_too_many_unknown:
            sessions.close(session.id)
        if sessions.is_open(session) and session.partitions:
            return session.id
        is_open = sessions.is_open(session)
        if is_open:
            sessions.close(session.id)
        elif session.id == SESSION_NONE:
            sessions.free(session)
        return SESSION_NONE if is_open or session.id == SESSION_NONE else None

    def _sent(self, news: list[News]) -> Iterator[News]:
        """Yield what the response contains, and update the session. Partitions with records move behind the others."""
        marked = self._session.marked
        for part, found in news:
            part.update_response(found.error, found.high_watermark, found.log_start_offset)
            self._sessions.bytes_out += found.size
            if found.size and isinstance(part.handle, Partition) and self._is_throttled(part.handle):
                self._sessions.quota.charge(found.size, self._now_ms())
            if found.size and part in marked:
                del marked[part]
                marked[part] = None
            yield part, found

    def _response_in_steps(self, session_id: int, news: list[News]) -> Generator[None, None, FetchResponse]:
        topics = self._call.elements()
        for (name, topic_id), parts in groupby(self._sent(news), topic_of):
            partitions = self._call.elements()
            for part, found in parts:
                partitions.add(partition_data(part, found))
                yield
            listed = partitions.finish()
            topics.add(TopicResponse(topic=name, topic_id=topic_id, partitions=listed), 1 + len(listed))
        return FetchResponse(session_id=session_id, responses=topics.finish())


def stops_early(part: ReplicaPartition, found: PartitionRead) -> bool:
    """Whether the read of a partition with records ended before its last record."""
    return isinstance(part.handle, Partition) and ends_early(part.handle, found)


def read_ahead_done(part: ReplicaPartition, outcome: Outcome) -> None:
    """The bytes of a partition are in memory, or cannot be read: the next visit reads again."""
    part.cancel = None
    part.ahead = outcome
    part.changed()
