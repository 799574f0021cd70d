import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, final

from typing_extensions import Buffer

from kafkalite._speedups.codec.layouts import StructBase
from kafkalite.errors import KafkaError

__all__ = ["ClientCalls", "FrameReader", "PendingCall", "TransportWriter"]

@final
class FrameReader:
    """The receive buffer of one connection.

    Arguments:
        frame_bytes_max: largest accepted frame, in bytes without its size field.
    """

    def __init__(self, frame_bytes_max: int) -> None: ...
    def free_space(self) -> memoryview:
        """Return the memory for the next bytes, at least one; call `received` after a read."""

    def received(self, count: int) -> None:
        """Add `count` bytes in the memory that `free_space` has returned; `next_frame` returns their frames."""

    def next_frame(self) -> Buffer | None:
        """Return the next frame that is whole, without its size; None = more bytes are needed.

        Raises:
            KafkaConnectionError: a size is outside the limits; the stream cannot be read any further.
        """

@final
class PendingCall:
    """A request whose response has not arrived.

    Attributes:
        request: the class of the message.
        version: of the request and its response.
        correlation_id: of the request.
        deadline: in seconds of the driver's clock.
        answer: called with the response.
        fail: called with the error instead.
        keep_connection: a timeout of this request does not end the connection.
        ended: `answer` or `fail` has been called; a later response is dropped.
    """

    ended: bool

    @property
    def request(self) -> type[StructBase]: ...
    @property
    def version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def deadline(self) -> float: ...
    @property
    def answer(self) -> Callable[[Any], object]: ...
    @property
    def fail(self) -> Callable[[KafkaError], object]: ...
    @property
    def keep_connection(self) -> bool: ...
    @property
    def name(self) -> str:
        """The name of the request, for error texts."""

class ClientCalls:
    """The base of `kafkalite.net.client.core.ClientCore`: encodes requests, and completes calls with their responses.

    The subclass defines `earliest_deadline` and `written`.

    Arguments:
        name: of the broker in error texts, `host:port`.
        client_id: sent in every request header; None = no client id.
        frame_bytes_max: largest accepted response, in bytes.
        response_class: returns the class of the response to a class of requests.

    Attributes:
        client_id: as the argument.
        api_versions: the lowest and the highest version that the broker serves, by API key; set by the driver.
        failure: why the connection cannot be used, and must be closed if it is open; None while it is usable.
        next_deadline: time of the next `expire`, in seconds of the driver's clock; infinity = none.
        throttled_until: until then, in seconds of the driver's clock, `take_outgoing` returns nothing.
        responses: number of responses that have arrived.
        pending: the calls whose responses have not arrived, oldest first.
        unwritten: the requests without a response that the transport has not accepted; each has a `deadline`.
        held: retains requests in lists of the same names, `pending`, `unwritten` and `outgoing`; None = they leave.
        outgoing: the bytes-like objects that wait for `take_outgoing`.
    """

    client_id: str | None
    api_versions: dict[int, tuple[int, int]]
    failure: KafkaError | None
    next_deadline: float
    throttled_until: float
    pending: deque[PendingCall]
    unwritten: list[Any]
    outgoing: list[Any]
    held: Any

    def __init__(
        self,
        name: str,
        client_id: str | None,
        frame_bytes_max: int,
        response_class: Callable[[Any], type[StructBase]],
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def responses(self) -> int: ...
    def version(self, request: type[StructBase], version_max: int | None = None) -> int:
        """Return the highest version of a request that both sides know.

        Arguments:
            request: the class of the request.
            version_max: the highest version that the caller accepts; None = any.

        Raises:
            UnsupportedVersionError: there is no such version.
        """

    def call(
        self,
        request: StructBase,
        version: int,
        deadline: float,
        answer: Callable[[Any], object],
        fail: Callable[[KafkaError], object],
        *,
        keep_connection: bool = False,
        ahead: bool = False,
    ) -> None:
        """Queue a request.

        Arguments:
            request: any request message.
            version: of the request and its response.
            deadline: time by which the response must have arrived, in seconds of the driver's clock.
            answer: called with the response.
            fail: called with the error instead: KafkaTimeoutError, KafkaConnectionError or DecodeError.
            keep_connection: a timeout of this request does not end the connection.
            ahead: it leaves before the requests that `held` retains.

        Raises:
            EncodeError: a value does not fit; nothing is queued.
        """

    def write(self, request: StructBase, version: int, outgoing: list[Any]) -> int:
        """Encode a request with the next correlation id, which is returned.

        Arguments:
            request: any request message.
            version: its version.
            outgoing: the list to which the bytes-like objects are appended.

        Raises:
            EncodeError: a value does not fit; nothing is appended.
        """

    def take_outgoing(self, now: float) -> list[Any]:
        """Return the bytes-like objects to write, in order; empty while the broker throttles this client."""

    def earliest_deadline(self) -> float:
        """Return the first deadline of a request that is not written yet; infinity = there is none."""

    def written(self) -> None:
        """The transport has accepted what `take_outgoing` has returned."""

    def free_space(self) -> memoryview:
        """Return memory for the bytes that arrive next; call `received` after a read."""

    def received(self, count: int, now: float) -> None:
        """Complete the calls whose responses are whole with the next `count` bytes in `free_space`.

        Arguments:
            count: number of bytes.
            now: in seconds of the driver's clock.

        An exception of a callback is raised after all calls are completed.
        """

class TransportWriter:
    """The base of the driver of a connection: moves bytes between the core and a transport.

    The subclass is an `asyncio.BufferedProtocol`. It defines `close_failed`, `report`, `joined` and `set_timer`.

    Arguments:
        core: the open calls.
        loop: the event loop.

    Attributes:
        core, loop: the arguments.
        transport: of the connection; None = not connected.
        writable: the transport accepts bytes.
        timer_at: when the timer fires, in seconds of the loop's clock; infinity = there is none.
    """

    transport: asyncio.Transport | None
    writable: bool
    timer_at: float

    def __init__(self, core: ClientCalls, loop: asyncio.AbstractEventLoop) -> None: ...
    @property
    def core(self) -> Any: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    def close_failed(self) -> None:
        """Close the transport if the core has failed."""

    def report(self, error: Exception) -> None:
        """A callback of a response has raised `error`."""

    def joined(self, parts: list[Any]) -> Iterator[Any]:
        """Yield two or more bytes-like objects, small ones joined with their neighbours."""

    def set_timer(self, now: float) -> None:
        """Fire at the core's next deadline, or when the throttle time of bytes that wait has passed.

        Arguments:
            now: in seconds of the loop's clock.
        """

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the bytes that arrive next; `sizehint` is not used."""

    def buffer_updated(self, nbytes: int) -> None:
        """Complete the calls whose responses are whole with the next `nbytes` bytes."""

    def submit_now(
        self,
        request: StructBase,
        answer: Callable[[Any], object],
        fail: Callable[[KafkaError], object],
        deadline: float,
        version_max: int | None = None,
    ) -> bool:
        """Queue a request and write it now; return False, and do nothing, if the connection has ended.

        Arguments:
            request: any request message.
            answer, fail: as of `ClientCalls.call`.
            deadline: for the response, in seconds of the loop's clock.
            version_max: the highest version to use; None = the highest that both sides know.

        Raises:
            UnsupportedVersionError: the broker does not serve the request. EncodeError: a value does not fit.
        """

    def flush(self) -> None:
        """Write what the core has, unless the transport is full."""
