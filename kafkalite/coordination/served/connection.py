"""The server's side of one connection of ZooKeeper's protocol.

1. Responses and events leave in the order of the journal: a response that shows a change leaves when it is durable.
   Pings are answered at once, as a slow disk must not end sessions.
2. Requests are not processed while too many responses are open or unsent; the client cannot make the server buffer more
   than `UNSENT_BYTES_MAX`. All open responses of the server have a limit, too (`TreeServer.open_bytes`).
3. Watches belong to the session, and end with its connection.
4. Connections take turns, one request each, within the time budget of a loop iteration (`TreeServer.slicer`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from kafkalite.clock import Clock, Outcome, Then, Timer
from kafkalite.coordination.errors import (
    AuthenticationError,
    ConnectionLossError,
    CoordinationError,
    SessionExpiredError,
    UnimplementedError,
)
from kafkalite.coordination.served import requests
from kafkalite.coordination.transactions import JournaledTree
from kafkalite.coordination.tree import Result, SessionRecord, WatchEvent
from kafkalite.coordination.zookeeper import protocol, records
from kafkalite.coordination.zookeeper.codec import ProtocolError
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.slicing import Slicer, Steps

OPEN_RESPONSES_MAX = 4096
PAUSE_BYTES = 1024 * 1024
UNSENT_BYTES_MAX = 64 * 1024 * 1024
FIRST_FRAME_S = 10.0
REFUSED = records.ConnectResponse(0, 0, 0, bytes(16), False)
OF_THE_WHOLE_MULTI = (ConnectionLossError, SessionExpiredError)


class ServedSession:
    """A session: its record in the journal, when it expires, and its connection."""

    __slots__ = ("connection", "deadline", "record", "session_id")

    def __init__(self, session_id: int, record: SessionRecord, deadline: float) -> None:
        self.session_id = session_id
        self.record = record
        self.deadline = deadline
        self.connection: ServerConnection | None = None


class SessionServer(Protocol):
    """The part of the server that a connection uses; `TreeServer` describes it."""

    tree: JournaledTree
    clock: Clock
    slicer: Slicer
    log: RateLimitedLog

    @property
    def has_too_many_responses(self) -> bool: ...
    def register(self, connection: "ServerConnection") -> bool: ...
    def unregister(self, connection: "ServerConnection") -> None: ...
    def connect(self, connection: "ServerConnection", request: records.ConnectRequest) -> None: ...
    def touch(self, session: ServedSession) -> None: ...
    def end(self, session: ServedSession, then: Then) -> None: ...
    def charge(self, size: int) -> None: ...


class ServerConnection(asyncio.Protocol):
    """One connection; created by `TreeServer.accept`."""

    def __init__(self, server: SessionServer) -> None:
        self.session: ServedSession | None = None
        self.transport: asyncio.Transport
        self._server = server
        self._tree = server.tree
        self._frames = protocol.FrameReader(protocol.REQUEST_BYTES_MAX)
        self._received: deque[bytes] = deque()  # frames that are not processed yet
        self._open = 0  # requests without a response
        self._greeting = False  # the first frame has arrived
        self._unsent = False  # the transport has too many bytes
        self._paused = False
        self._processing = False  # a slice processes the frames
        self._timer: Timer | None = None

    # Of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection exists."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=PAUSE_BYTES)
        if not self._server.register(self):
            self.transport.abort()
            return
        clock = self._server.clock
        self._timer = clock.call_at(clock.monotonic() + FIRST_FRAME_S, self.transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended; its session continues until its timeout."""
        self._cancel_timer()
        self._received.clear()
        self._server.unregister(self)

    def data_received(self, data: bytes) -> None:
        """Process frames."""
        if self.session is not None:
            self._server.touch(self.session)
        try:
            self._received.extend(self._frames.feed(data))
        except ProtocolError as error:
            self._reject(error)
        self._process()

    def pause_writing(self) -> None:
        """The transport has too many bytes."""
        self._unsent = True

    def resume_writing(self) -> None:
        """The transport has sent them."""
        self._unsent = False
        self.resume()

    @property
    def is_silent(self) -> bool:
        """Whether the client has not sent its first frame."""
        return not self._greeting

    def resume(self) -> None:
        """Process the frames that have waited, once there is much to do."""
        if not self._paused or self._is_full() or self._open > OPEN_RESPONSES_MAX // 2 or self.transport.is_closing():
            return
        self._paused = False
        self.transport.resume_reading()
        self._process()

    def _process(self) -> None:
        if not self._processing:
            self._processing = True
            self._server.slicer.run(self._steps(), self._processed)

    def _steps(self) -> Steps:
        """Process one frame in each step."""
        while self._received and not self.transport.is_closing() and not self._is_full():
            self._frame(self._received.popleft())
            if self._received:
                yield

    def _processed(self, outcome: Outcome) -> None:
        """Wait for the next frames, or until the responses have left."""
        self._processing = False
        if isinstance(outcome.error, ProtocolError):
            self._reject(outcome.error)
        elif outcome.error is not None:
            self.transport.abort()
            raise outcome.error
        elif not self._paused and self._is_full() and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def _is_full(self) -> bool:
        connecting = self._greeting and self.session is None  # its session is being written
        return self._unsent or connecting or self._open >= OPEN_RESPONSES_MAX or self._server.has_too_many_responses

    def _reject(self, error: ProtocolError) -> None:
        self._server.log(logging.WARNING, "rejected", "a client of the coordination service is disconnected: %s", error)
        self.transport.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The session.

    def _frame(self, frame: bytes) -> None:
        if self.session is not None:
            self._request(self.session, frame)
            return
        self._greeting = True
        self._cancel_timer()
        self._server.connect(self, protocol.decode_connect(frame))

    def greet(self, session: ServedSession) -> None:
        """Continue with this session."""
        self.session = session
        record = session.record
        response = records.ConnectResponse(0, record.timeout_ms, session.session_id, record.password, False)
        self._write(protocol.encode_connected(response))
        self.resume()

    def refuse(self) -> None:
        """The session does not exist."""
        self._write(protocol.encode_connected(REFUSED))
        self.transport.close()

    # Requests.

    def _request(self, session: ServedSession, frame: bytes) -> None:
        try:
            header, request = protocol.decode_request(frame)
        except protocol.UnknownOpcodeError as error:
            self._fail(error.header, UnimplementedError(detail=str(error)))
            return
        if isinstance(request, records.PingRequest):
            self._respond(header, self._tree.durable_zxid, Outcome(records.EmptyResponse()))
        elif isinstance(request, records.CloseRequest):
            self._close(header, session)
        elif isinstance(request, records.MultiRequest):
            self._multi(header, request, session.session_id)
        elif type(request) in OPERATIONS:
            self._change(header, request, session.session_id)
        elif isinstance(request, records.SetWatchesRequest):
            self._set_watches(header, request, session.session_id)
        else:
            self._read(header, lambda: self._execute(request, session.session_id))

    def _execute(self, request: Any, session_id: int) -> Any:
        if isinstance(request, records.AuthRequest):
            raise AuthenticationError(detail="the brokers of one machine have no identities")
        read = requests.READS.get(type(request))
        if read is None:
            raise UnimplementedError(detail=type(request).__name__)
        watch = self.send_event if getattr(request, "watch", False) else None
        if watch is not None:
            requests.check_watches(self._tree.tree, session_id)
        return read(self._tree.tree, request, watch, session_id)

    def _read(self, header: records.RequestHeader, read: Callable[[], Any]) -> None:
        zxid = self._tree.tree.zxid
        self._open += 1
        size = 0

        def charged_read() -> Any:  # executed again where a full disk undoes what it may have shown
            nonlocal size
            self._server.charge(-size)
            size = 0
            response = read()
            size = requests.bytes_of(response)
            self._server.charge(size)
            return response

        def answer(outcome: Outcome) -> None:
            self._server.charge(-size)
            self._answer(header, zxid, outcome)

        self._tree.read(charged_read, answer)

    def _fail(self, header: records.RequestHeader, error: CoordinationError) -> None:
        """Respond with an error, in the order of the responses."""

        def read() -> None:
            raise error

        self._read(header, read)

    def _change(self, header: records.RequestHeader, request: records.OperationRequest, session_id: int) -> None:
        try:
            operation = requests.operation_of(request)
            requests.check_space(self._tree.tree, (operation,))
        except CoordinationError as error:
            self._fail(header, error)
            return
        zxid = self._tree.tree.zxid
        self._open += 1

        def response(results: list[Any]) -> Any:
            nonlocal zxid
            zxid = self._tree.tree.zxid
            return requests.response_of(request, results[0])

        self._tree.change((operation,), session_id, response, lambda outcome: self._answer(header, zxid, outcome))

    def _multi(self, header: records.RequestHeader, request: records.MultiRequest, session_id: int) -> None:
        def answer(zxid: int, outcome: Outcome) -> None:
            error = outcome.error
            if isinstance(error, CoordinationError) and not isinstance(error, OF_THE_WHOLE_MULTI):
                outcome = Outcome(requests.multi_failure(request, error))
            self._answer(header, zxid, outcome)

        zxid = self._tree.tree.zxid
        self._open += 1
        try:
            operations = requests.operations_of(request.operations)
            requests.check_space(self._tree.tree, operations)
        except CoordinationError as error:
            failed = Outcome(error=error)
            self._tree.read(lambda: None, lambda outcome: answer(zxid, failed if outcome.error is None else outcome))
            return

        def response(results: list[Any]) -> Any:
            nonlocal zxid
            zxid = self._tree.tree.zxid
            return requests.multi_response(request, cast("list[Result]", results))

        self._tree.change(operations, session_id, response, lambda outcome: answer(zxid, outcome))

    def _set_watches(self, header: records.RequestHeader, request: records.SetWatchesRequest, session_id: int) -> None:
        zxid = self._tree.tree.zxid
        self._open += 1

        def restored(outcome: Outcome) -> None:
            for event in outcome.value or ():
                self.send_event(event)
            self._answer(header, zxid, outcome if outcome.error else Outcome(records.EmptyResponse()))

        self._tree.read(lambda: requests.set_watches(self._tree.tree, request, self.send_event, session_id), restored)

    def _close(self, header: records.RequestHeader, session: ServedSession) -> None:
        zxid = self._tree.tree.zxid + 1
        self._open += 1

        def closed(outcome: Outcome) -> None:
            self._answer(header, zxid, outcome if outcome.error else Outcome(records.EmptyResponse()))
            self.transport.close()

        self._server.end(session, closed)

    # Responses.

    def _answer(self, header: records.RequestHeader, zxid: int, outcome: Outcome) -> None:
        self._open -= 1
        if not self.transport.is_closing():  # else nothing is encoded
            self._respond(header, zxid, outcome)
        self.resume()

    def _respond(self, header: records.RequestHeader, zxid: int, outcome: Outcome) -> None:
        code = 0
        if isinstance(outcome.error, CoordinationError):
            code = outcome.error.code
        elif outcome.error is not None:
            self.transport.abort()
            raise outcome.error
        if isinstance(outcome.error, ConnectionLossError):
            zxid = self._tree.durable_zxid  # the change was undone
        reply = records.ReplyHeader(header.xid, zxid, code)
        self._write(protocol.encode_response(reply, header.opcode, outcome.value))
        if isinstance(outcome.error, AuthenticationError):
            self.transport.close()

    def send_event(self, event: WatchEvent) -> None:
        """Send an event; the watches of an ended connection are ignored."""
        self._write(protocol.encode_event(event.kind, event.path))

    def _write(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(data)
        if self._unsent and self.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            text = "a client of the coordination service reads too slowly and is disconnected"
            self._server.log(logging.WARNING, "slow", text)
            self.transport.abort()


OPERATIONS = (
    records.CreateRequest,
    records.Create2Request,
    records.DeleteRequest,
    records.SetDataRequest,
)
"""Requests that change the tree by one operation."""
