"""The client half of a connection: version negotiation, pipelined calls with deadlines, typed errors, bounded frames.

Used by the command line, by followers and the controller, and by the SDK. Laws: answers come in the order of their
requests, and one that does not ends the connection; a call that ran out of time is forgotten, its late answer dropped;
when the connection ends, every open call fails with KafkaConnectionError. Versions: the highest that both sides know
(KIP-35); a broker that does not know our ApiVersions answers v0 with its range, which is then asked again.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl as ssl_module
import sys
from collections import deque
from typing import Any, NamedTuple, cast

from kafkalite._speedups.codec.codec import decode, encode_request, read_response_header
from kafkalite._version import VERSION
from kafkalite.errors import DecodeError, KafkaConnectionError, KafkaErrorCode, KafkaTimeoutError, error_for
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.schema import Request, Response

FRAME_BYTES_MAX = 100 << 20
SIZE_BYTES = 4
CORRELATION_ID_MAX = 0x7FFFFFFF
NO_ANSWER = " before the first answer; is it a broker's port, without TLS and below max.connections?"
_ATTEMPT = re.compile(r"\[Errno (\d+)\]")


class PendingCall(NamedTuple):
    """A request on its way and who waits for its answer."""

    correlation_id: int
    response: type[Response]
    version: int
    answer: asyncio.Future[Any]


def response_class(request: type[Request]) -> type[Response]:
    """The class of the answer: it stands beside its request, in one module."""
    name = request.__name__.removesuffix("Request") + "Response"
    return cast(type[Response], getattr(sys.modules[request.__module__], name))


class Peer:
    """One connection to a broker, an async context manager."""

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
    ) -> None:
        """Args:
        host, port: the broker.
        client_id: told in every request.
        timeout_s: deadline of a call in seconds, unless the call names its own.
        connect_timeout_s: deadline for connecting and negotiating together, in seconds.
        frame_bytes_max: the largest answer that is taken.
        ssl: a context for TLS.
        """
        self.host = host
        self.port = port
        self.api_versions: dict[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._ssl = ssl
        self._wire = _Wire(f"{host}:{port}", frame_bytes_max)
        self._correlation_id = 0

    async def __aenter__(self) -> Peer:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """The connection has ended, or was never made."""
        return self._wire.transport is None

    async def connect(self) -> None:
        """Connect and learn the broker's versions. Raises KafkaConnectionError or KafkaTimeoutError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await loop.create_connection(lambda: self._wire, self.host, self.port, ssl=self._ssl)
                await self._negotiate()
        except TimeoutError as error:
            await self.close()
            text = f"{self._wire.name} did not answer in {self._connect_timeout_s} s; is a broker there, and reachable?"
            raise KafkaTimeoutError(text) from error
        except OSError as error:
            await self.close()
            if isinstance(error, KafkaConnectionError):
                raise
            raise KafkaConnectionError(
                f"cannot connect to {self._wire.name}: {reason_of(error)}; is a broker there?"
            ) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the connection; open calls fail."""
        await self._wire.close()

    def version(self, request: type[Request], version_max: int | None = None) -> int:
        """The version a call would use. Raises UnsupportedVersionError when there is none that both know."""
        served = self.api_versions.get(request.api_key)
        name = request.__name__
        if served is None:
            raise error_for(KafkaErrorCode.UNSUPPORTED_VERSION, f"{self._wire.name} does not serve {name}")
        highest = min(served[1], request.versions[1] if version_max is None else version_max)
        if highest < max(served[0], request.versions[0]):
            raise error_for(
                KafkaErrorCode.UNSUPPORTED_VERSION,
                f"{self._wire.name} serves {name} v{served[0]}-{served[1]}, this client v{request.versions[0]}-"
                f"{request.versions[1]}",
            )
        return highest

    async def call(self, request: Request, *, timeout_s: float | None = None, version_max: int | None = None) -> Any:
        """Send a request and return its answer. Several calls may be open at once; they are pipelined.

        Args:
            request: any request message.
            timeout_s: deadline in seconds for this call.
            version_max: do not use a version above this one.

        Raises:
            KafkaTimeoutError: no answer in time. KafkaConnectionError: the connection ended first.
            UnsupportedVersionError: the broker does not serve it. EncodeError, DecodeError: bytes that do not fit.
        """
        version = self.version(type(request), version_max)
        return await self._within(self._call(request, version), timeout_s, type(request).__name__)

    async def send(self, request: Request, *, timeout_s: float | None = None, version_max: int | None = None) -> None:
        """Send a request that gets no answer (Produce with acks=0); returns when the socket took it."""
        version = self.version(type(request), version_max)
        frame = encode_request(request, version, self._next_id(), self._client_id)
        await self._within(self._wire.send(frame), timeout_s, type(request).__name__)

    async def _within(self, work: Any, timeout_s: float | None, what: str) -> Any:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await work
        except TimeoutError as error:
            raise KafkaTimeoutError(f"{self._wire.name} did not answer {what} in {limit_s} s") from error

    async def _call(self, request: Request, version: int) -> Any:
        return await self._wire.call(
            encode_request(request, version, self._next_id(), self._client_id),
            PendingCall(
                self._correlation_id,
                response_class(type(request)),
                version,
                asyncio.get_running_loop().create_future(),
            ),
        )

    def _next_id(self) -> int:
        self._correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        return self._correlation_id

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name="kafkalite", client_software_version=VERSION)
        version = ApiVersionsRequest.versions[1]
        answer: ApiVersionsResponse = await self._call(request, version)
        if answer.error_code == KafkaErrorCode.UNSUPPORTED_VERSION:
            served = [each.max_version for each in answer.api_keys if each.api_key == ApiVersionsRequest.api_key]
            answer = await self._call(request, min(version, served[0] if served else 0))
        if answer.error_code:
            raise error_for(answer.error_code)
        self.api_versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


class _Wire(asyncio.Protocol):
    """Frames in both directions, and who waits for which."""

    def __init__(self, name: str, frame_bytes_max: int) -> None:
        self.name = name
        self.transport: asyncio.Transport | None = None
        self._frame_bytes_max = frame_bytes_max
        self._waiting: deque[PendingCall] = deque()
        self._buffer = bytearray()
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self._reason = "the connection was closed"
        self._hint = NO_ANSWER  # what follows the reason

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, frame: bytes) -> None:
        await self._writable.wait()
        if self.transport is None:
            raise KafkaConnectionError(f"{self.name}: {self._reason}")
        self.transport.writelines((len(frame).to_bytes(SIZE_BYTES, "big"), frame))

    async def call(self, frame: bytes, waiting: PendingCall) -> Any:
        await self._writable.wait()
        if self.transport is None:
            raise KafkaConnectionError(f"{self.name}: {self._reason}")
        self._waiting.append(waiting)
        self.transport.writelines((len(frame).to_bytes(SIZE_BYTES, "big"), frame))
        return await waiting.answer

    def data_received(self, data: bytes) -> None:
        whole: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            # A size out of bounds is refused below, not waited for.
            size = min(self._size(self._buffer, 0), self._frame_bytes_max)
            if len(self._buffer) < SIZE_BYTES + max(0, size):
                return
            whole, self._buffer = self._buffer, bytearray()
        at = 0
        while len(whole) - at >= SIZE_BYTES:
            size = self._size(whole, at)
            if not SIZE_BYTES <= size <= self._frame_bytes_max:
                allowed = f"{SIZE_BYTES} to {self._frame_bytes_max}"
                self._fail(f"an answer of {size} bytes, allowed are {allowed}; is it a broker's port, without TLS?")
                return
            if len(whole) - at - SIZE_BYTES < size:
                break
            at += SIZE_BYTES
            # A copy of its own: records in the answer are views of it and may be kept.
            self._answer(bytes(whole[at : at + size]))
            at += size
        self._buffer += memoryview(whole)[at:]

    @staticmethod
    def _size(data: bytes | bytearray, at: int) -> int:
        return int.from_bytes(data[at : at + SIZE_BYTES], "big", signed=True)

    def _answer(self, frame: bytes) -> None:
        correlation_id = self._size(frame, 0)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            self._fail(f"an answer to {correlation_id}, which was not the next one asked")
            return
        self._hint = ""
        waiting = self._waiting.popleft()
        if waiting.answer.done():
            return
        try:
            _, body = read_response_header(waiting.response, waiting.version, frame)
            version = waiting.version
            if waiting.response is ApiVersionsResponse and bytes(body[:2]) == b"\0\x23":
                version = 0  # UNSUPPORTED_VERSION always comes in v0
            waiting.answer.set_result(decode(waiting.response, version, body))
        except DecodeError as error:
            waiting.answer.set_exception(error)

    def _fail(self, reason: str) -> None:
        self._reason, self._hint = reason, ""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if error is not None:
            self._reason = reason_of(error) if isinstance(error, OSError) else str(error)
        self._reason += self._hint
        for waiting in self._waiting:
            if not waiting.answer.done():
                waiting.answer.set_exception(KafkaConnectionError(f"{self.name}: {self._reason}"))
        self._waiting.clear()
        self._buffer.clear()
        self._writable.set()
        self._lost.set()

    async def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
            await self._lost.wait()


def reason_of(error: OSError) -> str:
    """Why there is no connection, in the system's words; asyncio lists its attempts instead, one for each address."""
    numbers = map(int, _ATTEMPT.findall(str(error)))
    return ", ".join(dict.fromkeys(map(os.strerror, numbers))) or error.strerror or str(error)
