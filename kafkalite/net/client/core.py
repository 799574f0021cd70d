"""The client half of a connection without I/O: requests in, bytes out; bytes in, responses out.

`ClientCore` knows no socket, clock or event loop. A driver writes `take_outgoing()`, reads into `free_space()`, calls
`expire` at `next_deadline`, and closes the transport once `failure` is set.

Invariants:
1. Requests leave in the order of their calls. Responses arrive in the same order; any other order ends the connection.
2. Each call ends exactly once, by `answer(response)` or by `fail(error)`, within `received`, `expire` or `end`; a
   request without a response by `written()` or `fail(error)`.
3. A request that times out ends the connection, because all later responses are behind its response. With
   `keep_connection` the late response is dropped instead.
4. Large record batches leave as parts of their own and are not copied.
5. After a response with a throttle time no request leaves until that time has passed (KIP-219).
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from kafkalite._speedups.codec.codec import decode, encode_request_parts, read_response_header
from kafkalite.callbacks import call_all, call_each
from kafkalite.errors import (
    DecodeError,
    KafkaConnectionError,
    KafkaError,
    KafkaErrorCode,
    KafkaTimeoutError,
    error_for,
)
from kafkalite.net.client.frames import FrameReader
from kafkalite.protocol.messages.api_versions import ApiVersionsResponse
from kafkalite.protocol.schema import Request, Response, response_class

FRAME_BYTES_MAX = 100 << 20
CORRELATION_ID_MAX = 0x7FFFFFFF
SIZE_BYTES = 4

Answer = Callable[[Any], object]
Fail = Callable[[KafkaError], object]


class PendingCall:
    """A request whose response has not arrived.

    Attributes:
        deadline: in seconds of the driver's clock.
        name: of the request, for error texts.
        ended: `fail` has been called; the response is dropped.
    """

    __slots__ = (
        "answer",
        "correlation_id",
        "deadline",
        "ended",
        "fail",
        "keep_connection",
        "name",
        "response",
        "version",
    )

    def __init__(
        self, request: Request, version: int, correlation_id: int, deadline: float, answer: Answer, fail: Fail
    ) -> None:
        self.name = type(request).__name__
        self.response: type[Response] = response_class(type(request))
        self.version = version
        self.correlation_id = correlation_id
        self.deadline = deadline
        self.answer = answer
        self.fail = fail
        self.keep_connection = False
        self.ended = False


class OneWay(NamedTuple):
    """A request without a response that the transport has not accepted.

    Arguments:
        name: of the request, for error texts.
        deadline, written, fail: as in `ClientCore.send`.
    """

    name: str
    deadline: float
    written: Callable[[], object]
    fail: Fail


class ClientCore:
    """One connection to a broker.

    Arguments:
        name: of the broker in error texts, `host:port`.
        client_id: sent in every request header; None = no client id.
        frame_bytes_max: largest accepted response, in bytes.

    Attributes:
        api_versions: the lowest and the highest version that the broker serves, by API key; set by the driver.
        failure: why the connection cannot be used, and must be closed if it is open; None while it is usable.
        next_deadline: time of the next `expire`, in seconds of the driver's clock; infinity = none.
        throttled_until: until then, in seconds of the driver's clock, `take_outgoing` returns nothing.
    """

    def __init__(self, name: str, client_id: str | None, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.name = name
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.failure: KafkaError | None = KafkaConnectionError(f"{name}: not connected")
        self.next_deadline = inf
        self.throttled_until = -inf
        self._client_id = client_id
        self._frames = FrameReader(frame_bytes_max)
        self._pending: deque[PendingCall] = deque()
        self._unwritten: list[OneWay] = []
        self._outgoing: list[Any] = []
        self._correlation_id = 0
        self._responses = 0

    @property
    def open_calls(self) -> int:
        """Number of requests whose responses have not arrived."""
        return len(self._pending)

    @property
    def responses(self) -> int:
        """Number of responses that have arrived."""
        return self._responses

    def version(self, request: type[Request], version_max: int | None = None) -> int:
        """Return the highest version of a request that both sides know.

        Arguments:
            request: the class of the request.
            version_max: the highest version that the caller accepts; None = any.

        Raises:
            UnsupportedVersionError: there is no such version.
        """
        served = self.api_versions.get(request.api_key)
        name = request.__name__
        if served is None:
            raise error_for(KafkaErrorCode.UNSUPPORTED_VERSION, f"{self.name} does not serve {name}")
        highest = min(served[1], request.versions[1] if version_max is None else version_max)
        if highest < max(served[0], request.versions[0]):
            raise error_for(
                KafkaErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} serves {name} v{served[0]}-{served[1]}, this client v{request.versions[0]}-"
                f"{request.versions[1]}",
            )
        return highest

    def begin(self) -> None:
        """The transport is connected: calls are accepted from now on."""
        self.failure = None

    def call(
        self,
        request: Request,
        version: int,
        deadline: float,
        answer: Answer,
        fail: Fail,
        *,
        keep_connection: bool = False,
    ) -> None:
        """Queue a request.

        Arguments:
            request: any request message.
            version: of the request and its response.
            deadline: time by which the response must have arrived, in seconds of the driver's clock.
            answer: called with the response.
            fail: called with the error instead: KafkaTimeoutError, KafkaConnectionError or DecodeError.
            keep_connection: a timeout of this request does not end the connection.

        Raises:
            EncodeError: a value does not fit; nothing is queued.
        """
        if self.failure is not None:
            fail(self.failure)
            return
        pending = PendingCall(request, version, self._write(request, version), deadline, answer, fail)
        pending.keep_connection = keep_connection
        self._pending.append(pending)
        self.next_deadline = min(self.next_deadline, deadline)

    def send(self, request: Request, version: int, deadline: float, written: Callable[[], object], fail: Fail) -> None:
        """Queue a request without a response (Produce with acks=0).

        Arguments:
            request: any request message.
            version: of the request.
            deadline: time by which the transport must have accepted it, in seconds of the driver's clock; later the
                connection ends.
            written: called when the transport has accepted it.
            fail: called with the error instead: KafkaTimeoutError or KafkaConnectionError.

        Raises:
            EncodeError: a value does not fit; nothing is queued.
        """
        if self.failure is not None:
            fail(self.failure)
            return
        self._write(request, version)
        self._unwritten.append(OneWay(type(request).__name__, deadline, written, fail))
        self.next_deadline = min(self.next_deadline, deadline)

    def written(self) -> None:
        """The transport has accepted what `take_outgoing` has returned."""
        unwritten, self._unwritten = self._unwritten, []
        call_each(lambda each: each.written(), unwritten)

    def _write(self, request: Request, version: int) -> int:
        correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        parts = encode_request_parts(request, version, correlation_id, self._client_id)
        parts[0] = sum(map(len, parts)).to_bytes(SIZE_BYTES, "big") + parts[0]
        self._outgoing += parts
        self._correlation_id = correlation_id
        return correlation_id

    def take_outgoing(self, now: float) -> Sequence[Any]:
        """Return the bytes-like objects to write, in order; empty while the broker throttles this client."""
        if not self._outgoing or now < self.throttled_until:
            return ()
        parts, self._outgoing = self._outgoing, []
        return parts

    @property
    def has_outgoing(self) -> bool:
        """Whether requests wait for `take_outgoing`."""
        return bool(self._outgoing)

    def free_space(self) -> memoryview:
        """Return memory for the bytes that arrive next; call `received` after a read."""
        return self._frames.free_space()

    def received(self, count: int, now: float) -> None:
        """Complete the calls whose responses are whole with the next `count` bytes in `free_space`.

        Arguments:
            count: number of bytes.
            now: in seconds of the driver's clock.

        An exception of a callback is raised after all calls are completed.
        """
        call_each(lambda frame: self._receive(frame, now), self._whole_frames(count))

    def _whole_frames(self, count: int) -> Iterator[Any]:
        try:
            yield from self._frames.received(count)
        except KafkaConnectionError as error:
            self.failure = KafkaConnectionError(f"{self.name}: {error}")

    def _receive(self, frame: Any, now: float) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if self.failure is not None:
            return
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            expected = self._pending[0].correlation_id if self._pending else "none"
            text = f"{self.name}: response with correlation id {correlation_id}, expected {expected}"
            self.failure = KafkaConnectionError(text)
            return
        pending = self._pending.popleft()
        self._responses += 1
        if not self._pending:
            self.next_deadline = min((each.deadline for each in self._unwritten), default=inf)
        try:
            response = _decode(pending, frame)
        except DecodeError as error:
            detail = f"{self.name}, response of {pending.name} v{pending.version}: {error.detail}"
            self._fail(pending, DecodeError(error.kind, detail, error.position, error.field))
            return
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttled_until = max(self.throttled_until, now + throttle_ms / 1000)
        if not pending.ended:
            pending.ended = True
            pending.answer(response)

    def expire(self, now: float) -> None:
        """Fail the calls whose deadlines have passed; sets `failure` unless all of them keep the connection."""
        late = [pending for pending in self._pending if pending.deadline <= now and not pending.ended]
        unwritten = [each for each in self._unwritten if each.deadline <= now]
        self._unwritten = [each for each in self._unwritten if each.deadline > now]
        deadlines = chain(
            (each.deadline for each in self._pending if not each.ended and each.deadline > now),
            (each.deadline for each in self._unwritten),
        )
        self.next_deadline = min(deadlines, default=inf)
        ending = [
            *(pending.name for pending in late if not pending.keep_connection),
            *(each.name for each in unwritten),
        ]
        if ending:
            self.failure = KafkaConnectionError(f"{self.name}: connection closed, {ending[0]} timed out")
        call_all(lambda: call_each(self._time_out, late), lambda: call_each(self._time_out_one_way, unwritten))

    def _time_out(self, pending: PendingCall) -> None:
        self._fail(pending, KafkaTimeoutError(f"{self.name} did not answer {pending.name} in time"))

    def _time_out_one_way(self, unwritten: OneWay) -> None:
        unwritten.fail(KafkaTimeoutError(f"{self.name} did not accept {unwritten.name} in time"))

    def end(self, error: KafkaError) -> None:
        """Fail all open calls: the connection has ended. Later calls fail with the same error."""
        self.failure = error
        pending, self._pending = self._pending, deque()
        unwritten, self._unwritten = self._unwritten, []
        self._outgoing.clear()
        self.next_deadline = inf
        call_all(
            lambda: call_each(lambda each: self._fail(each, error), pending),
            lambda: call_each(lambda each: each.fail(error), unwritten),
        )

    @staticmethod
    def _fail(pending: PendingCall, error: KafkaError) -> None:
        if not pending.ended:
            pending.ended = True
            pending.fail(error)


def _decode(pending: PendingCall, frame: Any) -> Response:
    _, body = read_response_header(pending.response, pending.version, frame)
    version = pending.version
    if pending.response is ApiVersionsResponse and bytes(body[:2]) == b"\0\x23":
        version = 0  # UNSUPPORTED_VERSION is always answered in v0
    return decode(pending.response, version, body)
