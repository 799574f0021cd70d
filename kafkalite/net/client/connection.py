"""A connection to a broker on asyncio: version negotiation, pipelined calls with deadlines, one write per iteration.

Invariants:
1. `call` is a plain function. It queues the request and returns a future; no task is created.
2. All requests of one event loop iteration leave together, at its end; `submit_now` writes them at once.
3. One timer per connection: it fires at the nearest deadline, or when the broker's throttle time has passed.
4. When the connection ends, every open call fails with a KafkaConnectionError that names the reason.
"""

import asyncio
import random as random_module
import socket
import ssl as ssl_module
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Self, cast

from kafkalite._speedups.net.client_core import TransportWriter
from kafkalite._version import VERSION
from kafkalite.callbacks import call_all
from kafkalite.errors import DecodeError, KafkaConnectionError, KafkaError, KafkaErrorCode, KafkaTimeoutError, error_for
from kafkalite.net.client.core import FRAME_BYTES_MAX, Answer, ClientCore, Fail
from kafkalite.net.client.failures import as_tls_error, reason_of, why_ended
from kafkalite.net.sasl.steps import ClientMechanism
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.schema import Request

if TYPE_CHECKING:
    from kafkalite.net.client.session import SaslSession

ATTEMPT_DELAY_S = 0.25
"""How long one address of a host may take before the next one is tried beside it (RFC 8305: 250 ms)."""

PART_BYTES_MIN = 16 << 10
"""Parts below this size are joined with their neighbours: a copy is cheaper than a write of their own."""

Dial = Callable[[Callable[[], asyncio.BaseProtocol], str, int, ssl_module.SSLContext | None], Awaitable[object]]
"""Connects a protocol to a host and a port, with TLS where a context is given. Raises OSError."""


async def dial(
    protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, ssl: ssl_module.SSLContext | None
) -> None:
    """Connect over TCP; several addresses of a host are tried in parallel (RFC 8305).

    Arguments:
        protocol: creates the protocol of the connection.
        host, port: the broker.
        ssl: the context for TLS; None = plain text.

    Raises:
        OSError: the name cannot be resolved, or no address accepts the connection.
    """
    import aiohappyeyeballs  # with the first connection

    loop = asyncio.get_running_loop()
    try:  # without a thread, as an address needs no name server
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connected = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=ATTEMPT_DELAY_S, loop=loop)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server_hostname = host if ssl is not None else None
        await loop.create_connection(protocol, sock=connected, ssl=ssl, server_hostname=server_hostname)
    except BaseException:
        connected.close()
        raise


