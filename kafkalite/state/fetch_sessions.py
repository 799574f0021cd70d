"""Incremental fetch sessions (KIP-227): the partitions that a client fetches, and their last response.

A pure machine: it has sessions, epochs and eviction; of a partition it stores only an opaque `handle`. Invariants:
1. A session's epoch grows by one with each request; any other epoch is rejected, and the client starts a new session.
2. An incremental response contains only partitions with changes; a partition with an error counts as changed.
3. A partition whose records were returned moves to the end of the session: the next response begins with others.
4. A session belongs to the connection of its last request and ends with it: a client that still needs it gets
   FETCH_SESSION_ID_NOT_FOUND on its next connection and names its partitions again.
5. All sessions together take at most `bytes_max` bytes: a new session that does not fit is not opened, and a session
   that grows beyond the limit is closed. A client without a session names all its partitions each time.
6. A session belongs to the principal that opened it: for others it does not exist.
7. A principal may have a limit of sessions: a further one is not opened.
8. A session can be evicted if it was idle for `EVICTION_MS`; for a slot also if it is that old and its number of
   partitions has fewer binary digits than that of the new one. Finding one takes the same time for any number.

Kafka counts sessions only, keeps them until their slot is needed, and evicts the smallest old one for a larger one.
Source: FetchSession.java of Apache Kafka, KIP-227.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ANONYMOUS, Principal

if TYPE_CHECKING:
    from kafkalite.state.quotas.holdings import Holdings

EVICTION_MS = 120_000
PARTITION_BYTES = 360  # measured: the entry, its key, the numbers of the request and of the response
CHARACTER_BYTES = 4  # of a name that is not ASCII
SESSION_NONE = 0
EPOCH_INITIAL = 0
EPOCH_FINAL = -1
EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[object, int]
Partitions = dict[PartitionKey, "SessionPartition"]


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows one of this epoch in a session (FetchMetadata.java)."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


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

    @property
    def memory_bytes(self) -> int:
        """Memory of this partition in a session, in bytes; partitions may share the text of their name."""
        name = self.topic
        return PARTITION_BYTES + (len(name) if name.isascii() else CHARACTER_BYTES * len(name))

    def update_request(
        self,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        log_start_offset: int,
    ) -> None:
        """Store the fields of the newest request for this partition.

        Arguments:
            fetch_offset: of the next record.
            max_bytes: limit for this partition.
            current_leader_epoch: known to the client; -1 = not checked.
            last_fetched_epoch: of the last record that a follower has; -1 = none.
            log_start_offset: of a follower; -1 from a consumer.
        """
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset

    def has_news(
        self, error: int, records_bytes: int, high_watermark: int, log_start_offset: int, urgent: bool
    ) -> bool:
        """Return whether an incremental response must contain this partition.

        Arguments:
            error: code, 0 = none.
            records_bytes: size of the records in the response.
            high_watermark, log_start_offset: of the partition now.
            urgent: there is another reason to send it, such as a diverging epoch.
        """
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
    """One client's fetch: its partitions in the order in which they are served.

    Arguments:
        by_id: its requests name topics by id.
        owner: the connection of the last request.
        now_ms: monotonic time.
        principal: who opened it; None = a client without authentication.

    Attributes:
        acl_version: of the ACLs by which the partitions with a handle are authorised.
        memory_bytes: of the partitions; counted_bytes: those of them that all sessions together count.
        size_class: binary digits of the number of partitions, since `classed_ms`.
    """

    __slots__ = (
        "acl_version",
        "by_id",
        "classed_ms",
        "counted_bytes",
        "epoch",
        "id",
        "last_used_ms",
        "memory_bytes",
        "owner",
        "partitions",
        "principal",
        "size_class",
    )

    def __init__(self, by_id: bool, owner: Hashable, now_ms: int, principal: Principal | None = None) -> None:
        self.acl_version = -1
        self.principal = principal
        self.id = SESSION_NONE
        self.by_id = by_id
        self.owner = owner
        self.epoch = EPOCH_INITIAL
        self.classed_ms = self.last_used_ms = now_ms
        self.partitions: Partitions = {}
        self.memory_bytes = self.counted_bytes = self.size_class = 0

    def update(self, key: PartitionKey, part: SessionPartition) -> None:
        """Add a partition, or store the newest request for it."""
        known = self.partitions.setdefault(key, part)
        if known is part:
            self.memory_bytes += part.memory_bytes
        else:
            known.update_request(
                part.fetch_offset,
                part.max_bytes,
                part.current_leader_epoch,
                part.last_fetched_epoch,
                part.log_start_offset,
            )

    def forget(self, key: PartitionKey) -> None:
        """Remove a partition; an unknown one is ignored."""
        part = self.partitions.pop(key, None)
        if part is not None:
            self.memory_bytes -= part.memory_bytes

    def served(self, key: PartitionKey) -> None:
        """Move a partition that returned records to the end (invariant 3), unless a pipelined request removed it."""
        part = self.partitions.pop(key, None)
        if part is not None:
            self.partitions[key] = part


class SessionsOfOwners(Protocol):
    """Other sessions that end with their connections."""

    def __contains__(self, session_id: int) -> bool:
        """Whether an id is used."""

    def disconnected(self, owner: Hashable) -> None:
        """Close the sessions of a closed connection."""


def never(_owner: Hashable) -> bool:
    """No connection is exempt."""
    return False


class FetchSessions:
    """All sessions of the clients of a broker.

    Arguments:
        slots: how many sessions are kept (`max.incremental.fetch.session.cache.slots`).
        bytes_max: memory of all sessions (`kafkalite.fetch.session.memory.max.bytes`).
        new_id: draws a positive int32, so that ids cannot be guessed from each other.
        free: called with the partitions of each session that has ended, which may be many.

    Attributes:
        of_replicas: the sessions of replicas (`replica_sessions`), None before the first one.
        holdings: the sessions of each principal, None = a principal has no limit.
    """

    def __init__(
        self,
        slots: int,
        bytes_max: int,
        new_id: Callable[[], int],
        free: Callable[[Partitions], object] = dict.clear,
    ) -> None:
        self._slots = slots
        self._bytes_max = bytes_max
        self._new_id = new_id
        self._free = free
        self.memory_bytes = 0
        self.of_replicas: SessionsOfOwners | None = None
        self.holdings: Holdings[int] | None = None
        self._is_exempt: Callable[[Any], bool] = never
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._by_owner: dict[Hashable, dict[int, FetchSession]] = {}
        self._by_size: list[dict[int, FetchSession]] = []  # by size class, the longest in its class first

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def limit(self, holdings: "Holdings[int] | None", is_exempt: Callable[[Any], bool]) -> None:
        """Limit the sessions of each principal.

        Arguments:
            holdings: counts them; None = there is no limit.
            is_exempt: whether the sessions that a connection opens are not counted.
        """
        self.holdings, self._is_exempt = holdings, is_exempt

    def resume(
        self,
        session_id: int,
        epoch: int,
        by_id: bool,
        owner: Hashable,
        now_ms: int,
        principal: Principal | None = None,
    ) -> FetchSession | KafkaErrorCode:
        """Find the session that an incremental request continues, or the error code that the client must get.

        Arguments:
            session_id, epoch: of the request.
            by_id: the request names topics by id.
            owner: the connection of the request.
            now_ms: monotonic time.
            principal: who sends the request; the sessions of others do not exist for it.
        """
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            return KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return KafkaErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.last_used_ms = now_ms
        session.epoch = next_epoch(epoch)
        self._sessions[session_id] = self._sessions.pop(session_id)
        if session.owner != owner:
            self._disown(session)
            session.owner = owner
            self._by_owner.setdefault(owner, {})[session_id] = session
        return session

    def open(self, session: FetchSession) -> int:
        """Open a new session with the partitions of a full request; return its id, or 0 if the session does not fit."""
        if not session.partitions or not self._is_admitted(session) or not self._evict_for(session):
            self._free(session.partitions)
            return SESSION_NONE
        session.id = self.new_id()
        session.epoch = 1
        if self.holdings is not None and not self._is_exempt(session.owner):
            self.holdings.acquire(session.principal or ANONYMOUS, session.id)
        self._sessions[session.id] = session
        self._by_owner.setdefault(session.owner, {})[session.id] = session
        self.recount(session)
        return session.id

    def recount(self, session: FetchSession) -> bool:
        """Count the partitions that a session has now.

        Returns whether the session still exists: it is closed if it grew beyond the bound.
        """
        if self._sessions.get(session.id) is not session:  # closed while a request changed it in slices
            return False
        grown = session.memory_bytes - session.counted_bytes
        if grown:
            session.counted_bytes += grown
            self.memory_bytes += grown
            if self.memory_bytes > self._bytes_max:
                self.close(session.id)
                return False
            self._classify(session)
        return True

    def end(self, session_id: int, principal: Principal | None) -> None:
        """Close a session at the request of a principal; an unknown id, and a session of another one, are ignored."""
        session = self._sessions.get(session_id)
        if session is not None and session.principal == principal:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        """Close a session; an unknown id is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.memory_bytes -= session.counted_bytes
            if self.holdings is not None:
                self.holdings.release(session_id)
            self._disown(session)
            self._by_size[session.size_class].pop(session_id)
            self._free(session.partitions)

    def disconnected(self, owner: Hashable) -> None:
        """Close the sessions of a closed connection."""
        for session_id in list(self._by_owner.get(owner, ())):
            self.close(session_id)
        if self.of_replicas is not None:
            self.of_replicas.disconnected(owner)

    def new_id(self) -> int:
        """Draw an id that no session has."""
        while self._is_used(session_id := self._new_id()):
            pass
        return session_id

    def _is_admitted(self, session: FetchSession) -> bool:
        if self.holdings is None or self._is_exempt(session.owner):
            return True
        return self.holdings.has_space(session.principal or ANONYMOUS)

    def _is_used(self, session_id: int) -> bool:
        if session_id in self._sessions or session_id == SESSION_NONE:
            return True
        return self.of_replicas is not None and session_id in self.of_replicas

    def _disown(self, session: FetchSession) -> None:
        own = self._by_owner[session.owner]
        del own[session.id]
        if not own:
            del self._by_owner[session.owner]

    def _classify(self, session: FetchSession) -> None:
        size_class = len(session.partitions).bit_length()
        if size_class != session.size_class:
            while len(self._by_size) <= size_class:
                self._by_size.append({})
            self._by_size[session.size_class].pop(session.id, None)
            self._by_size[size_class][session.id] = session
            session.size_class = size_class
            session.classed_ms = session.last_used_ms

    def _evict_for(self, session: FetchSession) -> bool:
        """Evict sessions until a new one fits; return whether it does."""
        now_ms = session.last_used_ms
        allowed = self._bytes_max - session.memory_bytes
        while self.memory_bytes > allowed >= 0 and (idle := self._idle(now_ms)) is not None:
            self.close(idle.id)
        if self.memory_bytes > allowed:
            return False
        if len(self._sessions) < self._slots:
            return True
        victim = self._idle(now_ms) or self._smaller(len(session.partitions), now_ms)
        if victim is None:
            return False
        self.close(victim.id)
        return True

    def _idle(self, now_ms: int) -> FetchSession | None:
        idlest = next(iter(self._sessions.values()), None)
        return idlest if idlest is not None and now_ms - idlest.last_used_ms > EVICTION_MS else None

    def _smaller(self, partitions: int, now_ms: int) -> FetchSession | None:
        for smaller in self._by_size[: partitions.bit_length()]:
            oldest = next(iter(smaller.values()), None)
            if oldest is not None and now_ms - oldest.classed_ms > EVICTION_MS:
                return oldest
        return None
