"""Binds listening addresses, accepts connections within limits, closes idle ones, and drains all at the end.

1. At `max.connections`, of the listener or of the broker, accepting pauses until a connection is closed. A connection
   of a host above its limit is closed at once, and so is one that uses one of the last descriptors, which are reserved
   for logs (`refuse_from`).
2. Without free descriptors a spare one is closed to accept the pending connection and close it, then accepting pauses
   for REST_S: the kernel reports a pending connection until it is accepted, and the loop would spin.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkalite._speedups.net.epoll import Reactor
from kafkalite._speedups.net.framing import Limits, Service

if TYPE_CHECKING:
    from kafkalite.net.transport import TlsSide, TransportHub

LOGGER = logging.getLogger("kafkalite.net")
BACKLOG = 1024
SYSTEMS_CHOICE = -1
ACCEPTS_MAX = 64  # of one address per iteration
REST_S = 1.0  # pause of accepting without descriptors, unless one is freed
REFUSED_MAX = 1_000  # connections that are refused later; further ones are closed at once
HALF_CLOSED_S = 30.0  # limit for sending responses after the peer has closed its side
SWEEP_S_MAX = 30.0
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class ListenerSocket:
    """One listening socket.

    Attributes:
        delay: until its next connection is accepted; None: now.
        refused: connections of addresses with too many new ones, until they are closed.
    """

    def __init__(self, listening: socket.socket, name: str, accepting: Callable[[ListenerSocket], None]) -> None:
        self.socket = listening
        self.name = name
        self._accepting = accepting
        self.delay: asyncio.TimerHandle | None = None
        self.refused: dict[socket.socket, asyncio.TimerHandle] = {}

    def __call__(self) -> None:
        self._accepting(self)


class SocketOptions(NamedTuple):
    """Socket options: sizes of buffers in bytes (-1 = tuned by the system), and the backlog of connections."""

    send_buffer_bytes: int = SYSTEMS_CHOICE
    receive_buffer_bytes: int = SYSTEMS_CHOICE
    backlog: int = BACKLOG

    def set_buffers(self, listening: socket.socket) -> None:
        """Set the buffer sizes, which connections inherit; the TCP window scale is fixed in the handshake."""
        if self.send_buffer_bytes != SYSTEMS_CHOICE:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes != SYSTEMS_CHOICE:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


class Counted(Protocol):
    """A driver; `_speedups.net.epoll.Reactor`."""

    @property
    def connections_count(self) -> int: ...
    def connections_of(self, host: str) -> int: ...


class AcceptRates(Protocol):
    """Limits the rates of new connections; `server.requests.quotas.broker_quotas.BrokerQuotas`."""

    def charge_connection(self, listener: str, host: str) -> tuple[float, float]: ...


class ConnectionCounts:
    """The connections of the listeners that share this object.

    Arguments:
        connections_max, per_ip_max: `max.connections` and `max.connections.per.ip` of the broker.

    Attributes:
        rates: limits of the rates of new connections; None: there are none.
    """

    def __init__(self, connections_max: int, per_ip_max: int) -> None:
        self.connections_max = connections_max
        self.per_ip_max = per_ip_max
        self.rates: AcceptRates | None = None
        self._drivers: list[Counted] = []
        self._freed: list[Callable[[], object]] = []

    def add(self, driver: Counted, freed: Callable[[], object]) -> None:
        """Count the connections of a driver too; `freed` is called when a connection of any driver has ended."""
        self._drivers.append(driver)
        self._freed.append(freed)

    @property
    def is_full(self) -> bool:
        """Whether there are `connections_max` connections."""
        return sum(each.connections_count for each in self._drivers) >= self.connections_max

    def of_host(self, host: str) -> int:
        """Return the number of connections of a host."""
        return sum(each.connections_of(host) for each in self._drivers)

    def connection_ended(self) -> None:
        """Let the listeners accept again that were full."""
        for freed in self._freed:
            freed()


def create_driver(
    loop: asyncio.AbstractEventLoop, service: Service, limits: Limits, tls: TlsSide | None
) -> Reactor | TransportHub:
    """Return the driver of a listener: epoll for plaintext, asyncio transports for TLS."""
    if tls is None:
        return Reactor(loop, service, limits)
    from kafkalite.net.transport import TransportHub  # for brokers with TLS

    return TransportHub(loop, service, limits, tls=tls)


class Listener:
    """Serves any number of addresses of one event loop through one reactor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: Service,
        limits: Limits | None = None,
        *,
        reactor: Reactor | TransportHub | None = None,
        tls: TlsSide | None = None,
        counts: ConnectionCounts | None = None,
        sockets: SocketOptions | None = None,
        refuse_from: int | None = None,
    ) -> None:
        """Args:
        loop: the event loop.
        service: see docs/architecture.md.
        limits: None = Kafka's defaults.
        reactor: the driver: None = a Reactor, or a TransportHub for TLS.
        tls: contexts and principals of connections with TLS; None = plaintext.
        counts: the connections of all listeners of the broker; None = this is the only one.
        sockets: None = the buffer sizes of the system.
        refuse_from: connections with this descriptor or a higher one are closed at once; None = no limit.
        """
        self.limits = limits or Limits()
        self._refuse_from = sys.maxsize if refuse_from is None else refuse_from
        self._sockets = sockets or SocketOptions()
        self.reactor = reactor if reactor is not None else create_driver(loop, service, self.limits, tls)
        self.reactor.on_closed = self._closed
        self._counts = counts or ConnectionCounts(self.limits.connections_max, self.limits.connections_per_ip_max)
        self._counts.add(self.reactor, self._update_full)
        self._loop = loop
        self._listening: list[ListenerSocket] = []
        self._connections_max = self.limits.connections_max
        self._paused = self._full = self._exhausted = self._reported = False
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._rest: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_s = min(SWEEP_S_MAX, HALF_CLOSED_S / 4)
        if self.limits.idle_ms_max >= 0:
            self._sweep_s = max(0.01, min(self._sweep_s, self.limits.idle_ms_max / 4000))
        self._schedule_sweep()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket."""
        return [listener_socket.socket.getsockname()[:2] for listener_socket in self._listening]

    def bind(self, host: str, port: int, name: str = "PLAINTEXT") -> tuple[str, int]:
        """Listen on `host`:`port` (0 = a free port) under the listener's `name`.

        Returns the bound address. Raises OSError with the address if it is not available.
        """
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except socket.gaierror as error:
            raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {host}:{port}: {error.strerror}") from error
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Never SO_REUSEPORT: with it a second broker would bind the same port silently.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
            listening.bind(address)
            listening.listen(self._sockets.backlog)
        except OSError as error:
            listening.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
        return self.inherit(listening, name)

    def inherit(self, listening: socket.socket, name: str = "PLAINTEXT") -> tuple[str, int]:
        """Accept from a listening socket (systemd's socket activation); the listener owns it from now on."""
        listening.setblocking(False)
        self._sockets.set_buffers(listening)
        # Accepted sockets inherit it: saves a system call for each.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener_socket = ListenerSocket(listening, name, self._accept)
        self.reactor.watch(listening.fileno(), listener_socket, self._resting)
        self._listening.append(listener_socket)
        host, port = listening.getsockname()[:2]
        return host, port

    def pause(self) -> None:
        """Accept nothing until `resume()`; pending clients stay in the kernel's backlog."""
        self._paused = True
        self._mute()

    def resume(self) -> None:
        """Accept again."""
        self._paused = False
        self._mute()

    def disconnect(self, reason: str) -> None:
        """Close all connections at once; open responses are lost."""
        self.reactor.abort(reason)

    def limit(self, connections_max: int, connections_per_ip_max: int, own_max: int | None = None) -> None:
        """Set limits for new connections; existing ones stay open.

        Arguments:
            connections_max, connections_per_ip_max: of the broker.
            own_max: of this listener; None = only those of the broker.
        """
        self._connections_max = connections_max if own_max is None else own_max
        self._counts.connections_max = connections_max
        self._counts.per_ip_max = connections_per_ip_max
        self._full = self._is_full
        self._mute()

    def free_unused(self) -> None:
        """Free the receive buffers that were unused since the previous call."""
        self.reactor.pool.free_unused()

    async def close(self, grace_s: float = 5.0) -> None:
        """Stop accepting, send open responses for up to `grace_s` seconds, then close all connections."""
        for timer in (self._sweep, self._rest, *(each.delay for each in self._listening)):
            if timer is not None:
                timer.cancel()
        for listener_socket in self._listening:
            for refused in list(listener_socket.refused):
                self._close_refused(listener_socket, refused)
            self.reactor.unwatch(listener_socket.socket.fileno())
            listener_socket.socket.close()
        self._listening.clear()
        self._drained = asyncio.Event()
        for connection in self.reactor.connections():
            connection.drain()
        try:
            async with asyncio.timeout(grace_s):
                await self._wait_drained()
        except TimeoutError:
            self.reactor.abort("the broker stops")
            await self._wait_drained()
        self.reactor.dispose()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    async def _wait_drained(self) -> None:
        if self.reactor.connections_count and self._drained is not None:
            await self._drained.wait()

    @property
    def _is_full(self) -> bool:
        return self.reactor.connections_count >= self._connections_max or self._counts.is_full

    @property
    def _resting(self) -> bool:
        return self._paused or self._full or self._exhausted

    def _mute(self) -> None:
        for listener_socket in self._listening:
            resting = self._resting or listener_socket.delay is not None
            self.reactor.mute(listener_socket.socket.fileno(), resting)

    def _accept(self, listener_socket: ListenerSocket) -> None:
        for _ in range(ACCEPTS_MAX):
            if self._is_full:
                self._full = True
                self._mute()
                return
            try:
                accepted, peer = listener_socket.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._accept_and_close(listener_socket, error)
                return
            self._reported = False
            if self._counts.rates is None:
                self._take(accepted, peer, listener_socket.name)
            elif self._take_at_rate(self._counts.rates, accepted, peer, listener_socket):
                return

    def _take_at_rate(
        self, rates: AcceptRates, accepted: socket.socket, peer: tuple[Any, ...], listener_socket: ListenerSocket
    ) -> bool:
        """Serve a connection unless its address has too many new ones; returns whether the next one has to wait."""
        delay_s, refusal_s = rates.charge_connection(listener_socket.name, host_of(peer))
        if refusal_s:
            self._refuse_later(accepted, peer, refusal_s, listener_socket)
        else:
            self._take(accepted, peer, listener_socket.name)
        if delay_s:
            listener_socket.delay = self._loop.call_later(delay_s, self._delay_ended, listener_socket)
            self._mute()
        return delay_s > 0

    def _delay_ended(self, listener_socket: ListenerSocket) -> None:
        listener_socket.delay = None
        self._mute()

    def _refuse_later(
        self, accepted: socket.socket, peer: tuple[Any, ...], refusal_s: float, listener_socket: ListenerSocket
    ) -> None:
        """Close a connection after its throttle time, so that its client cannot connect again at once."""
        host = host_of(peer)
        reason = "its address has too many new connections (connection_creation_rate)"
        if len(listener_socket.refused) >= REFUSED_MAX or accepted.fileno() >= self._refuse_from:
            self._refuse(accepted, (host, peer[1]), "rate", reason)
            return
        self.reactor.log_limited("rate", f"connection of {host} refused: {reason}")
        close = self._loop.call_later(refusal_s, self._close_refused, listener_socket, accepted)
        listener_socket.refused[accepted] = close

    def _close_refused(self, listener_socket: ListenerSocket, accepted: socket.socket) -> None:
        listener_socket.refused.pop(accepted).cancel()
        accepted.close()

    def _take(self, accepted: socket.socket, peer: tuple[Any, ...], name: str) -> None:
        host = host_of(peer)
        if accepted.fileno() >= self._refuse_from:
            reason = (
                f"{self._refuse_from} file descriptors are open, the rest up to RLIMIT_NOFILE is kept for logs; raise "
                "the limit (ulimit -n, LimitNOFILE=)"
            )
            self._refuse(accepted, (host, peer[1]), "descriptors", reason)
            return
        limit = self.limits.connections_per_ip_overrides.get(host, self._counts.per_ip_max)
        if self._counts.of_host(host) >= limit:
            self._refuse(accepted, (host, peer[1]), "per ip", f"it has {limit} connections (max.connections.per.ip)")
            return
        accepted.setblocking(False)
        local = accepted.getsockname()
        local_host = local[0].removeprefix("::ffff:") if "." in local[0] else local[0]
        self.reactor.adopt(accepted.detach(), name, (host, peer[1]), (local_host, local[1]))

    def _refuse(self, accepted: socket.socket, client: tuple[str, int], site: str, reason: str) -> None:
        """Close a connection: a line of level DEBUG for each, and a warning once a minute."""
        accepted.close()
        LOGGER.debug("%s:%d refused: %s", *client, reason)
        self.reactor.log_limited(site, f"connection of {client[0]} refused: {reason}")

    def _accept_and_close(self, listener_socket: ListenerSocket, error: OSError) -> None:
        if not self._reported:
            self._reported = True
            LOGGER.error("cannot accept connections: %s; retrying when file descriptors become free", error.strerror)
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
            try:
                listener_socket.socket.accept()[0].close()
            except OSError as failure:
                LOGGER.debug("cannot accept the pending connection: %s", failure)
        self._reopen_spare()
        self._exhausted = True
        self._mute()
        self._rest = self._loop.call_later(REST_S, self._rested)

    def _reopen_spare(self) -> None:
        if self._spare < 0:
            try:
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                LOGGER.debug("cannot open the spare file descriptor: %s", error)

    def _rested(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._reopen_spare()
        self._exhausted = False
        self._mute()

    def _closed(self) -> None:
        if self._drained is not None:
            if not self.reactor.connections_count:
                self._drained.set()
            return
        self._counts.connection_ended()
        if self._exhausted:
            self._rested()

    def _update_full(self) -> None:
        if self._full and not self._is_full and self._drained is None:
            self._full = False
            self._mute()

    def _schedule_sweep(self) -> None:
        self._sweep = self._loop.call_later(self._sweep_s, self._close_idle)

    def _close_idle(self) -> None:
        idle_ms = self.limits.idle_ms_max
        self.reactor.close_idle(idle_ms / 1000 if idle_ms >= 0 else -1.0, HALF_CLOSED_S)
        self._schedule_sweep()


def host_of(peer: tuple[Any, ...]) -> str:
    """Return the host of an address; IPv4 addresses in IPv6 form as IPv4."""
    host: str = peer[0]
    return host.removeprefix("::ffff:") if "." in host else host
