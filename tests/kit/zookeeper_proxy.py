"""A proxy for ZooKeeper's protocol that breaks connections at a chosen frame; over sockets, or in memory.

    proxy = ZooKeeperProxy(dial, host, port)                    # `proxy.accept` is the factory of a listening address
    proxy.break_at(RESPONSE, "Create2Request", Fault.FIN)       # once: the server has executed it, the client gets FIN
    proxy.break_now(Fault.STALL)                                # all connections

A stage is a direction and the name of a request. At REQUEST the server does not get the request, at RESPONSE the client
does not get the response; at ACCEPT the connection exists, and nothing passes.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import cast

from kafkalite.coordination.zookeeper import protocol
from kafkalite.coordination.zookeeper.codec import SIZE
from kafkalite.coordination.zookeeper.connection import Dial

REQUEST, RESPONSE = "request", "response"
ACCEPT = ("accept", "")
CONNECT = "ConnectRequest"
EVENT = "event"
FRAME_BYTES_MAX = 64 << 20
Stage = tuple[str, str]
Edit = Callable[[bytes], bytes]


class Fault(enum.Enum):
    """What happens to a connection: its end, its reset, or nothing passes any more."""

    FIN = "fin"
    RST = "rst"
    STALL = "stall"


class ZooKeeperProxy:
    """Between clients and one server.

    Arguments:
        dial, host, port: connect to the server.

    Attributes:
        passed: the stages of all frames that have arrived here, in order.
        refusing: new connections are closed at once.
        edits: by stage, changes the bytes of the next frame there, once.
    """

    def __init__(self, dial: Dial, host: str, port: int) -> None:
        self.passed: list[Stage] = []
        self.refusing = False
        self.edits: dict[Stage, Edit] = {}
        self._dial, self._host, self._port = dial, host, port
        self._faults: list[tuple[Stage, Fault]] = []
        self._links: dict[ProxyLink, None] = {}

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new client."""
        return Half(ProxyLink(self), REQUEST)

    def break_at(self, direction: str, request: str, fault: Fault) -> None:
        """Break the next connection that comes to this stage."""
        self._faults.append(((direction, request), fault))

    def break_now(self, fault: Fault) -> None:
        """Break all connections."""
        for link in list(self._links):
            link.break_by(fault)

    def break_session(self, session_id: int, fault: Fault) -> None:
        """Break the connection of a session."""
        for link in [each for each in self._links if each.session_id == session_id]:
            link.break_by(fault)

    def clear(self) -> None:
        """Drop the faults that are still to come."""
        self._faults.clear()

    def close(self) -> None:
        """End everything."""
        self.refusing = True
        self.clear()
        self.break_now(Fault.RST)

    # Called by links.

    def begin(self, link: ProxyLink) -> asyncio.Future[object] | None:
        """Connect a link to the server, unless its connection breaks."""
        self._links[link] = None
        if self.refusing:
            link.break_by(Fault.FIN)
        elif (fault := self.fault_at(ACCEPT)) is not None:
            link.break_by(fault)
        else:
            return asyncio.ensure_future(self._dial(lambda: Half(link, RESPONSE), self._host, self._port, None))
        return None

    def fault_at(self, stage: Stage) -> Fault | None:
        """Note a stage, and return the fault that is due there."""
        self.passed.append(stage)
        for index, (at, fault) in enumerate(self._faults):
            if at == stage:
                del self._faults[index]
                return fault
        return None

    def forget(self, link: ProxyLink) -> None:
        """A link has ended."""
        self._links.pop(link, None)


class Half(asyncio.Protocol):
    """One side of a link."""

    def __init__(self, link: ProxyLink, direction: str) -> None:
        self._link = link
        self._direction = direction

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.connected(self._direction, cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._link.received(self._direction, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.ended(self._direction)


class ProxyLink:
    """A client's connection and the one to the server; `session_id` is 0 before the server's first frame."""

    def __init__(self, proxy: ZooKeeperProxy) -> None:
        self.session_id = 0
        self._proxy = proxy
        self._transports: dict[str, asyncio.Transport] = {}  # by the direction of what comes from there
        self._frames = {each: protocol.FrameReader(FRAME_BYTES_MAX) for each in (REQUEST, RESPONSE)}
        self._early: list[bytes] = []  # frames of the client before the server's connection exists
        self._greeted = {REQUEST: False, RESPONSE: False}
        self._open: deque[str] = deque()
        self._stalled = self._ended = False
        self._dialing: asyncio.Future[object] | None = None

    def connected(self, direction: str, transport: asyncio.Transport) -> None:
        """One side is connected."""
        if self._ended:
            transport.abort()
            return
        self._transports[direction] = transport
        if direction == REQUEST:
            self._dialing = self._proxy.begin(self)
            if self._dialing is not None:
                self._dialing.add_done_callback(self._dialed)
        else:
            transport.writelines(self._early)

    def _dialed(self, dialing: asyncio.Future[object]) -> None:
        if not dialing.cancelled() and dialing.exception() is not None:
            self.break_by(Fault.RST)  # the server is down: so is this connection

    def received(self, direction: str, data: bytes) -> None:
        """Pass the frames on."""
        for frame in self._frames[direction].feed(data):
            if self._stalled or self._ended:
                return
            stage = direction, self._name(direction, frame)
            fault = self._proxy.fault_at(stage)
            if fault is not None:
                self.break_by(fault)
                return
            edit = self._proxy.edits.pop(stage, None)
            self._pass(direction, SIZE.pack(len(frame)) + frame if edit is None else edit(frame))

    def _name(self, direction: str, frame: bytes) -> str:
        if not self._greeted[direction]:
            self._greeted[direction] = True
            if direction == RESPONSE:
                self.session_id = protocol.decode_connected(frame).session_id
            return CONNECT
        if direction == REQUEST:
            header, request = protocol.decode_request(frame)
            if header.xid != protocol.PING_XID:
                self._open.append(type(request).__name__)
            return type(request).__name__
        xid = protocol.decode_header(frame).xid
        if xid == protocol.EVENT_XID:
            return EVENT
        return "PingRequest" if xid == protocol.PING_XID else self._open.popleft()

    def _pass(self, direction: str, data: bytes) -> None:
        to = self._transports.get(RESPONSE if direction == REQUEST else REQUEST)
        if to is None:
            self._early.append(data)
        else:
            to.write(data)

    def break_by(self, fault: Fault) -> None:
        """Break the connection."""
        if fault is Fault.STALL:
            self._stalled = True
            return
        self._end(reset=fault is Fault.RST)

    def ended(self, direction: str) -> None:
        """One side has ended; a stalled client does not notice the end of the server."""
        if not self._stalled or direction == REQUEST:
            self._end(reset=False)

    def _end(self, *, reset: bool) -> None:
        if self._ended:
            return
        self._ended = True
        self._proxy.forget(self)
        if self._dialing is not None:
            self._dialing.cancel()
        for transport in self._transports.values():
            if reset:
                reset_socket(transport)
                transport.abort()
            else:
                transport.close()


def reset_socket(transport: asyncio.Transport) -> None:
    """Let the end of a TCP connection be a reset; transports in memory reset by themselves."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
