"""Keeps a `SessionCore` connected, on asyncio: attempts, time limits, pings and back-off over several servers.

1. Each attempt to connect has a time limit, which includes name resolution, TLS and the handshake: 1 s at first, two
   thirds of the session timeout, divided among the servers, in the end. The first begins at once, the others 0.1 to
   1 s after a failure, with a random part, each at the next server.
2. A connection is checked by one timer, which no call sets: a third of the session timeout after the last write a ping
   leaves; two thirds after the last bytes of the server the connection is aborted, while another server can continue
   the session.
3. The requests of one event loop iteration leave in one write.
4. Only the latest connection is used: what arrives from an earlier one is ignored, and that connection is aborted.
5. A server that has seen less than the session closes each connection without a response: a late follower, or a server
   whose data is lost or restored. After the session timeout every second attempt asks whether the session exists. If it
   does not, it is lost; else no connection is used that would go back in time.
6. Before the first usable connection, TLS that all servers have rejected (or whose certificates this side rejects) ends
   the session with TlsError. Later the session waits: an operator may correct the certificates.
"""

import asyncio
import logging
import ssl as ssl_module
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, cast

from kafkalite.backoff import exponential_pause
from kafkalite.clock import Clock, Random, Timer
from kafkalite.coordination.errors import TlsError
from kafkalite.coordination.zookeeper.access import TlsContexts
from kafkalite.coordination.zookeeper.codec import ProtocolError
from kafkalite.coordination.zookeeper.session import BehindError, SessionCore, State

LOGGER = logging.getLogger("kafkalite.coordination")

BACKOFF_MIN_MS, BACKOFF_MAX_MS = 100, 1000
ATTEMPT_MIN_S = 1.0
LATE_S = 0.1
LOG_INTERVAL_S = 30.0

BROKEN_TLS = (ssl_module.SSLEOFError, ssl_module.SSLZeroReturnError, ssl_module.SSLSyscallError)
"""Connections that merely end within TLS: the next one may be accepted."""


class Dial(Protocol):
    """Connects a protocol to a host and a port, with TLS where a context is given; `net.client.connection.dial`.

    Raises OSError.
    """

    def __call__(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, ssl: ssl_module.SSLContext | None, /
    ) -> Awaitable[object]: ...


