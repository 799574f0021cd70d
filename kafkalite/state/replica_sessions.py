"""Fetch sessions of replicas: a partition marks the sessions of its followers, and fetches visit what is marked.

A pure machine. Invariants:
1. Every change of a partition's log end, high watermark, log start, ISR, role or leader epoch marks the partition in
   each session that has it. A fetch visits what it names and what is marked; the others have nothing to send.
2. A partition stays marked while there is something to send: records, an error, a diverging epoch. So a follower that
   could not use a response receives it again without naming the partition. Offsets alone are sent once. It also stays
   marked while the follower is not in the ISR, which only a recorded fetch can change.
3. A fetch that visits a partition renews the time at which the follower was caught up. The others have the follower's
   log end at the leader's: `log_end_moved` renews them with the time of the last fetch, before the lag is evaluated.
4. Sessions are neither refused nor evicted for those of clients. A replica has at most `SESSIONS_MAX`, of one broker
   epoch: the first fetch of a later registration closes those of the earlier ones.
5. A session ends with the connection of its last request, as in `fetch_sessions`.

A waiting fetch is completed by a mark of the log end and of what invalidates its partitions, and when this broker
begins to lead others. A high watermark waits for the next response, unless consumers read from this follower: then the
fetch is completed soon.

Source: FetchSession.java (KIP-227) and Partition.scala of Apache Kafka 3.9, whose fetches visit all partitions.
"""

from collections.abc import Callable, Hashable
from typing import Protocol

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.fetch_sessions import (
    EPOCH_INITIAL,
    SESSION_NONE,
    PartitionKey,
    SessionPartition,
    next_epoch,
)
from kafkalite.state.isr.replica_progress import ReplicaProgress
from kafkalite.state.quotas.replication_quota import ReplicationQuota

SESSIONS_MAX = (
    64  # of one replica: num.replica.fetchers, each with and without flushes, and connections that are ending
)
UNKNOWN_MAX = 20_000  # partitions of a session that this broker does not lead
NEVER_MS = -(2**62)


class MarkedPartition(Protocol):
    """The part of a partition that its marks use."""

    replica_sessions: "tuple[ReplicaPartition, ...]"


class DelayedReplicaFetch(Protocol):
    """A fetch of a replica that waits."""

    def wake(self, *, urgent: bool) -> None:
        """A partition has changed; `urgent`: a response is due even without records."""

    def wake_soon(self) -> None:
        """A high watermark has risen that consumers of the follower wait for."""


class ReplicaPartition(SessionPartition):
    """One partition of a replica's session, which is the mark that the partition calls.

    Attributes:
        session: that has it.
        progress: of the follower, with the leader; only used while `at_end`.
        at_end: the last fetch was recorded, and was at the leader's log end.
        read_until_ms: until this time consumers are expected to read from the follower.
        cancel: ends the job that reads its bytes ahead; None = no job.
        ahead: the outcome of such a job, for the next visit.
    """

    __slots__ = ("ahead", "at_end", "cancel", "progress", "read_until_ms", "session")

    def __init__(self, session: "ReplicaSession", topic: str, topic_id: bytes, partition: int) -> None:
        super().__init__(topic, topic_id, partition)
        self.session = session
        self.progress: ReplicaProgress | None = None
        self.at_end = False
        self.read_until_ms = NEVER_MS
        self.cancel: Callable[[], None] | None = None
        self.ahead: object | None = None

    # Marks, called by the partition.

    def log_end_moved(self) -> None:
        """Records were written. Called before the leader evaluates the lag of its followers."""
        session = self.session
        self.renew(session.fetched_ms)
        session.marked[self] = None
        if session.waiting is not None:
            session.waiting.wake(urgent=False)
        else:
            session.missed = True

    def epoch_begins(self) -> None:
        """The progress begins with a new leader epoch: the fetches before it are not renewed."""
        self.at_end = False

    def high_watermark_moved(self) -> None:
        """The high watermark is another one."""
        session = self.session
        session.marked[self] = None
        if session.waiting is not None and self.is_read(session.fetched_ms):
            session.waiting.wake_soon()

    def visit_next(self) -> None:
        """Retention, which each replica has itself, has moved the log start, or the ISR is another one."""
        self.session.marked[self] = None

    def changed(self) -> None:
        """The role, the leader epoch or an error is another one, or records were deleted by a request."""
        self.session.marked[self] = None
        self.session.answer_next()

    # Where it is attached.

    def attach(self, partition: MarkedPartition) -> None:
        """Let a partition mark it from now on."""
        if self.handle is partition:
            return
        self.detach()
        self.handle = partition
        others = partition.replica_sessions
        own = [other.read_until_ms for other in others if other.session.replica_id == self.session.replica_id]
        self.read_until_ms = max([self.read_until_ms, *own])
        partition.replica_sessions = (*others, self)
        self.session.attached += 1

    def detach(self) -> None:
        """Let no partition mark it, and end its job."""
        partition: MarkedPartition | None = self.handle  # type: ignore[assignment]
        self.handle = None
        self.renew(self.session.fetched_ms)
        if partition is not None:
            self.session.attached -= 1
            partition.replica_sessions = tuple(mark for mark in partition.replica_sessions if mark is not self)
        cancel, self.cancel, self.ahead = self.cancel, None, None
        if cancel is not None:
            cancel()

    def renew(self, fetched_ms: int) -> None:
        """Let the leader know the fetches since the last recorded one. Later ones may not be at its log end.

        `fetched_ms`: when the last of these fetches was received.
        """
        if self.at_end and self.progress is not None:
            self.progress.renew(fetched_ms)
        self.at_end = False

    def is_read(self, now_ms: int) -> bool:
        """Whether consumers are expected to read from the follower."""
        return now_ms < self.read_until_ms