class ClientConnection:
    """One connection to a broker, an async context manager.

    Arguments:
        host, port: the broker.
        client_id: sent with every request; None = no client id.
        timeout_s: deadline of a call in seconds, unless the call has its own.
        connect_timeout_s: deadline in seconds for connecting, negotiation and authentication together.
        frame_bytes_max: largest accepted response, in bytes.
        ssl: the context for TLS; None = plain text.
        sasl: the mechanism and credentials; None = no authentication by SASL.
        dial: connects; another one than TCP in simulations.
        on_end: called once with the reason when the connection ends, before its open calls fail.
        on_error: called with an exception of a callback; None = the exception handler of the loop.
        random: returns a number from 0 to below 1; spreads the renewals of SASL sessions.
        proven: another connection with these settings has worked; error texts do not ask about them.

    Attributes:
        host, port: the arguments.
        features: the levels of the finalized features that the broker has reported, by name.
        submit_now: sends a request as `submit`, and writes it at once; see `TransportWriter`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None = "kafkalite",
        timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        ssl: ssl_module.SSLContext | None = None,
        sasl: ClientMechanism | None = None,
        dial: Dial = dial,
        on_end: Callable[[KafkaError], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        random: Callable[[], float] = random_module.random,
        proven: bool = False,
    ) -> None:
        self.host = host
        self.port = port
        self.features: dict[str, int] = {}
        self._core = ClientCore(f"{host}:{port}", client_id, frame_bytes_max)
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._ssl = ssl
        self._dial = dial
        self._session = None if sasl is None else _new_session(self, sasl, self._core.name, random)
        self._driver = _Driver(self._core, on_end, on_error, self._session)
        self._driver.proven = proven
        self.submit_now = self._driver.submit_now

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """The connection has ended, or was never made."""
        return self._driver.transport is None

    @property
    def failure(self) -> KafkaError | None:
        """Why calls fail: the connection was never made, or it ends; None = it accepts calls."""
        return self._core.failure

    @property
    def open_calls(self) -> int:
        """Number of requests whose responses have not arrived."""
        return self._core.open_calls

    @property
    def responses(self) -> int:
        """Number of responses that have arrived, those of the negotiation included."""
        return self._core.responses

    @property
    def api_versions(self) -> dict[int, tuple[int, int]]:
        """The lowest and the highest version that the broker serves, by API key."""
        return self._core.api_versions

    async def connect(self) -> None:
        """Connect, learn the broker's versions and authenticate.

        Raises:
            KafkaConnectionError: the broker cannot be reached, or ends the connection.
            KafkaTimeoutError: `connect_timeout_s` has passed.
            AuthenticationError: TLS or SASL fails, or the credentials are not usable.
        """
        name = self._core.name
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._open()
        except KafkaTimeoutError:
            await self._discard()
            raise
        except TimeoutError as error:
            await self._discard()
            text = f"{name} did not answer in {self._connect_timeout_s} s; is a broker there, and reachable?"
            raise KafkaTimeoutError(text) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: the name of a host is not valid
            await self._discard()
            if isinstance(error, KafkaConnectionError):
                raise
            raise KafkaConnectionError(f"cannot connect to {name}: {reason_of(error)}; is a broker there?") from error
        except DecodeError as error:
            await self._discard()
            raise KafkaConnectionError(f"cannot connect to {name}: {error}; is it a broker's port?") from error
        except BaseException:
            await self._discard()
            raise

    async def _open(self) -> None:
        steps = None if self._session is None else await self._session.begin()
        try:
            await self._dial(lambda: self._driver, self.host, self.port, self._ssl)
        except OSError as error:
            if self._ssl is not None and (failure := as_tls_error(error, self._core.name, self.host)) is not None:
                raise failure from error
            raise
        self._driver.secure = self._ssl is not None
        await self._negotiate()
        if self._session is not None and steps is not None:
            await self._session.authenticate(steps)

    async def _discard(self) -> None:
        """End a connection that was not accepted; without a wait for the broker."""
        self.abort()
        await self.wait_closed()

    async def close(self, timeout_s: float = 1.0) -> None:
        """End the connection; open calls fail. Queued requests are written first, if the broker reads them.

        Arguments:
            timeout_s: how long they may take, in seconds; then the connection is aborted.
        """
        self.begin_close()
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_closed()
        except TimeoutError:
            self.abort()
            await self.wait_closed()

    def begin_close(self, reason: KafkaError | None = None) -> None:
        """Begin to end the connection, as `close`, without a deadline.

        Arguments:
            reason: error of the open calls; None = KafkaConnectionError.
        """
        if self._driver.transport is not None:
            self._driver.flush()
            self._core.failure = self._core.failure or reason
            self._driver.transport.close()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        if self._driver.transport is not None:
            await self._driver.ended.wait()

    def abort(self, reason: KafkaError | None = None) -> None:
        """End the connection as `begin_close`, without writing requests that are queued."""
        if self._driver.transport is not None:
            self._core.failure = self._core.failure or reason
            self._driver.transport.abort()

    def version(self, request: type[Request], version_max: int | None = None) -> int:
        """Return the version that `call` uses; see `ClientCore.version`."""
        return self._core.version(request, version_max)

    def call(
        self,
        request: Request,
        *,
        timeout_s: float | None = None,
        version_max: int | None = None,
        keep_connection: bool = False,
        ahead: bool = False,
    ) -> asyncio.Future[Any]:
        """Send a request; the future gets its response. Any number of calls may be open; they are pipelined.

        Arguments:
            request: any request message.
            timeout_s: deadline in seconds for the response; None = that of the connection.
            version_max: the highest version to use; None = the highest that both sides know.
            keep_connection: a timeout fails this call only; otherwise it ends the connection (`ClientCore`).
            ahead: it leaves before the requests that `hold` retains.

        Returns:
            A future. A cancelled future drops the response. It fails with KafkaTimeoutError, KafkaConnectionError or
            DecodeError.

        Raises:
            UnsupportedVersionError: the broker does not serve the request. EncodeError: a value does not fit.
        """
        version = self._core.version(type(request), version_max)
        future: asyncio.Future[Any] = self._driver.loop.create_future()
        self._submit(request, version, *completing(future), timeout_s, keep_connection=keep_connection, ahead=ahead)
        return future

    def hold(self) -> None:
        """Retain requests until `release`; those with `ahead` leave."""
        self._core.hold()

    def release(self) -> None:
        """Send the requests that were retained since `hold`, in the order of their calls."""
        self._core.release()
        self._driver.schedule()

    def submit(
        self,
        request: Request,
        answer: Answer,
        fail: Fail,
        *,
        timeout_s: float | None = None,
        version_max: int | None = None,
        keep_connection: bool = False,
    ) -> None:
        """Send a request as `call`; `answer(response)` or `fail(error)` is called instead of a future.

        Arguments:
            request: its newest version that both sides have is sent.
            answer, fail: one of them is called, once.
            timeout_s: seconds until it fails; None = that of the connection.
            version_max: limit of the version; None = none.
            keep_connection: a timeout fails this call only; otherwise it ends the connection.
        """
        version = self._core.version(type(request), version_max)
        self._submit(request, version, answer, fail, timeout_s, keep_connection=keep_connection)

    def send(
        self,
        request: Request,
        written: Callable[[], object],
        fail: Fail,
        *,
        timeout_s: float | None = None,
        version_max: int | None = None,
    ) -> None:
        """Send a request without a response (Produce with acks=0).

        Arguments:
            request: the request message.
            written: called when the transport has accepted it; a transport whose broker does not read accepts nothing.
            fail: called with the error instead: KafkaTimeoutError or KafkaConnectionError.
            timeout_s: deadline in seconds for `written`, as in `call`.
            version_max: the highest version to use; None = the highest that both sides know.

        Raises:
            UnsupportedVersionError, EncodeError: as `call`.
        """
        version = self._core.version(type(request), version_max)
        self._core.send(request, version, self._deadline(timeout_s), written, fail)
        self._driver.schedule()

    def _submit(
        self,
        request: Request,
        version: int,
        answer: Answer,
        fail: Fail,
        timeout_s: float | None = None,
        *,
        keep_connection: bool = False,
        ahead: bool = False,
    ) -> None:
        deadline = self._deadline(timeout_s)
        self._core.call(request, version, deadline, answer, fail, keep_connection=keep_connection, ahead=ahead)
        self._driver.schedule()

    def _deadline(self, timeout_s: float | None) -> float:
        return self._driver.loop.time() + (self._timeout_s if timeout_s is None else timeout_s)

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name="kafkalite", client_software_version=VERSION)
        version = ApiVersionsRequest.versions[1]
        response = await self._ask_versions(request, version)
        if response.error_code == KafkaErrorCode.UNSUPPORTED_VERSION:
            served = [each.max_version for each in response.api_keys if each.api_key == ApiVersionsRequest.api_key]
            response = await self._ask_versions(request, min(version, served[0] if served else 0))
        if response.error_code:
            raise error_for(response.error_code)
        self._core.api_versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    def _ask_versions(self, request: ApiVersionsRequest, version: int) -> asyncio.Future[ApiVersionsResponse]:
        future: asyncio.Future[ApiVersionsResponse] = self._driver.loop.create_future()
        self._submit(request, version, *completing(future))
        return future


def _new_session(
    connection: ClientConnection, sasl: ClientMechanism, name: str, random: Callable[[], float]
) -> "SaslSession":
    from kafkalite.net.client.session import SaslSession  # its messages: connections without SASL do not need them

    return SaslSession(connection, sasl, name, random)


def completing(future: asyncio.Future[Any]) -> tuple[Answer, Fail]:
    """The callbacks that complete a future, unless its owner has cancelled it."""

    def answer(response: object) -> None:
        if not future.done():
            future.set_result(response)

    def fail(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    return answer, fail


class _Driver(TransportWriter, asyncio.BufferedProtocol):
    """Moves bytes between a core and a transport, and keeps its timer.

    Attributes: those of `TransportWriter`.
        ended: the connection has ended.
        secure: it uses TLS.
        proven: as of `ClientConnection`.
    """

    def __init__(
        self,
        core: ClientCore,
        on_end: Callable[[KafkaError], object] | None,
        on_error: Callable[[Exception], object] | None,
        session: "SaslSession | None",
    ) -> None:
        super().__init__(core, asyncio.get_running_loop())
        self.on_end = on_end
        self.on_error = on_error
        self.session = session
        self.secure = self.proven = False
        self.ended = asyncio.Event()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.core.begin()
        self.writable = True

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._call_all(self.flush)

    def schedule(self) -> None:
        """Write what the core has at the end of this loop iteration, and fire at its next deadline."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._write_scheduled)

    def _write_scheduled(self) -> None:
        self._scheduled = False
        self._call_all(self.flush)

    def _call_all(self, *functions: Callable[[], object]) -> None:
        """Call every function for the loop; an exception is one of a callback."""
        try:
            call_all(*functions)
        except Exception as error:
            self.report(error)

    def report(self, error: Exception) -> None:
        if self.on_error is not None:
            self.on_error(error)
            return
        message = f"{self.core.name}: the callback of a response has failed"
        self.loop.call_exception_handler({"message": message, "exception": error, "protocol": self})

    def _expired(self) -> None:
        self._timer, self.timer_at = None, inf
        self._call_all(lambda: self.core.expire(self.loop.time()), self.close_failed, self.flush)

    def close_failed(self) -> None:
        """Close the transport if the core has failed."""
        if self.core.failure is not None and self.transport is not None:
            self.transport.abort()
            self._report_end(self.core.failure)

    def _report_end(self, failure: KafkaError) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(failure)

    def joined(self, parts: list[Any]) -> Iterator[Any]:
        return _joined(parts)

    def set_timer(self, now: float) -> None:
        """Fire at the next deadline, or when the throttle time of bytes that wait has passed."""
        at = self.core.next_deadline
        if self.core.has_outgoing and self.core.throttled_until > now:
            at = min(at, self.core.throttled_until)
        if at >= self.timer_at:
            return  # it fires early, and is set again
        if self._timer is not None:
            self._timer.cancel()
        self.timer_at = at
        self._timer = self.loop.call_at(at, self._expired)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self.session is not None:
            self.session.close()
        core, secure, with_sasl, proven = self.core, self.secure, self.session is not None, self.proven
        failure = core.failure or why_ended(
            core.name, core.responses, error, secure=secure, with_sasl=with_sasl, proven=proven
        )
        self.ended.set()
        self._call_all(lambda: self._report_end(failure), lambda: self.core.end(failure))
        self.on_error = None  # who holds the connection does not hold its client


def _joined(parts: Sequence[Any]) -> Iterator[Any]:
    """Join neighbours below `PART_BYTES_MIN`; larger parts are yielded as they are."""
    small: list[Any] = []
    for part in parts:
        if len(part) < PART_BYTES_MIN:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield part
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)
