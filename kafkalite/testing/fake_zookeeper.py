"""A server of ZooKeeper's protocol over the pure tree, in the loop of a test: one process, no disk, sessions on demand.

It behaves as one ZooKeeper server (its ZooKeeperServer.java and DataTree.java), and records what clients send. Faults
come from `tests.kit.zookeeper_proxy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from kafkalite.clock import Clock, Timer
from kafkalite.coordination.errors import AuthenticationError, CoordinationError
from kafkalite.coordination.served import requests
from kafkalite.coordination.tree import (
    Tree,
    WatchEvent,
)
from kafkalite.coordination.zookeeper import protocol, records

TIMEOUT_MIN_MS, TIMEOUT_MAX_MS = 400, 60_000
AUTH_FAILED, NOT_TRIED = -115, -2


class FakeSession:
    """A session: its password, timeout and connection, and when it expires."""

    def __init__(self, session_id: int, password: bytes, timeout_ms: int, host: str) -> None:
        self.host = host
        self.session_id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.connection: FakeConnection | None = None
        self.timer: Timer | None = None


class FakeZooKeeper:
    """The server.

    Arguments:
        clock: times of nodes, and timers of sessions.

    Attributes:
        connects: the first frames of all connections.
        requests: all later ones.
        passwords: those of digest that are accepted; None = all.
        expiring: whether sessions expire; False = as while ZooKeeper elects a leader.
        moved: sessions that another host than the one that began them has continued.
        restores: how often an older tree was restored: the passwords of sessions with the same id differ.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tree = Tree()
        self.sessions: dict[int, FakeSession] = {}
        self.connects: list[records.ConnectRequest] = []
        self.requests: list[Any] = []
        self.passwords: set[bytes] | None = None
        self.expiring = True
        self.moved: list[tuple[int, str, str]] = []
        self.restores = 0

    def accept(self) -> FakeConnection:
        """Return the protocol of a new connection."""
        return FakeConnection(self)

    def open_session(self, asked_ms: int, host: str = "") -> FakeSession:
        session_id = self.tree.open_session()
        password = (self.restores << 64 | session_id).to_bytes(16, "big")
        session = FakeSession(session_id, password, max(TIMEOUT_MIN_MS, min(TIMEOUT_MAX_MS, asked_ms)), host)
        self.sessions[session_id] = session
        return session

    def touch(self, session: FakeSession) -> None:
        """The session's client has sent something."""
        if session.timer is not None:
            session.timer.cancel()
        if not self.expiring:
            return
        at = self.clock.monotonic() + session.timeout_ms / 1000
        session.timer = self.clock.call_at(at, self.expire, session.session_id)

    def expire(self, session_id: int) -> None:
        """End a session and its connection."""
        session = self.sessions.pop(session_id)
        if session.timer is not None:
            session.timer.cancel()
        self.tree.close_session(session_id)
        self.fire()
        if session.connection is not None:
            session.connection.transport.close()

    def fire(self) -> None:
        """Send the events of the last change."""
        for watcher, event in self.tree.take_fired():
            watcher(event)


class FakeConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: FakeZooKeeper) -> None:
        self.server = server
        self.session: FakeSession | None = None
        self.transport: asyncio.Transport
        self._frames = protocol.FrameReader(protocol.REQUEST_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self.session is not None and self.session.connection is self:
            self.session.connection = None

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if self.transport.is_closing():
                return
            if self.session is None:
                self._connect(protocol.decode_connect(frame))
            else:
                self._request(self.session, frame)

    # Sessions.

    def _connect(self, request: records.ConnectRequest) -> None:
        server = self.server
        server.connects.append(request)
        if request.last_zxid > server.tree.zxid:
            self.transport.close()  # the client has seen more than this server has
            return
        if request.session_id == 0:
            self.session = server.open_session(request.timeout_ms, self._host())
        else:
            session = server.sessions.get(request.session_id)
            if session is None or session.password != request.password:
                self.transport.write(protocol.encode_connected(records.ConnectResponse(0, 0, 0, bytes(16), False)))
                self.transport.close()
                return
            if session.connection is not None:
                session.connection.transport.close()
            if session.host != self._host():
                server.moved.append((session.session_id, session.host, self._host()))
            self.session = session
        self.session.connection = self
        server.touch(self.session)
        session = self.session
        response = records.ConnectResponse(0, session.timeout_ms, session.session_id, session.password, False)
        self.transport.write(protocol.encode_connected(response))

    def _host(self) -> str:
        """The host of the client, "" where the transport does not name it."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    # Requests.

    def _request(self, session: FakeSession, frame: bytes) -> None:
        if session.session_id not in self.server.sessions:
            return
        self.server.touch(session)
        header, request = protocol.decode_request(frame)
        self.server.requests.append(request)
        try:
            response, error = HANDLERS[type(request)](self, request), 0
        except CoordinationError as failure:
            response, error = None, failure.code
        self.server.fire()
        reply = records.ReplyHeader(header.xid, self.server.tree.zxid, error)
        self.transport.write(protocol.encode_response(reply, header.opcode, response))
        if error == AUTH_FAILED or isinstance(request, records.CloseRequest):
            self.transport.close()

    def _auth(self, request: records.AuthRequest) -> Any:
        if self.server.passwords is not None and request.auth not in self.server.passwords:
            raise AuthenticationError
        return records.EmptyResponse()

    def _close(self, request: records.CloseRequest) -> Any:
        assert self.session is not None
        self.session.connection = None
        self.server.expire(self.session.session_id)
        return records.EmptyResponse()

    def _read(self, request: Any) -> Any:
        assert self.session is not None
        watch = self.send_event if request.watch else None
        return requests.READS[type(request)](self.server.tree, request, watch, self.session.session_id)

    def _children(self, request: records.GetChildren2Request) -> Any:
        names, stat = self._read(request)
        return records.GetChildren2Response(tuple(reversed(names)), stat)  # ZooKeeper's order is that of a hash set

    def _change(self, request: records.OperationRequest) -> Any:
        return requests.response_of(request, self._multi_results((request,))[0])

    def _multi(self, request: records.MultiRequest) -> Any:
        try:
            return requests.multi_response(request, self._multi_results(request.operations))
        except CoordinationError as failure:
            return requests.multi_failure(request, failure)

    def _multi_results(self, changes: tuple[records.OperationRequest, ...]) -> list[Any]:
        assert self.session is not None
        operations = requests.operations_of(changes)
        return self.server.tree.multi(operations, self.session.session_id, self.server.clock.wall_ms())

    def _set_watches(self, request: records.SetWatchesRequest) -> Any:
        assert self.session is not None
        for event in requests.set_watches(self.server.tree, request, self.send_event, self.session.session_id):
            self.send_event(event)
        return records.EmptyResponse()

    # Watches.

    def send_event(self, event: WatchEvent) -> None:
        """Send an event; the watches of an ended connection are ignored."""
        self.transport.write(protocol.encode_event(event.kind, event.path))


HANDLERS: dict[Any, Callable[[FakeConnection, Any], Any]] = {
    records.PingRequest: lambda connection, request: records.EmptyResponse(),
    records.AuthRequest: FakeConnection._auth,
    records.CloseRequest: FakeConnection._close,
    records.GetDataRequest: FakeConnection._read,
    records.ExistsRequest: FakeConnection._read,
    records.GetChildren2Request: FakeConnection._children,
    records.Create2Request: FakeConnection._change,
    records.SetDataRequest: FakeConnection._change,
    records.DeleteRequest: FakeConnection._change,
    records.MultiRequest: FakeConnection._multi,
    records.SyncRequest: lambda connection, request: records.SyncResponse(request.path),
    records.SetWatchesRequest: FakeConnection._set_watches,
}
