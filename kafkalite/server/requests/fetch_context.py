"""Determines the partitions of a fetch: all that it names, or those of its session with the named changes (KIP-227)."""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, TypeVar

from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.reads import PartitionRead
from kafkalite.cluster.replicas import Replicas
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.server.requests.call import PartitionCall
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    SESSION_NONE,
    FetchSession,
    PartitionKey,
    SessionPartition,
)

if TYPE_CHECKING:  # imported with an authorizer
    from kafkalite.server.requests.authorization.decision_cache import KeptAuthorization

NO_EPOCH = -1
TOPIC_ID_SINCE = 13
PIECE = 4  # partitions per step of a sliced fetch, of some microseconds each
QUIET = PartitionRead()  # of a partition of a session without news

Named = tuple[PartitionKey, SessionPartition]
T = TypeVar("T")


class FetchContext:
    """The partitions of one fetch in the order of reading, and what its response must contain.

    Arguments:
        replicas: the hosted partitions.
        by_id: the request names topics by id.
        partitions: in the order of reading.
        session: the resumed session, whose responses have only changed partitions; None for a full fetch.
        session_id: of the response (0 = no session).
    """

    __slots__ = ("_by_id", "_replicas", "_session", "partitions", "session_id")

    def __init__(
        self,
        replicas: Replicas,
        by_id: bool,
        partitions: list[SessionPartition],
        session: FetchSession | None,
        session_id: int,
    ) -> None:
        self._replicas = replicas
        self._by_id = by_id
        self._session = session
        self.partitions = partitions
        self.session_id = session_id

    @property
    def is_incremental(self) -> bool:
        """Whether the request continues a session."""
        return self._session is not None

    def resolve(self, part: SessionPartition) -> Partition | KafkaErrorCode:
        """Return the hosted partition (cached in the session, unless it failed), or a Kafka error code."""
        partition = part.handle
        if isinstance(partition, Partition) and not partition.error:
            return partition
        found = self._replicas.partition(part.topic, part.topic_id, part.partition, by_id=self._by_id)
        part.handle = found if isinstance(found, Partition) else None
        return found

    def is_quiet(self, part: SessionPartition, partition: Partition) -> bool:
        """Return whether a read of a session's partition would find neither records nor a change.

        At each fetch of a large session nearly all its partitions are quiet; this check costs a fifth of a read.
        """
        return (
            self._session is not None
            and part.fetch_offset == part.high_watermark_sent == partition.high_watermark
            and part.log_start_sent == partition.log_start_offset
            and part.last_fetched_epoch < 0
            and part.current_leader_epoch in (-1, partition.leader_epoch)
            and not partition.error
        )

    def has_moved(self, reads: list[PartitionRead]) -> bool:
        """Return whether a partition has records that its read did not find; `reads`: of all partitions, in order."""
        for part, found in zip(self.partitions, reads, strict=True):
            seen = part.high_watermark_sent if found is QUIET else found.high_watermark
            partition = part.handle
            if not isinstance(partition, Partition):
                continue
            if partition.high_watermark != seen or (partition.error and partition.check_reader(NO_EPOCH)):
                return True
        return False

    def news(self, reads: list[PartitionRead]) -> Iterator[tuple[SessionPartition, PartitionRead]]:
        """Yield the partitions of the response, and update the session with what is sent."""
        for part, found in zip(self.partitions, reads, strict=True):
            if found is QUIET:
                continue
            high_watermark, log_start = found.high_watermark, found.log_start_offset
            urgent = found.diverging is not None or found.preferred_replica >= 0
            if self._session is None or part.has_news(found.error, found.size, high_watermark, log_start, urgent):
                part.update_response(found.error, high_watermark, log_start)
                if self._session is not None and found.size:
                    self._session.served(session_key(part, self._by_id))
                yield part, found


class AuthorizedFetchContext(FetchContext):
    """A fetch of a broker with an authorizer. Only partitions that the client may read are cached in a session.
    `fetch_context` makes it.
    """

    __slots__ = ("_allowed", "_authorization", "_call")

    def authorize(self, call: PartitionCall, authorization: "KeptAuthorization") -> None:
        """Set what the client may do. Partitions of a session are resolved again after a change of the ACLs."""
        self._call = call
        self._authorization = authorization
        self._allowed: set[str] | None = None  # topics that the client may read; looked up for the first partition
        session = self._session
        if session is not None and session.acl_version != authorization.version:
            session.acl_version = authorization.version
            for part in self.partitions:
                part.handle = None

    def resolve(self, part: SessionPartition) -> Partition | KafkaErrorCode:
        partition = part.handle
        if isinstance(partition, Partition) and not partition.error:
            return partition
        found = self._replicas.partition(part.topic, part.topic_id, part.partition, by_id=self._by_id)
        if isinstance(found, Partition):
            if self._may_read(found.topic):
                part.handle = found
                return found
        else:
            topic = self._name_of(part)
            if topic is None or self._may_read(topic):
                part.handle = None
                return found
        part.handle = None
        return KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _may_read(self, topic: str) -> bool:
        allowed = self._allowed
        if allowed is None:
            allowed = self._allowed = self._authorization.kept(AclOperation.READ, AclResourceType.TOPIC)
        return topic in allowed or self._authorization.allows(AclOperation.READ, AclResourceType.TOPIC, topic)

    def _name_of(self, part: SessionPartition) -> str | None:
        """Return the name of the topic of a partition; None for an unknown id."""
        if not self._by_id:
            return part.topic
        topic = self._call.context.image.topics_by_id.get(part.topic_id)
        return None if topic is None else topic.name