class Link(asyncio.Protocol):
    """One connection; it passes everything on to its driver."""

    def __init__(self, driver: "Connector") -> None:
        self.transport: asyncio.Transport | None = None
        self._driver = driver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection exists.

        TCP connects a socket to itself when its own port is the one that it connects to, and nothing listens there.
        """
        connected = cast(asyncio.Transport, transport)
        peer = connected.get_extra_info("peername")
        if peer is not None and peer == connected.get_extra_info("sockname"):
            connected.abort()
            self._driver.ended(self, "no server listens: the socket was connected to itself")
            return
        self.transport = connected
        self._driver.connected(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of the server have arrived."""
        self._driver.received(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        if error is None:
            self._driver.ended(self, "the server has closed the connection")
        else:
            self._driver.failed(self, error)


class Connector:
    """Connects a session and moves its bytes.

    Arguments:
        core: the session.
        servers: (host, port) of each.
        dial, clock, random: the outside.
        tls: contexts for TLS; None = plain text.
    """

    def __init__(
        self,
        core: SessionCore,
        servers: Sequence[tuple[str, int]],
        dial: Dial,
        clock: Clock,
        random: Random,
        tls: TlsContexts | None,
    ) -> None:
        self._core = core
        self._servers = servers
        self._dial = dial
        self._clock = clock
        self._random = random
        self._tls = tls
        self._without_tls: set[int] | None = set()  # servers; None = a connection has been usable
        self._loop = asyncio.get_running_loop()
        self._next_server = random.below(len(servers))  # clients spread over the servers
        self._failures = 0  # since the last usable connection
        self._logged_at = -LOG_INTERVAL_S
        self._link: Link | None = None
        self._attempt: asyncio.Future[object] | None = None
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._sent_at = self._received_at = clock.monotonic()
        self._flushing = False
        self._refused = self._asks_only = False  # the last attempt was closed in its handshake; this one only asks

    # Attempts.

    def connect(self) -> None:
        """Begin an attempt at the next server."""
        self._server = self._next_server
        host, port = self._servers[self._server]
        self._name = f"{host}:{port}"
        self._next_server = (self._server + 1) % len(self._servers)
        self._link = link = Link(self)
        silent_s = self._clock.monotonic() - self._received_at
        self._asks_only = self._refused and not self._asks_only and silent_s * 1000 >= self._core.timeout_ms
        limit_s = self._limit_s()
        self._set_timer(limit_s, lambda: self.ended(link, f"no connection after {limit_s:.1f} s"))
        context = None if self._tls is None else self._tls.get()
        self._attempt = asyncio.ensure_future(self._dial(lambda: link, host, port, context))
        self._attempt.add_done_callback(partial(self._dialed, link))

    def _limit_s(self) -> float:
        """Doubled from failure to failure: a server that starts may ignore the first frame, another one is slow."""
        largest_s = self._core.timeout_ms / 1000 * 2 / 3 / len(self._servers)
        return max(ATTEMPT_MIN_S, min(largest_s, ATTEMPT_MIN_S * (1 << self._failed_cycles())))

    def _failed_cycles(self) -> int:
        return min(self._failures // len(self._servers), 10)

    def _dialed(self, link: Link, attempt: "asyncio.Future[object]") -> None:
        if not attempt.cancelled() and (error := attempt.exception()) is not None:
            self.failed(link, error)

    def established(self) -> None:
        """The connection is usable: the back-off begins again with the next failure."""
        self._without_tls = None
        if self._failures:
            LOGGER.info("ZooKeeper %s: session %#x continues", self._name, self._core.key.session_id)
        self._failures = 0
        self._logged_at = -LOG_INTERVAL_S

    def stop(self) -> None:
        """End the connection, or the attempt."""
        link, self._link = self._link, None
        if self._attempt is not None:
            self._attempt.cancel()
        if link is not None and link.transport is not None:
            link.transport.abort()
        self._cancel_timer()

    # The connection; called by its link.

    def connected(self, link: Link) -> None:
        """The connection exists: send the first frame."""
        if link is not self._link:
            cast(asyncio.Transport, link.transport).abort()
            return
        if self._without_tls is not None:
            self._without_tls.discard(self._server)  # a rejection by TLS 1.3 may still arrive
        self._core.connected(asks_only=self._asks_only)
        self._flush()

    def received(self, link: Link, data: bytes) -> None:
        """Process bytes, call the callbacks, and write what these have sent."""
        if link is not self._link:
            return
        received_at, self._received_at = self._received_at, self._clock.monotonic()
        greeted = self._core.greeted
        try:
            self._core.received(data)
        except BehindError as error:
            self._received_at = received_at  # still no server can continue the session
            self.ended(link, str(error))
            return
        except ProtocolError as error:
            self.ended(link, f"{error}; is it a server of ZooKeeper's protocol?")
            return
        if self._core.state is State.ENDED:
            self.stop()
        elif self._core.greeted and not greeted:
            self._set_timer(0.0, self._check)
        self._deliver()

    def failed(self, link: Link, error: BaseException) -> None:
        """The connection has ended with an error, or there is none."""
        if not isinstance(error, ssl_module.SSLError) or isinstance(error, BROKEN_TLS):
            self.ended(link, f"{type(error).__name__}: {error}")
            return
        reason = tls_reason(error)
        if link is self._link and self._without_tls is not None:
            self._without_tls.add(self._server)
            if len(self._without_tls) == len(self._servers):
                self._core.reject(TlsError(detail=f"{self._name}: {reason}"))
        self.ended(link, reason)

    def ended(self, link: Link, reason: str) -> None:
        """The connection has ended or is not usable: begin the next one after a pause."""
        if link is not self._link:
            return
        self._refused = link.transport is not None and not self._core.greeted and self._core.last_zxid > 0
        self.stop()
        if self._core.state is not State.ENDED:
            self._log(reason)
        self._core.disconnected(f"{self._name}: {reason}")
        if self._core.state is State.SUSPENDED:
            self._set_timer(self._pause_s(), self.connect)
        self._deliver()

    def _pause_s(self) -> float:
        limit_ms = exponential_pause(2 * BACKOFF_MIN_MS, self._failed_cycles() + 1, BACKOFF_MAX_MS)
        self._failures += 1
        return (BACKOFF_MIN_MS + self._random.below(limit_ms - BACKOFF_MIN_MS + 1)) / 1000

    def _log(self, reason: str) -> None:
        now = self._clock.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            session = f"session {self._core.key.session_id:#x} is suspended" if self._core.key.session_id else "waiting"
            LOGGER.warning("ZooKeeper %s: %s; %s until a server accepts the connection", self._name, reason, session)

    def _deliver(self) -> None:
        try:
            self._core.deliver()
        except Exception as error:  # of a callback: the connection continues
            self._loop.call_exception_handler(
                {"message": "a callback of a ZooKeeper session failed", "exception": error}
            )
        self._flush()

    # Writing.

    def schedule(self) -> None:
        """Write what the core has at the end of this loop iteration."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._link is not None and self._link.transport is not None and (data := self._core.take_outgoing()):
            self._link.transport.write(data)
            self._sent_at = self._clock.monotonic()

    # Timers.

    def _check(self) -> None:
        now, third_s = self._clock.monotonic(), self._core.timeout_ms / 3000
        late = now - self._timer_at > LATE_S  # this process did not run: the response may be there, unread
        if now - self._received_at >= 2 * third_s and not late:
            self.ended(cast(Link, self._link), f"no response for {now - self._received_at:.1f} s")
            return
        if now - self._sent_at >= third_s:
            self._core.ping()
            self._flush()
        next_at = min(self._sent_at + third_s, self._received_at + 2 * third_s)
        # At least 1 ms: a remainder of a rounding error would fire again at the same (virtual) time, for ever.
        self._set_timer(max(next_at - now, LATE_S if late else 0.001), self._check)

    def _set_timer(self, delay_s: float, callback: Callable[[], object]) -> None:
        self._cancel_timer()
        self._timer_at = self._clock.monotonic() + delay_s
        self._timer = self._clock.call_at(self._timer_at, callback)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def tls_reason(error: ssl_module.SSLError) -> str:
    """Return why TLS has failed, in OpenSSL's words."""
    if isinstance(error, ssl_module.SSLCertVerificationError):
        return f"the certificate of the server is not accepted: {error.verify_message}"
    return f"the TLS handshake has failed: {error.reason or error}"
