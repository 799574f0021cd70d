"""The client half of a ZooKeeper session without I/O: calls in, bytes out; bytes in, outcomes out.

`SessionCore` knows no socket, clock or event loop. Its driver calls `connected`, `received` and `disconnected`, writes
`take_outgoing()`, and closes the connection once `state` is ENDED. The driver is `connection`: it decides about pings,
time limits, attempts to connect and back-off.

Invariants:
1. Each call ends once, with `then(outcome)`. Outcomes, events and changes of the state are delivered in one order, that
   of the connection; what a callback causes comes behind what was already to be delivered.
2. After a break no change is sent again: those without a response fail with ConnectionLossError. Reads are sent again.
3. A connection is usable (CONNECTED) after the responses to the requests that restore the session: credentials, watches
   with the last zxid before the break, and a sync. They are sent together, so nothing waits for something that only
   the next connection can bring. The sync lets reads show every change that an earlier connection has sent.
4. A response that refuses the session, and any other session id, end the session.
5. Whatever a server sends, `received` raises ProtocolError and no other exception, but for those of callbacks.
6. At most `in_flight_max` calls are without a response; the others wait, in the order of the calls.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kafkalite.callbacks import call_each
from kafkalite.clock import Outcome, Then
from kafkalite.coordination.errors import (
    AuthenticationError,
    BadArgumentsError,
    ConnectionLossError,
    CoordinationError,
    SessionExpiredError,
)
from kafkalite.coordination.tree import WatchEvent
from kafkalite.coordination.zookeeper import protocol
from kafkalite.coordination.zookeeper.codec import ProtocolError
from kafkalite.coordination.zookeeper.records import (
    AuthRequest,
    CloseRequest,
    ConnectRequest,
    PingRequest,
    SyncRequest,
)
from kafkalite.coordination.zookeeper.watches import Watches

Finish = Callable[[int, Any], Outcome]
"""Converts (error code, response or None) to an outcome. Raises ProtocolError."""

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""Largest accepted response: the names of a node's children have no other limit."""

XID_MAX = 0x7FFFFFFF


class BehindError(ProtocolError):
    """The server would continue this session, but in an older state than the session has seen."""


class SessionKey(NamedTuple):
    """The right to continue a session: its id, and the secret that the server has drawn for it."""

    session_id: int
    password: bytes


NEW_SESSION = SessionKey(0, bytes(16))


class State(enum.Enum):
    """The states of a session, which begins as SUSPENDED."""

    SUSPENDED = "suspended"
    CONNECTED = "connected"
    CLOSING = "closing"
    ENDED = "ended"


USABLE = (State.CONNECTED, State.CLOSING)


class Call:
    """A request without a response. Raises BadArgumentsError: it does not fit, or is too large.

    Attributes:
        xid, opcode: of the request.
        path: the node it is about, without the chroot; "" = several, or none.
        frame: its bytes.
        finish, then: produce and receive its outcome.
        repeatable: it may be sent again.
    """

    __slots__ = ("finish", "frame", "opcode", "path", "repeatable", "then", "xid")

    def __init__(
        self, xid: int, request: Any, path: str, finish: Finish, then: Then, *, repeatable: bool = False
    ) -> None:
        self.xid = xid
        self.path = path
        self.opcode = protocol.OPCODES[type(request)]
        try:
            self.frame = protocol.encode_request(xid, request)
        except ProtocolError as error:
            raise BadArgumentsError(path, detail=str(error)) from error
        if len(self.frame) > protocol.REQUEST_BYTES_MAX:
            size = f"the request has {len(self.frame)} bytes, the limit is {protocol.REQUEST_BYTES_MAX}"
            raise BadArgumentsError(path, detail=size)
        self.finish = finish
        self.then = then
        self.repeatable = repeatable