def fetch_context(
    call: PartitionCall, by_id: bool, partitions: list[SessionPartition], session: FetchSession | None, session_id: int
) -> FetchContext:
    """Return the context of a fetch.

    Arguments:
        call: of the request.
        by_id: the request names topics by id.
        partitions: in the order of reading.
        session: the resumed session; None for a full fetch.
        session_id: of the response (0 = no session).
    """
    authorization = call.authorization
    if authorization is None:
        return FetchContext(call.context.replicas, by_id, partitions, session, session_id)
    context = AuthorizedFetchContext(call.context.replicas, by_id, partitions, session, session_id)
    context.authorize(call, authorization)
    return context


def resume_session(call: PartitionCall, request: FetchRequest) -> FetchSession | KafkaErrorCode | None:
    """Return the session that an incremental request continues, an error code, or None for a request without one."""
    if request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
        return None
    by_id = call.version >= TOPIC_ID_SINCE
    sessions = call.context.fetch_sessions
    connection = call.connection
    return sessions.resume(
        request.session_id, request.session_epoch, by_id, connection, now_ms(call), connection.principal
    )


def open_context(
    call: PartitionCall, request: FetchRequest, session: FetchSession | None
) -> FetchContext | KafkaErrorCode:
    """Return the partitions of a request that names few, or the error code of its session.

    Arguments:
        call: the request's call.
        request: the request.
        session: the session that the request continues (see `resume_session`).
    """
    by_id = call.version >= TOPIC_ID_SINCE
    named: list[Named] = []
    for topic in request.topics:
        named += named_partitions(topic, topic.partitions, by_id)
    if session is None:
        opened = new_session(call, request)
        if opened is not None:
            update(opened, named)
        return full_context(call, request, named, opened)
    update(session, named)
    for forgotten in request.forgotten_topics_data:
        forget(session, forgotten, forgotten.partitions)
    return resumed_context(call, session)


def open_in_steps(
    call: PartitionCall, request: FetchRequest, session: FetchSession | None
) -> Generator[None, None, FetchContext | KafkaErrorCode]:
    """Do as `open_context` in steps, for a request with many partitions."""
    by_id = call.version >= TOPIC_ID_SINCE
    named: list[Named] = []
    for topic in request.topics:
        for piece in pieces(topic.partitions):
            named += named_partitions(topic, piece, by_id)
            yield
    changed = new_session(call, request) if session is None else session
    if changed is not None:
        for some in pieces(named):
            update(changed, some)
            yield
    if session is None:
        return full_context(call, request, named, changed)
    for forgotten in request.forgotten_topics_data:
        for indexes in pieces(forgotten.partitions):
            forget(session, forgotten, indexes)
            yield
    return resumed_context(call, session)


def pieces(items: list[T]) -> Iterator[list[T]]:
    """Split a list into pieces of one step of a sliced fetch."""
    return (items[at : at + PIECE] for at in range(0, len(items), PIECE))


def now_ms(call: PartitionCall) -> int:
    """Return the time of fetch sessions."""
    return int(call.context.clock.monotonic() * 1000)


def new_session(call: PartitionCall, request: FetchRequest) -> FetchSession | None:
    """Return the session, without partitions, that a full request asks for: one with epoch 0."""
    if request.session_epoch != EPOCH_INITIAL:
        return None
    connection = call.connection
    return FetchSession(call.version >= TOPIC_ID_SINCE, connection, now_ms(call), connection.principal)


def full_context(
    call: PartitionCall, request: FetchRequest, named: list[Named], session: FetchSession | None
) -> FetchContext:
    """Return the partitions of a request that names all of them, and open the session that it asks for, if any."""
    sessions = call.context.fetch_sessions
    if request.session_id != SESSION_NONE:
        sessions.end(request.session_id, call.connection.principal)
    session_id = SESSION_NONE if session is None else sessions.open(session)
    by_id = call.version >= TOPIC_ID_SINCE
    return fetch_context(call, by_id, [part for _key, part in named], None, session_id)


def resumed_context(call: PartitionCall, session: FetchSession) -> FetchContext | KafkaErrorCode:
    """Return the partitions of a changed session; an error code if the session was closed."""
    sessions = call.context.fetch_sessions
    if not sessions.recount(session):
        return KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND  # the client continues without a session
    if not session.partitions:
        sessions.close(session.id)
        return fetch_context(call, session.by_id, [], None, SESSION_NONE)
    return fetch_context(call, session.by_id, list(session.partitions.values()), session, session.id)


def update(session: FetchSession, named: list[Named]) -> None:
    """Add partitions to a session, or change their parameters."""
    for key, part in named:
        session.update(key, part)


def forget(session: FetchSession, topic: FetchRequest.ForgottenTopic, indexes: list[int]) -> None:
    """Remove partitions of a topic from a session."""
    name = topic.topic_id if session.by_id else topic.topic
    for index in indexes:
        session.forget((name, index))


def named_partitions(
    topic: FetchRequest.FetchTopic, partitions: list[FetchRequest.FetchTopic.FetchPartition], by_id: bool
) -> list[Named]:
    """Convert partitions of a topic, in the order of the request."""
    named = []
    for asked in partitions:
        part = SessionPartition(topic.topic, topic.topic_id, asked.partition)
        part.update_request(
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )
        named.append((session_key(part, by_id), part))
    return named


def session_key(part: SessionPartition, by_id: bool) -> PartitionKey:
    return (part.topic_id if by_id else part.topic, part.partition)
