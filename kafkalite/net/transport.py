"""Serves connections over asyncio transports: for TLS and for event loops without epoll; slower than `epoll`.

1. It has the interface of `_speedups.net.epoll.Reactor`. It needs a loop that fills a buffer directly after requesting
   it (uvloop and selector loops do), because all connections receive into the same memory.
2. Bytes passed to a transport count as sent. Above its high-water mark it receives no more of them, and the bounds of
   the framing stall the connection.
3. Files are read in parts, as TLS has no sendfile. Bytes that are not in the page cache are read by a job first.
4. Bytes that arrive while nothing may be received are kept in `inbox`, count as request memory, and pause reading: at
   most one receive of OVERFLOW_BYTES. The encrypted bytes that the event loop holds for a paused TLS connection are not
   counted: 256 KiB and one read, its own bound.
5. `handshakes` has the rules of TLS handshakes. The certificate of a client sets the principal of a new connection.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from kafkalite._speedups.allocator import map_from
from kafkalite._speedups.net.framing import Connection, Hub, Limits, Service
from kafkalite.net.handshakes import Handshakes
from kafkalite.net.peer_close import PeerCloseDetector, PeerCloseWatch

if TYPE_CHECKING:
    import ssl as ssl_module

LOGGER = logging.getLogger("kafkalite.net")
REGION_BYTES_MAX = 256 * 1024  # of a file per read
WRITE_HIGH = 256 * 1024
TLS_BUFFER_BYTES = 256 * 1024  # of a connection, by asyncio and uvloop
OVERFLOW_BYTES = 64 * 1024
PART_BYTES_MIN = 16 * 1024  # the size of a TLS record
DISCARDS_MAX = 16
LINGER_S = 30.0  # limit for sending written bytes of a closed connection


class TlsSide(Protocol):
    """The source of TLS contexts and principals; `net.server_tls.ServerTls`."""

    def get(self) -> ssl_module.SSLContext:
        """Return the context for the next connection."""

    def principal(self, ssl_object: ssl_module.SSLObject) -> object:
        """Return the principal of a client. Raises ValueError: it has none."""


class TransportConnection(Connection):
    """A connection over an asyncio transport."""

    def __init__(
        self, hub: TransportHub, transport: asyncio.Transport, listener: str, *addresses: tuple[str, int]
    ) -> None:
        super().__init__(hub, listener, *addresses)
        self.transport = transport
        self.socket: socket.socket = transport.get_extra_info("socket")
        self.watch: PeerCloseWatch | None = None
        self.loop = hub.loop
        self.inbox = bytearray()
        self.writable = True
        self.reading = True
        self.finished = False  # the end of the stream is behind `inbox`
        self.warming = self.warmed = False  # a job reads the next bytes of a file; it has read them
        self.active_at = hub.loop.time()

    def transmit(self) -> None:
        self.advance(0)
        while self.writable and not self.closed and (runs := self.outgoing()):
            self.active_at = self.loop.time()
            parts = []
            for run in runs:
                if not isinstance(run, bytes):
                    break
                parts.append(run)
            if parts:
                self.transport.writelines(joined_parts(parts))
                self.advance(sum(map(len, parts)))
            elif not self._write_region(runs[0]):
                return

    def _write_region(self, region: Any) -> bool:
        """Send a region as far as the transport accepts it; False: a job reads its next bytes."""
        offset = region.offset
        end = offset + region.length
        while offset < end and self.writable and not self.closed:
            size = min(REGION_BYTES_MAX, end - offset)
            if not self.warmed and region.file.resident(offset, size) == 0:
                self._read_ahead(region.file, offset, size)
                return False
            self.warmed = False
            data = region.file.pread(size, offset)
            if not data:
                self.close("a file is shorter than the response")
                return True
            self.transport.write(data)
            offset += len(data)
            self.advance(len(data))
        return True

    def _read_ahead(self, file: Any, offset: int, size: int) -> None:
        """Read bytes that are not in the page cache by a job, then send them."""
        if self.warming:
            return
        self.warming = True
        job = self.loop.run_in_executor(None, file.read_ahead, offset, size)
        job.add_done_callback(self._read)

    def _read(self, job: asyncio.Future[None]) -> None:
        self.warming, self.warmed = False, True
        if not job.cancelled() and (error := job.exception()) is not None:
            LOGGER.debug("cannot read ahead: %s", error)  # the read reports it
        if not self.closed:
            self.touch()

    def store(self, data: memoryview) -> None:
        """Keep bytes that arrived while nothing may be received, and pause reading unless it is allowed again."""
        self.inbox += data
        self.charge(len(data))
        self.touch()
        self.update_interest()

    def _feed_inbox(self) -> None:
        self.charge(-len(self.inbox))  # else they would count twice while they are fed
        if not self.stalled:
            taken = self.feed(self.inbox)
            del self.inbox[:taken]
        self.charge(len(self.inbox))

    def peer_left(self, reset: bool) -> None:
        """The peer has closed its side, or has reset the connection."""
        if reset:
            self.close("reset by the peer")
        else:
            self.hang_up()

    def update_interest(self) -> None:
        if self.inbox:
            self._feed_inbox()
        if self.inbox:
            self.wait_for_memory()
        elif self.finished and not self.ended:
            self.eof()
        wanted = self.receiving and not self.inbox
        if wanted != self.reading and not self.closed and not self.ended and not self.transport.is_closing():
            self.reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def gone(self) -> None:
        self.inbox.clear()
        if self.transport.get_extra_info("ssl_object") is None and not self.transport.is_closing():
            self._discard_unread()
        self.transport.close()
        cast(TransportHub, self.hub).forget(self)

    def end_linger(self) -> None:
        """Drop what was not sent."""
        self.transport.abort()
        cast(TransportHub, self.hub).lingering.discard(self)

    def _discard_unread(self) -> None:
        # Closing with unread bytes resets the connection and may destroy responses in flight.
        fd = self.socket.fileno()
        try:
            for _ in range(DISCARDS_MAX):
                if not os.read(fd, OVERFLOW_BYTES):
                    return
        except OSError as error:  # no bytes, or a closed peer
            LOGGER.debug("%s:%d: %s", self.peer_host, self.peer_port, error)


class TransportProtocol(asyncio.BufferedProtocol):
    """The asyncio protocol; each call runs an iteration."""

    def __init__(self, hub: TransportHub, listener: str, peer: tuple[str, int], local: tuple[str, int]) -> None:
        self._hub = hub
        self._names = (listener, peer, local)
        self._overflow: memoryview | None = None
        self.connection: TransportConnection | None = None  # from the handshake to the end of both sides
        self.linger: asyncio.TimerHandle | None = None
        self.lost = False  # the transport has ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writing = cast(asyncio.Transport, transport)
        writing.set_write_buffer_limits(high=WRITE_HIGH)
        self.connection = TransportConnection(self._hub, writing, *self._names)
        self._hub.adopted(self, writing.get_extra_info("ssl_object"))

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self.connection is not None
        self._overflow = None
        if self.connection.stalled:
            # TLS may still deliver bytes that it decrypted before reading was paused.
            self._overflow = memoryview(bytearray(OVERFLOW_BYTES))
            return self._overflow
        return self.connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        assert self.connection is not None
        if self.connection.closed:
            return
        self.connection.active_at = self._hub.loop.time()
        self._hub.begin()
        try:
            if self._overflow is not None:
                self.connection.store(self._overflow[:nbytes])
            else:
                self.connection.buffer_updated(nbytes)
        finally:
            self._hub.end()

    def eof_received(self) -> bool:
        assert self.connection is not None
        with_tls = self.connection.transport.get_extra_info("ssl_object") is not None
        self.connection.finished = True
        self._hub.begin()
        try:
            self.connection.hang_up()
            self.connection.update_interest()
        finally:
            self._hub.end()
        return not with_tls

    def pause_writing(self) -> None:
        assert self.connection is not None
        self.connection.writable = False

    def resume_writing(self) -> None:
        assert self.connection is not None
        self.connection.writable = True
        self.connection.touch()

    def connection_lost(self, error: Exception | None) -> None:
        assert self.connection is not None
        self.lost = True
        if self.linger is None:
            self.connection.close(str(error) if error is not None else "reset by the peer")
        else:
            self.linger.cancel()
            self._hub.lingering.discard(self.connection)
            self.connection = None  # a reference cycle with the transport


def joined_parts(parts: list[bytes]) -> list[bytes]:
    """Join neighbours below `PART_BYTES_MIN`, as each part becomes TLS records of its own; do not copy large ones."""
    found: list[bytes] = []
    small: list[bytes] = []
    for part in parts:
        if len(part) < PART_BYTES_MIN:
            small.append(part)
            continue
        if small:
            found.append(b"".join(small))
            small = []
        found.append(part)
    if small:
        found.append(b"".join(small))
    return found


class TransportHub(Hub):
    """All connections of one service over asyncio transports."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: Service,
        limits: Limits | None = None,
        *,
        tls: TlsSide | None = None,
    ) -> None:
        """Arguments as `Reactor`; tls: contexts and principals for TLS, None = plaintext."""
        super().__init__(service, limits)
        self.loop = loop
        self.on_closed: Callable[[], object] | None = None
        self._tls = tls
        self._handshakes = (
            None if tls is None else Handshakes(loop, self._begin_handshake, self.discarded, self.report_handshake)
        )
        self._open: dict[TransportConnection, TransportProtocol] = {}
        self._hosts: Counter[str] = Counter()
        self.lingering: set[TransportConnection] = set()  # closed, their transports still send
        self._shaking: set[asyncio.Task[None]] = set()
        self._hangups = PeerCloseDetector(loop)
        self.several_iterations = True
        self._listening: dict[int, Callable[[], None]] = {}

    @property
    def connections_count(self) -> int:
        waiting = 0 if self._handshakes is None else self._handshakes.waiting
        return len(self._open) + len(self._shaking) + waiting

    def wake(self) -> None:
        self.loop.call_soon(self.run)

    def adopt(self, fd: int, listener: str, peer: tuple[str, int], local: tuple[str, int]) -> None:
        try:
            connected = socket.socket(fileno=fd)
        except OSError:
            os.close(fd)
            raise
        protocol = TransportProtocol(self, listener, peer, local)
        self._hosts[peer[0]] += 1
        try:
            if self._handshakes is None:
                self._start(connected, protocol, peer, None)
            else:
                self._handshakes.add(connected, protocol, peer)
        except BaseException:
            self._left(peer[0])
            connected.close()
            raise

    def _begin_handshake(
        self, connected: socket.socket, protocol: TransportProtocol, peer: tuple[str, int], limit_s: float
    ) -> asyncio.Task[None]:
        assert self._tls is not None
        return self._start(connected, protocol, peer, self._tls.get(), limit_s)

    def _start(
        self,
        connected: socket.socket,
        protocol: TransportProtocol,
        peer: tuple[str, int],
        context: ssl_module.SSLContext | None,
        limit_s: float | None = None,
    ) -> asyncio.Task[None]:
        shake = self._shake(connected, protocol, peer, context, limit_s)
        try:
            task = self.loop.create_task(shake)
        except BaseException:
            shake.close()
            raise
        self._shaking.add(task)
        task.add_done_callback(functools.partial(self._shaken, connected, protocol, peer[0]))
        return task

    async def _shake(
        self,
        connected: socket.socket,
        protocol: TransportProtocol,
        peer: tuple[str, int],
        context: ssl_module.SSLContext | None,
        limit_s: float | None,
    ) -> None:
        if context is not None:
            from kafkalite.net.alerts import CONNECTED  # for listeners with TLS

            CONNECTED.set(connected)
        try:
            await self.loop.connect_accepted_socket(
                functools.partial(self._created, protocol, context),
                connected,
                ssl=context,
                ssl_handshake_timeout=limit_s,
            )
        except OSError as error:  # ssl.SSLError and every failure of the socket are OSErrors
            text = f"connection failed before the first request: {error}"
            LOGGER.info("%s:%d: %s", *peer, text) if context is None else self.report_handshake(peer, text)

    def _created(self, protocol: TransportProtocol, context: ssl_module.SSLContext | None) -> TransportProtocol:
        """Return the protocol of a new transport; the loop allocates the receive buffer of TLS next.

        Of its 256 KiB, records up to 4 KiB use a page, if it is not in the heap, among pages in use.
        """
        if context is not None and map_from(TLS_BUFFER_BYTES):
            self.loop.call_soon(map_from, 0)
        return protocol

    def report_handshake(self, peer: tuple[str, int], text: str) -> None:
        """Log why a handshake has failed: one line per minute and address, others at level DEBUG."""
        if self.may_log(("handshake", peer[0])):
            LOGGER.warning("%s:%d: %s", *peer, text)
        else:
            LOGGER.debug("%s:%d: %s", *peer, text)

    def _shaken(
        self, connected: socket.socket, protocol: TransportProtocol, host: str, task: asyncio.Task[None]
    ) -> None:
        # Not in the task: a task cancelled before its first step runs none of its lines.
        self._shaking.discard(task)
        if protocol.connection is None:
            connected.close()
            self._left(host)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fault("handshake", error)
        if self.on_closed is not None:
            self.on_closed()

    def discarded(self, connected: socket.socket, host: str) -> None:
        """A connection is closed before its handshake."""
        connected.close()
        self._left(host)
        if self.on_closed is not None:
            self.on_closed()

    def adopted(self, protocol: TransportProtocol, ssl_object: ssl_module.SSLObject | None) -> None:
        """A protocol has its transport; with TLS, after the handshake."""
        assert protocol.connection is not None
        connection = protocol.connection
        self._open[connection] = protocol
        connection.watch = self._hangups.watch(connection.socket, connection.peer_left)
        if self._names_principals and ssl_object is not None and not self._identify(connection, ssl_object):
            return
        self.accept_connection(connection)

    @property
    def _names_principals(self) -> bool:
        """Whether certificates name the principals of connections; with SASL the login does."""
        return self._tls is not None and not self.limits.authenticate

    def _identify(self, connection: TransportConnection, ssl_object: ssl_module.SSLObject) -> bool:
        """Set the principal of a client with a certificate; False: there is none, and the connection closes."""
        assert self._tls is not None
        try:
            connection.principal = self._tls.principal(ssl_object)
        except ValueError as error:
            self.report_handshake((connection.peer_host, connection.peer_port), str(error))
            connection.close("the certificate of the client has no principal")
            return False
        return True

    def forget(self, connection: TransportConnection) -> None:
        """A connection is closed; its transport may send for LINGER_S, unless it has ended."""
        protocol = self._open.pop(connection)
        if protocol.lost:
            protocol.connection = None  # a reference cycle with the transport
        else:
            protocol.linger = self.loop.call_later(LINGER_S, connection.end_linger)
            self.lingering.add(connection)
        if connection.watch is not None:
            self._hangups.forget(connection.watch)
            connection.watch = None  # its callback is a reference cycle
        self._left(connection.peer_host)
        if self.on_closed is not None:
            self.on_closed()

    def _left(self, host: str) -> None:
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def watch(self, fd: int, listener_socket: Callable[[], None], muted: bool = False) -> None:
        self._listening[fd] = listener_socket
        self.mute(fd, muted)

    def mute(self, fd: int, muted: bool) -> None:
        if muted:
            self.loop.remove_reader(fd)
        else:
            self.loop.add_reader(fd, self._on_readable, self._listening[fd])

    def _on_readable(self, listener_socket: Callable[[], None]) -> None:
        try:
            listener_socket()
        except Exception as error:  # the loop would call a reader that raises again without end
            self.fault("accept", error)

    def unwatch(self, fd: int) -> None:
        self.loop.remove_reader(fd)
        del self._listening[fd]
        if not self._listening and self._handshakes is not None:
            self._handshakes.abort()

    def connections_of(self, host: str) -> int:
        return self._hosts.get(host, 0)

    def connections(self) -> list[TransportConnection]:
        return list(self._open)

    def close_idle(self, idle_s: float, half_closed_s: float) -> None:
        now = self.loop.time()
        for connection in self.connections():
            reason = connection.overdue(now, idle_s, half_closed_s, not connection.writable)
            if reason is not None:
                connection.close(reason)

    def abort(self, reason: str) -> None:
        if self._handshakes is not None:
            self._handshakes.abort()
        for task in self._shaking:
            task.cancel()
        for connection in self.connections():
            connection.close(reason)

    def dispose(self) -> None:
        """Release the resources that the event loop does not release; written bytes that no peer has read are lost."""
        for connection in list(self.lingering):
            connection.transport.abort()
        self._hangups.close()
