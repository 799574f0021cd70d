"""Incremental fetch sessions (KIP-227): the partitions that a client fetches, and their last response.

A pure machine: it has sessions, epochs and eviction; of a partition it stores only an opaque `handle`. Invariants:
1. A session's epoch grows by one with each request; any other epoch is rejected, and the client starts a new session.
2. An incremental response contains only partitions with changes; a partition with an error counts as changed.
3. A partition whose records were returned moves to the end of the session: the next response begins with others.
4. A session can be evicted if it was idle for `EVICTION_MS`, or if it is that old and smaller than the new one.
5. All sessions together hold at most `PARTITIONS_MAX` partitions: a new session that does not fit is not opened, and
   a session that grows beyond the limit is closed.
   Stricter than Kafka, which counts sessions only; a client without one names all its partitions each time.
Source: FetchSession.java of Apache Kafka, KIP-227.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kafkalite.errors import KafkaErrorCode

EVICTION_MS = 120_000
PARTITIONS_MAX = 250_000  # of all sessions; each takes some 300 bytes
SESSION_NONE = 0
EPOCH_INITIAL = 0
EPOCH_FINAL = -1
EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[object, int]


@dataclass(slots=True, eq=False)
class SessionPartition:
    """One partition of a fetch session: the request of the client and the last response.

    Arguments:
        topic: topic name ("" if the request has topic ids).
        topic_id: topic id, 16 bytes (zeros if the request has topic names).
        partition: partition index.
    """

    topic: str
    topic_id: bytes
    partition: int
    handle: object | None = None
    high_watermark_sent: int = -1
    log_start_sent: int = -1
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 0

    def update_request(
        self,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        log_start_offset: int,
    ) -> None:
        """Store the fields of the newest request for this partition."""
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset

    def has_news(
        self, error: int, records_bytes: int, high_watermark: int, log_start_offset: int, urgent: bool
    ) -> bool:
        """Return whether an incremental response must contain this partition."""
        return bool(
            error
            or records_bytes
            or urgent
            or high_watermark != self.high_watermark_sent
            or log_start_offset != self.log_start_sent
        )

    def update_response(self, error: int, high_watermark: int, log_start_offset: int) -> None:
        """Store the offsets of the response; after an error the next response contains this partition again."""
        self.high_watermark_sent = -1 if error else high_watermark
        self.log_start_sent = log_start_offset


class FetchSession:
    """One client's fetch: its partitions in the order in which they are served."""

    __slots__ = ("by_id", "counted", "created_ms", "epoch", "id", "last_used_ms", "partitions")

    def __init__(self, session_id: int, by_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.epoch = EPOCH_INITIAL
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.counted = 0  # of its partitions, in those of all sessions

    def served(self, key: PartitionKey) -> None:
        """Move a partition that returned records to the end (invariant 3), unless a pipelined request removed it."""
        part = self.partitions.pop(key, None)
        if part is not None:
            self.partitions[key] = part


class FetchSessions:
    """All sessions of a broker.

    Arguments:
        slots: how many sessions are kept (`max.incremental.fetch.session.cache.slots`).
        new_id: draws a positive int32, so that ids cannot be guessed from each other.
        partitions_max: of all sessions together.
    """

    def __init__(self, slots: int, new_id: Callable[[], int], partitions_max: int = PARTITIONS_MAX) -> None:
        self._slots = slots
        self._new_id = new_id
        self._partitions_max = partitions_max
        self._partitions = 0
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def resume(self, session_id: int, epoch: int, by_id: bool, now_ms: int) -> FetchSession | KafkaErrorCode:
        """Find the session that an incremental request continues, or the error code that the client must get."""
        session = self._sessions.get(session_id)
        if session is None:
            return KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return KafkaErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.last_used_ms = now_ms
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def open(self, partitions: Iterable[tuple[PartitionKey, SessionPartition]], by_id: bool, now_ms: int) -> int:
        """Open a session with the partitions of a full request; return its id, or 0 if the session does not fit."""
        kept = dict(partitions)
        if not kept or not self._make_room(len(kept), now_ms):
            return SESSION_NONE
        session = FetchSession(self._fresh_id(), by_id, now_ms)
        session.epoch = 1
        session.partitions = kept
        self._sessions[session.id] = session
        self.recount(session)
        return session.id

    def recount(self, session: FetchSession) -> bool:
        """Count the partitions that a session has now.

        Returns whether the session still exists: it is closed if it grew beyond the bound.
        """
        grown = len(session.partitions) - session.counted
        if grown:
            if self._sessions.get(session.id) is not session:  # closed while a request changed it in slices
                return False
            session.counted += grown
            self._partitions += grown
            if self._partitions > self._partitions_max:
                self.close(session.id)
                return False
        return True

    def close(self, session_id: int) -> None:
        """Close a session; an unknown id is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= session.counted

    def _fresh_id(self) -> int:
        while (session_id := self._new_id()) in self._sessions or session_id == SESSION_NONE:
            pass
        return session_id

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        allowed = self._partitions_max - partitions
        while self._partitions > allowed >= 0 and (idle := self._idle(now_ms)) is not None:
            self.close(idle.id)
        if self._partitions > allowed:
            return False
        if len(self._sessions) < self._slots:
            return True
        victim = self._idle(now_ms) or self._smaller(partitions, now_ms)
        if victim is None:
            return False
        self.close(victim.id)
        return True

    def _idle(self, now_ms: int) -> FetchSession | None:
        idlest = next(iter(self._sessions.values()), None)
        return idlest if idlest is not None and now_ms - idlest.last_used_ms > EVICTION_MS else None

    def _smaller(self, partitions: int, now_ms: int) -> FetchSession | None:
        old = [s for s in self._sessions.values() if now_ms - s.created_ms > EVICTION_MS]
        smallest = min(old, key=lambda s: len(s.partitions), default=None)
        return smallest if smallest is not None and len(smallest.partitions) < partitions else None
