"""The sessions of the served tree.

1. A session begins and ends with a transaction, so it outlives the process: a server that replays the journal continues
   it with its full timeout. Its id is the zxid of its beginning.
2. A session expires when its client has sent nothing for its timeout. One timer, at the nearest deadline, finds the
   expired ones. If it fires late, this process did not run, and what clients have sent is still unread: all sessions
   get their full timeout again.
3. An end of a session that could not be written, because the disk is full, is tried again.
4. A second connection of a session closes the first.
5. Connections of clients without a session leave CONTINUING_MIN connections to clients that continue theirs: at the
   limit, one that has not sent its first frame makes space. Of the sessions at their limit, one without a connection
   and without ephemeral nodes makes space.
6. Descriptors are shared with logs: a connection whose descriptor reaches `refuse_from` is closed.
"""

import hmac
import logging
import sys

from kafkalite.callbacks import call_each
from kafkalite.clock import Clock, Outcome, Random, Then, Timer
from kafkalite.coordination.served.connection import ServedSession, ServerConnection
from kafkalite.coordination.transactions import JournaledTree
from kafkalite.coordination.tree import SessionRecord
from kafkalite.coordination.zookeeper import records
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.slicing import Slicer

LOGGER = logging.getLogger("kafkalite.coordination")

TIMEOUT_MIN_MS, TIMEOUT_MAX_MS = 400, 600_000
CONNECTIONS_MAX, CONTINUING_MIN = 1024, 64
SESSIONS_MAX = 10_000
OPEN_BYTES_MAX = 64 * 1024 * 1024
LATE_S = 0.2
RETRY_S = 1.0