class SessionCore:
    """One session.

    Arguments:
        timeout_ms: the session timeout to ask for.
        key: of the session to continue; NEW_SESSION = none.
        chroot: path on the server of the session's root; "" = the server's root.
        digest: b"user:password" for the scheme "digest"; None = no authentication.
        in_flight_max: calls without a response; those that restore the session are not counted.
        on_established: called when a connection is usable, the first one, too.
        on_suspended: called when a usable connection ends.
        on_lost: called once with the error that ends the session; not after `close`.

    Attributes:
        key: of this session; NEW_SESSION before the first handshake.
        timeout_ms: the negotiated session timeout.
        last_zxid: of the last response.
        watches: of the reads that have returned.
    """

    def __init__(
        self,
        timeout_ms: int,
        key: SessionKey,
        chroot: str,
        digest: bytes | None,
        in_flight_max: int,
        on_established: Callable[[], object],
        on_suspended: Callable[[], object],
        on_lost: Callable[[CoordinationError], object],
    ) -> None:
        self.state = State.SUSPENDED
        self.key = key
        self.timeout_ms = timeout_ms
        self.last_zxid = 0
        self.watches = Watches(chroot)
        self._asked_timeout_ms = timeout_ms
        self._digest = digest
        self._in_flight_max = in_flight_max
        self._on_established = on_established
        self._on_suspended = on_suspended
        self._on_lost = on_lost
        self._xid = 0
        self._in_use = key != NEW_SESSION  # of an earlier process, or established
        self._greeted = False  # the server's first frame has arrived
        self._asks_only = False  # this connection does not continue the session
        self._frames = protocol.FrameReader(FRAME_BYTES_MAX)
        self._outgoing: list[bytes] = []
        self._open: deque[Call] = deque()  # sent; while suspended those that restore the session
        self._waiting: deque[Call] = deque()  # reads of a suspended session, calls above the limit of a connected one
        self._undelivered: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._delivering = False

    # Calls.

    def call(self, request: Any, path: str, finish: Finish, then: Then, *, repeatable: bool) -> None:
        """Send a request; `deliver` calls `then(finish(error, response))` once.

        Arguments:
            request: a record of a request.
            path: the node for errors, "" = several.
            finish: converts the response.
            then: receives the outcome.
            repeatable: the request is a read.

        Raises BadArgumentsError: a value does not fit, or the request is too large.
        """
        if self.state in (State.CLOSING, State.ENDED):
            self.complete(then, Outcome(error=SessionExpiredError()))
        elif self.state is State.SUSPENDED and not repeatable:
            self.complete(then, Outcome(error=ConnectionLossError(path, detail="not sent, the session is suspended")))
        else:
            self._waiting.append(Call(self._next_xid(), request, path, finish, then, repeatable=repeatable))
            self._send_waiting()

    def close(self, then: Then) -> None:
        """End the session. Without a connection only this side ends it, and the outcome is a ConnectionLossError."""
        if self.state is State.CONNECTED:
            self.state = State.CLOSING
            self._waiting.append(Call(self._next_xid(), CloseRequest(), "", lambda error, response: Outcome(), then))
            self._send_waiting()
        elif self.state is State.SUSPENDED:
            detail = "there is no connection, the server ends the session after its timeout"
            self._end(SessionExpiredError())
            self.complete(then, Outcome(error=ConnectionLossError(detail=detail)))
        else:
            self.complete(then, Outcome())

    @property
    def open_calls(self) -> int:
        """Number of calls without an outcome."""
        return len(self._open) + len(self._waiting)

    # The driver.

    def connected(self, *, asks_only: bool = False) -> None:
        """A connection exists: begin the handshake.

        asks_only: ask whether the session exists, without its last zxid; `received` raises BehindError if it does. A
            server that has seen less than the session closes the connection otherwise, whether the session exists or
            not.
        """
        self._asks_only = asks_only
        last_zxid = 0 if asks_only else self.last_zxid
        request = ConnectRequest(0, last_zxid, self._asked_timeout_ms, *self.key, False)
        self._outgoing.append(protocol.encode_connect(request))

    def ping(self) -> None:
        """Keep the session, and let the server send something."""
        self._outgoing.append(protocol.encode_request(protocol.PING_XID, PingRequest()))

    def take_outgoing(self) -> bytes:
        """Return the bytes to write."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    @property
    def greeted(self) -> bool:
        """Whether the handshake of this connection is complete."""
        return self._greeted

    def received(self, data: bytes) -> None:
        """Process bytes. Raises ProtocolError: call `disconnected`. What is to be delivered waits for `deliver`."""
        for frame in self._frames.feed(data):
            if self.state is State.ENDED:
                return
            if self._greeted:
                self._respond(frame)
            else:
                self._greet(frame)

    def disconnected(self, reason: str) -> None:
        """The connection has ended, or never was. What is to be delivered waits for `deliver`."""
        state, sent, waiting = self.state, self._open, self._waiting
        self._greeted, self._open = False, deque()
        self._frames = protocol.FrameReader(FRAME_BYTES_MAX)
        self._outgoing.clear()
        if state is State.CLOSING:
            self.state = State.ENDED
        elif state is State.CONNECTED:
            self.state = State.SUSPENDED
            self.complete(self._on_suspended)
        if state in (State.CLOSING, State.CONNECTED):
            self._waiting = deque()
            for call in (*sent, *waiting):
                if state is State.CONNECTED and call.repeatable:
                    self._waiting.append(call)
                else:
                    self.complete(call.then, Outcome(error=ConnectionLossError(call.path, detail=reason)))

    def reject(self, error: CoordinationError) -> None:
        """End a session that no server accepts. What is to be delivered waits for `deliver`."""
        self._lose(error)

    def complete(self, callback: Callable[..., object], *args: object) -> None:
        """Let `deliver` call the callback, after everything that is to be delivered already."""
        self._undelivered.append((callback, args))

    def deliver(self) -> None:
        """Call the callbacks; an exception of one is raised after the last. Within a callback it does nothing."""
        if self._delivering:
            return
        self._delivering = True
        try:
            call_each(lambda each: each[0](*each[1]), self._take_undelivered())
        finally:
            self._delivering = False

    # The server's frames.

    def _greet(self, frame: bytes) -> None:
        response = protocol.decode_connected(frame)
        session_id = self.key.session_id
        if session_id == 0 and (response.timeout_ms <= 0 or response.session_id == 0):
            raise ProtocolError("the server has refused a new session")
        if response.timeout_ms <= 0 or session_id not in (0, response.session_id):
            if self._in_use:
                self._lose(SessionExpiredError(detail=f"session {session_id:#x}"))
            else:  # it expired before it was established: the next connection begins another one
                self.key = NEW_SESSION
            return
        if self._asks_only:
            raise BehindError(f"session {session_id:#x} exists, but the server may be behind it")
        self._greeted = True
        self.key = SessionKey(response.session_id, response.password)
        self.timeout_ms = response.timeout_ms
        if self._digest is not None:
            self._restore(AuthRequest(0, "digest", self._digest), self._authenticated, protocol.AUTH_XID)
        for request in self.watches.requests(self.last_zxid):
            self._restore(request, self._checked)
        self._restore(SyncRequest("/"), self._restored)

    def _respond(self, frame: bytes) -> None:
        header = protocol.decode_header(frame)
        if header.xid == protocol.EVENT_XID:
            self._fire(protocol.decode_event(frame))
        elif header.xid != protocol.PING_XID:
            if not self._open or self._open[0].xid != header.xid:
                raise ProtocolError(f"a response to the request {header.xid}, which is not the oldest")
            call = self._open[0]
            response = None if header.error else protocol.decode_response(frame, call.opcode)
            outcome = call.finish(header.error, response)
            if header.zxid > 0:
                self.last_zxid = header.zxid
            if self._open:  # `finish` has not ended the session
                self._open.popleft()
                self.complete(call.then, outcome)
                self._send_waiting()
            if call.opcode == protocol.OPCODES[CloseRequest]:
                self.state = State.ENDED

    def _fire(self, event: Any) -> None:
        kind = protocol.EVENT_KINDS.get(event.type)
        if kind is None:  # of the session: the server closes the connection, and its next response says the same
            return
        path, watchers = self.watches.fire(kind, event.path)
        for watcher in watchers:
            self.complete(watcher, WatchEvent(kind, path))

    # Restoring the session after a handshake.

    def _restore(self, request: Any, finish: Finish, xid: int | None = None) -> None:
        self._send(Call(xid or self._next_xid(), request, "", finish, lambda outcome: None))

    def _authenticated(self, error: int, response: Any) -> Outcome:
        if error:
            self._lose(AuthenticationError(detail=f"error {error}"))
        return Outcome()

    def _checked(self, error: int, response: Any) -> Outcome:
        if error:
            raise ProtocolError(f"error {error} where watches are set again")
        return Outcome()

    def _restored(self, error: int, response: Any) -> Outcome:
        if error:
            raise ProtocolError(f"error {error} of a sync")
        self.state = State.CONNECTED
        self._in_use = True
        self.complete(self._on_established)
        return Outcome()

    # Ends.

    def _lose(self, error: CoordinationError) -> None:
        self.complete(self._on_lost, error)
        self._end(error)

    def _end(self, error: CoordinationError) -> None:
        """End a suspended session: the reads that wait fail."""
        self.state = State.ENDED
        self.watches.clear()
        self._open.clear()
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            self.complete(call.then, Outcome(error=error))

    def _send_waiting(self) -> None:
        while self._waiting and len(self._open) < self._in_flight_max and self.state in USABLE:
            self._send(self._waiting.popleft())

    def _send(self, call: Call) -> None:
        self._open.append(call)
        self._outgoing.append(call.frame)

    def _next_xid(self) -> int:
        self._xid = self._xid % XID_MAX + 1
        return self._xid

    def _take_undelivered(self) -> Iterator[tuple[Callable[..., object], tuple[object, ...]]]:
        while self._undelivered:
            yield self._undelivered.popleft()
