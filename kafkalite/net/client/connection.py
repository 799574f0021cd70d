"""A connection to a broker on asyncio: version negotiation, pipelined calls with deadlines, one write per iteration.

Invariants:
1. `call` is a plain function. It queues the request and returns a future; no task is created.
2. All requests of one event loop iteration leave together, at its end.
3. One timer per connection: it fires at the nearest deadline, or when the broker's throttle time has passed.
4. When the connection ends, every open call fails with a KafkaConnectionError that names the reason.
"""

import asyncio
import os
import re
import socket
import ssl as ssl_module
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf
from typing import Any, Self, cast

import aiohappyeyeballs

from kafkalite._version import VERSION
from kafkalite.callbacks import call_all
from kafkalite.errors import DecodeError, KafkaConnectionError, KafkaError, KafkaErrorCode, KafkaTimeoutError, error_for
from kafkalite.net.client.core import FRAME_BYTES_MAX, Answer, ClientCore, Fail
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.schema import Request

ATTEMPT_DELAY_S = 0.25
"""How long one address of a host may take before the next one is tried beside it (RFC 8305: 250 ms)."""

PART_BYTES_MIN = 16 << 10
"""Parts below this size are joined with their neighbours: a copy is cheaper than a write of their own."""

NO_ANSWER = " before the first response; is it a broker's port, without TLS and below max.connections?"
_ATTEMPT = re.compile(r"\[Errno (\d+)\]")

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
        authenticate: called with the connection after the negotiation of versions, before the first call (SASL).
        dial: connects; another one than TCP in simulations.
        on_end: called once with the reason when the connection ends, before its open calls fail.
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
        authenticate: "Callable[[ClientConnection], Awaitable[None]] | None" = None,
        dial: Dial = dial,
        on_end: Callable[[KafkaError], object] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._core = ClientCore(f"{host}:{port}", client_id, frame_bytes_max)
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._ssl = ssl
        self._authenticate = authenticate
        self._dial = dial
        self._driver = _Driver(self._core, on_end)

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
        """
        name = self._core.name
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._dial(lambda: self._driver, self.host, self.port, self._ssl)
                await self._negotiate()
                if self._authenticate is not None:
                    await self._authenticate(self)
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
    ) -> asyncio.Future[Any]:
        """Send a request; the future gets its response. Any number of calls may be open; they are pipelined.

        Arguments:
            request: any request message.
            timeout_s: deadline in seconds for the response; None = that of the connection.
            version_max: the highest version to use; None = the highest that both sides know.
            keep_connection: a timeout fails this call only; otherwise it ends the connection (`ClientCore`).

        Returns:
            A future. A cancelled future drops the response. It fails with KafkaTimeoutError, KafkaConnectionError or
            DecodeError.

        Raises:
            UnsupportedVersionError: the broker does not serve the request. EncodeError: a value does not fit.
        """
        version = self._core.version(type(request), version_max)
        future: asyncio.Future[Any] = self._driver.loop.create_future()
        self._submit(request, version, *completing(future), timeout_s, keep_connection=keep_connection)
        return future

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
        """Send a request as `call`; `answer(response)` or `fail(error)` is called instead of a future."""
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
    ) -> None:
        deadline = self._deadline(timeout_s)
        self._core.call(request, version, deadline, answer, fail, keep_connection=keep_connection)
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

    def _ask_versions(self, request: ApiVersionsRequest, version: int) -> asyncio.Future[ApiVersionsResponse]:
        future: asyncio.Future[ApiVersionsResponse] = self._driver.loop.create_future()
        self._submit(request, version, *completing(future))
        return future


def completing(future: asyncio.Future[Any]) -> tuple[Answer, Fail]:
    """The callbacks that complete a future, unless its owner has cancelled it."""

    def answer(response: object) -> None:
        if not future.done():
            future.set_result(response)

    def fail(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    return answer, fail


class _Driver(asyncio.BufferedProtocol):
    """Moves bytes between a core and a transport, and keeps its timer.

    Attributes:
        ended: the connection has ended.
    """

    def __init__(self, core: ClientCore, on_end: Callable[[KafkaError], object] | None) -> None:
        self.core = core
        self.on_end = on_end
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.ended = asyncio.Event()
        self._scheduled = False
        self._writable = False  # the transport accepts bytes
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.core.begin()
        self._writable = True

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.flush()

    def schedule(self) -> None:
        """Write what the core has at the end of this loop iteration, and fire at its next deadline."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._write_scheduled)

    def _write_scheduled(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write what the core has, unless the transport is full."""
        now = self.loop.time()  # once: between two reads the throttle time may pass, and no timer would be set
        parts: Sequence[Any] = ()
        if self.transport is not None and self._writable:
            parts = self.core.take_outgoing(now)
            for part in _joined(parts):
                if self.transport.is_closing():
                    break  # a write has failed, and the end follows; asyncio would log further writes
                self.transport.write(part)
        self._set_timer(now)
        if parts:
            self.core.written()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.core.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            call_all(lambda: self.core.received(nbytes, self.loop.time()), self._after)
        except Exception as error:  # the transport would end the connection, but only one callback has failed
            message = f"{self.core.name}: the callback of a response has failed"
            self.loop.call_exception_handler({"message": message, "exception": error, "protocol": self})

    def _expired(self) -> None:
        self._timer, self._timer_at = None, inf
        call_all(lambda: self.core.expire(self.loop.time()), self._after, self.flush)

    def _after(self) -> None:
        """Close the transport if the core has failed."""
        if self.core.failure is not None and self.transport is not None:
            self.transport.abort()
            self._report_end(self.core.failure)

    def _report_end(self, failure: KafkaError) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(failure)

    def _set_timer(self, now: float) -> None:
        at = self.core.next_deadline
        if self.core.has_outgoing and self.core.throttled_until > now:
            at = min(at, self.core.throttled_until)
        if at >= self._timer_at:
            return  # it fires early, and is set again
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._expired)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self._timer is not None:
            self._timer.cancel()
        reason = (
            "the connection was closed"
            if error is None
            else reason_of(error)
            if isinstance(error, OSError)
            else str(error)
        )
        hint = "" if self.core.responses else NO_ANSWER
        failure = self.core.failure or KafkaConnectionError(f"{self.core.name}: {reason}{hint}")
        self.ended.set()
        call_all(lambda: self._report_end(failure), lambda: self.core.end(failure))


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


def reason_of(error: OSError | UnicodeError) -> str:
    """Return why there is no connection, in the system's words; asyncio lists one attempt for each address instead."""
    numbers = map(int, _ATTEMPT.findall(str(error)))
    texts = ", ".join(dict.fromkeys(map(os.strerror, numbers)))
    return texts or (error.strerror if isinstance(error, OSError) else None) or str(error)