class TreeServer:
    """The server; it listens nowhere by itself: `accept` is the factory of the protocol of each connection.

    Arguments:
        tree: the tree with its journal; its sessions continue.
        clock: timers of sessions.
        random: draws passwords.
        refuse_from: connections with this descriptor or a higher one are closed at once; None = no limit.

    Attributes:
        sessions: by id.
        slicer: processes the requests of all connections in turn.
        log: lines that clients can cause, at most one per minute and cause.
        open_bytes: memory of the responses that wait for the journal, about.
    """

    def __init__(self, tree: JournaledTree, clock: Clock, random: Random, refuse_from: int | None = None) -> None:
        self.tree = tree
        self.clock = clock
        self.log = RateLimitedLog(LOGGER, clock)
        self.slicer = Slicer(clock, self.log.raised)
        self.open_bytes = 0
        self._random = random
        self._refuse_from = sys.maxsize if refuse_from is None else refuse_from
        self._connections: dict[ServerConnection, None] = {}  # in the order of their beginnings
        self._timer: Timer | None = None
        self._timer_at = 0.0
        now = clock.monotonic()
        self.sessions = {
            session: ServedSession(session, record, now + record.timeout_ms / 1000)
            for session, record in tree.tree.session_records.items()
        }
        self._arm()

    def accept(self) -> ServerConnection:
        """Return the protocol of a new connection."""
        return ServerConnection(self)

    def close(self) -> None:
        """End all connections and the timer; the sessions continue with the next server of the journal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.slicer.close()
        for connection in list(self._connections):
            connection.transport.abort()

    # Of connections.

    def register(self, connection: ServerConnection) -> bool:
        """Add a connection; returns False above the limits."""
        if len(self._connections) >= CONNECTIONS_MAX and not self._end_silent_connection():
            text = "a client is refused: the coordination service has %d connections"
            self.log(logging.WARNING, "connections", text, CONNECTIONS_MAX)
            return False
        socket = connection.transport.get_extra_info("socket")
        if socket is not None and socket.fileno() >= self._refuse_from:
            text = "a client is refused: the process has no descriptor left that is not reserved for logs"
            self.log(logging.WARNING, "descriptors", text)
            return False
        self._connections[connection] = None
        return True

    def _end_silent_connection(self) -> bool:
        """End the oldest connection that has not sent its first frame; returns whether there is one."""
        silent = next((each for each in self._connections if each.is_silent), None)
        if silent is None:
            return False
        del self._connections[silent]
        silent.transport.abort()
        return True

    def unregister(self, connection: ServerConnection) -> None:
        """A connection has ended."""
        self._connections.pop(connection, None)
        if connection.session is not None and connection.session.connection is connection:
            self._detach(connection.session)

    def charge(self, size: int) -> None:
        """Count the bytes of an open response, or no longer (negative); connections that waited for them continue."""
        was_full = self.has_too_many_responses
        self.open_bytes += size
        if was_full and not self.has_too_many_responses:
            call_each(ServerConnection.resume, list(self._connections))

    @property
    def has_too_many_responses(self) -> bool:
        """Whether no request is processed until open responses have left."""
        return self.open_bytes >= OPEN_BYTES_MAX

    def connect(self, connection: ServerConnection, request: records.ConnectRequest) -> None:
        """Begin or continue a session."""
        if request.last_zxid > self.tree.tree.zxid:
            self.log(
                logging.WARNING, "zxid",
                "a client has seen transaction %d, this server's last one is %d: it belongs to another tree, or the "
                "journal is an older copy", request.last_zxid, self.tree.tree.zxid,
            )  # fmt: skip
            connection.transport.close()
        elif request.session_id == 0:
            self._open(connection, request.timeout_ms)
        else:
            session = self.sessions.get(request.session_id)
            if session is None or not hmac.compare_digest(session.record.password, request.password or b""):
                connection.refuse()
            else:
                self._attach(session, connection)

    def touch(self, session: ServedSession) -> None:
        """The client of a session has sent something."""
        session.deadline = self.clock.monotonic() + session.record.timeout_ms / 1000

    def end(self, session: ServedSession, then: Then) -> None:
        """End a session; `then` receives the outcome of the transaction."""
        if self.sessions.pop(session.session_id, None) is None:
            self.tree.read(lambda: None, then)
            return

        def retry_later() -> None:
            session.connection = None
            session.deadline = self.clock.monotonic() + RETRY_S
            self.sessions[session.session_id] = session
            self._arm()

        def ended(outcome: Outcome) -> None:
            if outcome.error is not None and self.tree.failure is None:  # undone: the disk is full
                retry_later()
            then(outcome)

        try:
            self.tree.close_session(session.session_id, ended)
        except BaseException:
            if session.session_id in self.tree.tree.sessions:  # undone
                retry_later()
            raise

    def _open(self, connection: ServerConnection, asked_ms: int) -> None:
        if len(self._connections) > CONNECTIONS_MAX - CONTINUING_MIN:
            text = "a new session is refused: of %d connections, %d are for sessions that continue"
            self.log(logging.WARNING, "new sessions", text, CONNECTIONS_MAX, CONTINUING_MIN)
            connection.transport.close()
            return
        if len(self.sessions) >= SESSIONS_MAX and not self._end_unused_session():
            text = "a new session is refused: the coordination service has %d sessions"
            self.log(logging.WARNING, "sessions", text, SESSIONS_MAX)
            connection.transport.close()
            return
        timeout_ms = max(TIMEOUT_MIN_MS, min(TIMEOUT_MAX_MS, asked_ms))
        record = SessionRecord(self._random.bytes(16), timeout_ms)

        def opened(outcome: Outcome) -> None:
            if outcome.error is not None:
                connection.transport.close()
                return
            session = ServedSession(outcome.value, record, self.clock.monotonic() + timeout_ms / 1000)
            self.sessions[session.session_id] = session
            if not connection.transport.is_closing():
                self._attach(session, connection)
            self._arm()

        self.tree.open_session(record, opened)

    def _end_unused_session(self) -> bool:
        """End a session without a connection and without ephemeral nodes; returns whether there is one."""
        owned = self.tree.tree.sessions
        unused = [each for each in self.sessions.values() if each.connection is None and not owned[each.session_id]]
        if unused:
            self.expire(min(unused, key=lambda session: session.deadline))
        return bool(unused)

    def _attach(self, session: ServedSession, connection: ServerConnection) -> None:
        if session.connection is not None:
            earlier = session.connection
            self._detach(session)
            earlier.transport.close()
        session.connection = connection
        self.touch(session)
        connection.greet(session)

    def _detach(self, session: ServedSession) -> None:
        session.connection = None
        self.tree.tree.drop_watches(session.session_id)

    # Expiry.

    def _arm(self) -> None:
        """Set the timer to the nearest deadline, unless it fires before."""
        if not self.sessions:
            return
        at = min(session.deadline for session in self.sessions.values())
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.clock.call_at(at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self.clock.monotonic()
        if now - self._timer_at > LATE_S:
            for session in self.sessions.values():
                self.touch(session)
        try:
            call_each(self.expire, [each for each in self.sessions.values() if each.deadline <= now])
        finally:
            self._arm()

    def expire(self, session: ServedSession, then: Then | None = None) -> None:
        """End a session whose client has sent nothing for its timeout, and its connection."""
        connection = session.connection
        self.end(session, then or ignore)
        if connection is not None:
            connection.transport.close()


def ignore(outcome: Outcome) -> None:
    """Ignore the outcome of an expiry: one that could not be written is tried again."""
