"""Which partitions a fetch speaks of: all that it names, or those of its session with the changes it names
(KIP-227).
"""

from collections.abc import Iterator

from kafkalite.cluster.partition import Partition
from kafkalite.cluster.reads import Read
from kafkalite.cluster.replicas import Replicas
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.server.call import Call
from kafkalite.state.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    SESSION_NONE,
    FetchSessions,
    PartitionKey,
    Session,
    SessionPartition,
)

TOPIC_ID_SINCE = 13


class FetchContext:
    """The partitions of one fetch in the order in which they are served, and what its answer must hold.

    Arguments:
        session: the resumed session, whose answers hold only news; None for a full fetch.
        session_id: what the answer tells the client (0 = no session).
    """

    __slots__ = ("_by_id", "_replicas", "_session", "partitions", "session_id")

    def __init__(
        self,
        replicas: Replicas,
        by_id: bool,
        partitions: list[SessionPartition],
        session: Session | None,
        session_id: int,
    ) -> None:
        self._replicas = replicas
        self._by_id = by_id
        self._session = session
        self.partitions = partitions
        self.session_id = session_id

    def resolve(self, part: SessionPartition) -> Partition | int:
        """The hosted partition (kept in the session), or a Kafka error code. A dead one is looked up again."""
        partition = part.handle
        if isinstance(partition, Partition) and not partition.error:
            return partition
        found = self._replicas.partition(part.topic, part.topic_id, part.partition, by_id=self._by_id)
        part.handle = found if isinstance(found, Partition) else None
        return found

    def news(self, reads: list[Read]) -> Iterator[tuple[SessionPartition, Read]]:
        """The partitions that the answer names; the session notes what it was told."""
        for part, found in zip(self.partitions, reads, strict=True):
            high_watermark, log_start = found.high_watermark, found.log_start_offset
            urgent = found.diverging is not None
            if self._session is None or part.has_news(found.error, found.size, high_watermark, log_start, urgent):
                part.told(found.error, high_watermark, log_start)
                if self._session is not None and found.size:
                    self._session.served(session_key(part, self._by_id))
                yield part, found


def open_context(call: Call, request: FetchRequest) -> FetchContext | int:
    """Find what the request speaks of, or the error code of its session."""
    by_id = call.version >= TOPIC_ID_SINCE
    sessions, now_ms = call.broker.fetch_sessions, int(call.broker.clock.monotonic() * 1000)
    if request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
        return full_context(call, request, by_id, sessions, now_ms)
    session = sessions.resume(request.session_id, request.session_epoch, by_id, now_ms)
    if isinstance(session, int):
        return session
    update(session, request, by_id)
    if not sessions.recount(session):
        return KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND  # the client begins anew, without a session
    if not session.partitions:
        sessions.close(session.id)
        return FetchContext(call.broker.replicas, by_id, [], None, SESSION_NONE)
    return FetchContext(call.broker.replicas, by_id, list(session.partitions.values()), session, session.id)


def full_context(call: Call, request: FetchRequest, by_id: bool, sessions: FetchSessions, now_ms: int) -> FetchContext:
    """A fetch that names all its partitions; with epoch 0 it also asks for a session."""
    if request.session_id != SESSION_NONE:
        sessions.close(request.session_id)
    named = list(named_partitions(request, by_id))
    wanted = request.session_epoch == EPOCH_INITIAL
    session_id = sessions.open(named, by_id, now_ms) if wanted else SESSION_NONE
    return FetchContext(call.broker.replicas, by_id, [part for _key, part in named], None, session_id)


def update(session: Session, request: FetchRequest, by_id: bool) -> None:
    """Apply what an incremental request adds, changes and forgets."""
    for key, part in named_partitions(request, by_id):
        known = session.partitions.setdefault(key, part)
        if known is not part:
            known.ask(
                part.fetch_offset,
                part.max_bytes,
                part.current_leader_epoch,
                part.last_fetched_epoch,
                part.log_start_offset,
            )
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            session.partitions.pop((topic.topic_id if by_id else topic.topic, partition), None)


def named_partitions(request: FetchRequest, by_id: bool) -> Iterator[tuple[PartitionKey, SessionPartition]]:
    for topic in request.topics:
        for asked in topic.partitions:
            part = SessionPartition(topic.topic, topic.topic_id, asked.partition)
            part.ask(
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
                asked.log_start_offset,
            )
            yield session_key(part, by_id), part


def session_key(part: SessionPartition, by_id: bool) -> PartitionKey:
    return (part.topic_id if by_id else part.topic, part.partition)
