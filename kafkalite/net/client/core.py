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
6. Between `hold` and `release` only requests with `ahead` leave. The others follow them in the order of their calls: a
   broker accepts no other request while a connection authenticates again (KIP-368).
"""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from kafkalite._speedups.net.client_core import ClientCalls, PendingCall
from kafkalite.callbacks import call_all, call_each
from kafkalite.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from kafkalite.protocol.schema import Request, response_class

FRAME_BYTES_MAX = 100 << 20

Answer = Callable[[Any], object]
Fail = Callable[[KafkaError], object]


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


class HeldRequests:
    """Requests that leave after the ones with `ahead`; the lists are those of `ClientCore`."""

    __slots__ = ("outgoing", "pending", "unwritten")

    def __init__(self) -> None:
        self.pending: list[PendingCall] = []
        self.unwritten: list[OneWay] = []
        self.outgoing: list[Any] = []


class ClientCore(ClientCalls):
    """One connection to a broker.

    Arguments:
        name: of the broker in error texts, `host:port`.
        client_id: sent in every request header; None = no client id.
        frame_bytes_max: largest accepted response, in bytes.

    Attributes: those of `ClientCalls`.
    """

    def __init__(self, name: str, client_id: str | None, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        super().__init__(name, client_id, frame_bytes_max, response_class)
        self.held: HeldRequests | None = None

    @property
    def open_calls(self) -> int:
        """Number of requests whose responses have not arrived."""
        return len(self.pending) if self.held is None else len(self.pending) + len(self.held.pending)

    def begin(self) -> None:
        """The transport is connected: calls are accepted from now on."""
        self.failure = None

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
        held = self.held
        self.write(request, version, self.outgoing if held is None else held.outgoing)
        one_way = OneWay(type(request).__name__, deadline, written, fail)
        (self.unwritten if held is None else held.unwritten).append(one_way)
        self.next_deadline = min(self.next_deadline, deadline)

    def written(self) -> None:
        """The transport has accepted what `take_outgoing` has returned."""
        unwritten, self.unwritten = self.unwritten, []
        call_each(lambda each: each.written(), unwritten)

    def hold(self) -> None:
        """Retain the requests of later calls until `release`; those with `ahead` leave."""
        assert self.held is None, "already held"
        self.held = HeldRequests()

    def release(self) -> None:
        """Queue the requests that `hold` has retained. Does nothing after the end of the connection."""
        held, self.held = self.held, None
        if held is not None:
            self.pending += held.pending
            self.unwritten += held.unwritten
            self.outgoing += held.outgoing

    @property
    def has_outgoing(self) -> bool:
        """Whether requests wait for `take_outgoing`."""
        return bool(self.outgoing)

    def earliest_deadline(self) -> float:
        """Return the first deadline of a request that is not written yet; infinity = there is none."""
        deadlines = [each.deadline for each in self._all_unwritten()]
        if self.held is not None:
            deadlines += [each.deadline for each in self.held.pending]
        return min(deadlines, default=inf)

    def expire(self, now: float) -> None:
        """Fail the calls whose deadlines have passed; sets `failure` unless all of them keep the connection."""
        late = [pending for pending in self._all_pending() if pending.deadline <= now and not pending.ended]
        unwritten = [each for each in self._all_unwritten() if each.deadline <= now]
        self.unwritten = [each for each in self.unwritten if each.deadline > now]
        if self.held is not None:
            self.held.unwritten = [each for each in self.held.unwritten if each.deadline > now]
        deadlines = chain(
            (each.deadline for each in self._all_pending() if not each.ended and each.deadline > now),
            (each.deadline for each in self._all_unwritten()),
        )
        self.next_deadline = min(deadlines, default=inf)
        ending = [
            *(pending.name for pending in late if not pending.keep_connection),
            *(each.name for each in unwritten),
        ]
        if ending:
            self.failure = KafkaConnectionError(f"{self.name}: connection closed, {ending[0]} timed out")
        call_all(lambda: call_each(self._time_out, late), lambda: call_each(self._time_out_one_way, unwritten))

    def _all_pending(self) -> Iterable[PendingCall]:
        return self.pending if self.held is None else chain(self.pending, self.held.pending)

    def _all_unwritten(self) -> Iterable[OneWay]:
        return self.unwritten if self.held is None else chain(self.unwritten, self.held.unwritten)

    def _time_out(self, pending: PendingCall) -> None:
        self._fail(pending, KafkaTimeoutError(f"{self.name} did not answer {pending.name} in time"))

    def _time_out_one_way(self, unwritten: OneWay) -> None:
        unwritten.fail(KafkaTimeoutError(f"{self.name} did not accept {unwritten.name} in time"))

    def end(self, error: KafkaError) -> None:
        """Fail all open calls: the connection has ended. Later calls fail with the same error."""
        self.failure = error
        self.release()
        pending, self.pending = self.pending, deque()
        unwritten, self.unwritten = self.unwritten, []
        self.outgoing.clear()
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