ReplicaPartitions = dict[PartitionKey, ReplicaPartition]


class ReplicaSession:
    """The partitions that a follower fetches over one connection.

    Arguments:
        replica_id, broker_epoch: of the follower; epoch -1 = not sent.
        by_id: its requests name topics by id.
        owner: the connection of the last request.
        now_ms: monotonic time.

    Attributes:
        id: 0 until it is open, and for a fetch without a session.
        epoch: of the next request.
        fetched_ms, previous_ms: when the last fetch was received, and the one before it.
        marked: the partitions that the next response may contain, in the order of reading.
        waiting: the fetch that waits, or None.
        missed: since `take_marked`, a partition has changed while no fetch waited.
        urgent: the next fetch does not wait.
        attached: number of partitions that mark this session.
    """

    __slots__ = (
        "attached",
        "broker_epoch",
        "by_id",
        "epoch",
        "fetched_ms",
        "id",
        "marked",
        "missed",
        "owner",
        "partitions",
        "previous_ms",
        "replica_id",
        "urgent",
        "waiting",
    )

    def __init__(self, replica_id: int, broker_epoch: int, by_id: bool, owner: Hashable, now_ms: int) -> None:
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.by_id = by_id
        self.owner = owner
        self.id = SESSION_NONE
        self.epoch = EPOCH_INITIAL
        self.fetched_ms = self.previous_ms = now_ms
        self.partitions: ReplicaPartitions = {}
        self.marked: dict[ReplicaPartition, None] = {}
        self.waiting: DelayedReplicaFetch | None = None
        self.missed = False
        self.urgent = False
        self.attached = 0

    @property
    def has_too_many_unknown(self) -> bool:
        """Whether it has more partitions than allowed that this broker does not lead: only those bound its memory."""
        return len(self.partitions) - self.attached > UNKNOWN_MAX

    def name(self, topic: str, topic_id: bytes, index: int) -> ReplicaPartition:
        """Return the partition `index` that a request names by `topic` or `topic_id`, new or known, and mark it."""
        key = (topic_id if self.by_id else topic, index)
        part = self.partitions.get(key)
        if part is None:
            part = self.partitions[key] = ReplicaPartition(self, topic, topic_id, index)
        part.renew(self.previous_ms)
        self.marked[part] = None
        return part

    def forget(self, key: PartitionKey) -> None:
        """Remove a partition; an unknown one is ignored."""
        part = self.partitions.pop(key, None)
        if part is not None:
            part.renew(self.previous_ms)
            part.detach()
            self.marked.pop(part, None)

    def answer_next(self) -> None:
        """Answer the fetch that waits, or the next one, without waiting for records."""
        if self.waiting is not None:
            self.waiting.wake(urgent=True)
        else:
            self.missed = self.urgent = True

    def take_marked(self) -> list[ReplicaPartition]:
        """Return the marked partitions, which are not marked any more."""
        marked, self.marked, self.missed = list(self.marked), {}, False
        return marked


class ReplicaSessions:
    """The sessions of all replicas.

    Arguments:
        new_id: draws an unused session id.
        free: called with the partitions of each session that has ended; it detaches each of them.
        quota: of the bytes that throttled replicas receive.

    Attributes:
        bytes_out: bytes of records in all responses.
    """

    def __init__(
        self, new_id: Callable[[], int], free: Callable[[ReplicaPartitions], object], quota: ReplicationQuota
    ) -> None:
        self.bytes_out = 0
        self.quota = quota
        self._new_id = new_id
        self._free = free
        self._sessions: dict[int, ReplicaSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: int) -> bool:
        """Whether an id is used."""
        return session_id in self._sessions

    def resume(self, session_id: int, epoch: int, session: ReplicaSession) -> ReplicaSession | KafkaErrorCode:
        """Find the session that an incremental request continues, or the error code of the response.

        Arguments:
            session_id, epoch: of the request.
            session: replica, broker epoch, naming, connection and time of the request.
        """
        known = self._sessions.get(session_id)
        if known is None or (known.replica_id, known.broker_epoch) != (session.replica_id, session.broker_epoch):
            return KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if known.epoch != epoch:
            return KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH
        if known.by_id != session.by_id:
            return KafkaErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        known.previous_ms, known.fetched_ms = known.fetched_ms, session.fetched_ms
        known.owner = session.owner
        known.epoch = next_epoch(epoch)
        self._sessions[session_id] = self._sessions.pop(session_id)
        return known

    def open(self, session: ReplicaSession) -> None:
        """Open a session with the partitions of a full request."""
        same = [each for each in self._sessions.values() if each.replica_id == session.replica_id]
        old = [each for each in same if each.broker_epoch < session.broker_epoch]
        kept = [each for each in same if each.broker_epoch >= session.broker_epoch]
        for each in [*old, *kept[: max(0, len(kept) + 1 - SESSIONS_MAX)]]:
            self.close(each.id)
        session.id = self._new_id()
        session.epoch = 1
        self._sessions[session.id] = session

    def is_open(self, session: ReplicaSession) -> bool:
        """Whether a session was opened and not closed."""
        return self._sessions.get(session.id) is session

    def close(self, session_id: int) -> None:
        """Close a session; an unknown id is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.free(session)

    def free(self, session: ReplicaSession) -> None:
        """Detach the partitions of a session that is closed, or was never opened."""
        session.marked.clear()
        self._free(session.partitions)

    def answer_waiting(self) -> None:
        """This broker leads other partitions: their followers fetch them once their waiting fetches are answered."""
        for session in self._sessions.values():
            session.answer_next()

    def disconnected(self, owner: Hashable) -> None:
        """Close the sessions of a closed connection."""
        for session in [each for each in self._sessions.values() if each.owner == owner]:
            self.close(session.id)
