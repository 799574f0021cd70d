"""Calls from this broker to the other brokers of its cluster, each with a time limit.

1. Each call ends once, never inside `call`: with the response, or with a Kafka error code. REQUEST_TIMED_OUT: no
   response within the time limit; COORDINATOR_NOT_AVAILABLE: the broker is not alive, or the connection has failed.
2. A broker has one connection, which is made by the first call. It ends when the broker has another address, or is not
   alive any more. When a call exceeds the time limit, later calls use another connection; earlier ones still may end.
3. Lists, which may keep the other broker busy for long, have a connection of their own, so that no other call waits for
   them. They are sent one at a time; the limit includes the wait. A list that exceeds it ends with its connection.
4. At most `OPEN_MAX` calls are open per broker; further ones fail with THROTTLING_QUOTA_EXCEEDED.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kafkalite.callbacks import End, SerialExecutor
from kafkalite.clock import Clock, Timer
from kafkalite.cluster.peer import Peer
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Endpoint
from kafkalite.net.peer_dial import PeerDial
from kafkalite.protocol.schema import Request

OPEN_MAX = 1_000
LIMITS = 3  # that a connection waits for a response: it is closed after two


class CallResult(NamedTuple):
    """The end of a call: the response, or an error code.

    Arguments:
        response: None with an error.
        error: 0 = none.
    """

    response: Any
    error: int = 0


CallDone = Callable[[CallResult], object]


class Route(NamedTuple):
    """What has a connection: the calls to a broker, or the lists of it."""

    broker_id: int
    is_list: bool


class BrokerPeers:
    """The other brokers.

    Arguments:
        endpoints: returns the address of each live broker for brokers, by its id.
        client_id: sent with each request.
        dial: connects and logs in.
        clock: for the time limit.
        limit_ms: returns the time limit of a call.
    """

    def __init__(
        self,
        endpoints: Callable[[], dict[int, Endpoint]],
        client_id: str,
        dial: PeerDial,
        clock: Clock,
        limit_ms: Callable[[], int],
    ) -> None:
        self._endpoints = endpoints
        self._client_id = client_id
        self._dial = dial
        self._clock = clock
        self._limit_ms = limit_ms
        self._peers: dict[Route, Peer] = {}
        self._lists = SerialExecutor()  # by broker
        self._slow: set[Peer] = set()
        self._open: dict[int, dict[OpenCall, None]] = {}  # by broker
        self._closed = False

    def call(
        self,
        broker_id: int,
        request: Request,
        then: CallDone,
        *,
        is_list: bool = False,
        version_max: int | None = None,
    ) -> None:
        """Send a request to a broker; `then` is called once with its result.

        Arguments:
            broker_id: of the other broker.
            request: any request.
            then: called with the result.
            is_list: the response may take long, as that about all groups.
            version_max: the highest version to use; None = the highest that both brokers have.
        """
        opened = self._open.setdefault(broker_id, {})
        call = OpenCall(then, opened)
        endpoints = self._endpoints()
        endpoint = endpoints.get(broker_id)
        self._drop_changed(endpoints)
        opened[call] = None
        if endpoint is None or self._closed:
            self._end_soon(call, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif len(opened) > OPEN_MAX:
            self._end_soon(call, KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED)
        else:
            limit_s = self._limit_ms() / 1000
            call.timer = self._clock.call_at(self._clock.monotonic() + limit_s, self._late, call, limit_s)
            send = partial(self._send, call, request, version_max, Route(broker_id, is_list), endpoint, limit_s)
            if is_list:
                self._lists.run(broker_id, partial(call.run, send))
            else:
                send()

    def brokers_changed(self) -> None:
        """End the calls to brokers that are not alive any more, or have another address."""
        self._drop_changed(self._endpoints())

    def disconnect(self, broker_id: int) -> None:
        """End the connections to a broker, and its calls."""
        for route in [each for each in self._peers if each.broker_id == broker_id]:
            self._drop(route)

    def close(self) -> None:
        """End the connections; open calls fail with COORDINATOR_NOT_AVAILABLE, as do later ones."""
        self._closed = True
        self._drop_changed({})
        for peer in list(self._slow):
            self._close_slow(peer)
        for call in [call for opened in self._open.values() for call in opened]:
            call.end(CallResult(None, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _send(
        self,
        call: "OpenCall",
        request: Request,
        version_max: int | None,
        route: Route,
        endpoint: Endpoint,
        limit_s: float,
    ) -> None:
        peer = self._peer(route, endpoint, limit_s)
        call.sent = route, peer
        peer.call(request, partial(answered, call), partial(failed, call), version_max)

    def _late(self, call: "OpenCall", limit_s: float) -> None:
        """End a call at its time limit. The calls that use its connection end within another one."""
        if call.sent is not None and self._peers.get(call.sent[0]) is call.sent[1]:
            route, peer = call.sent
            del self._peers[route]
            self._slow.add(peer)
            wait_s = 0.0 if route.is_list else limit_s
            self._clock.call_at(self._clock.monotonic() + wait_s, self._close_slow, peer)
        call.end(CallResult(None, KafkaErrorCode.REQUEST_TIMED_OUT))

    def _close_slow(self, peer: Peer) -> None:
        if peer in self._slow:
            self._slow.remove(peer)
            peer.close()

    def _end_soon(self, call: "OpenCall", error: int) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.timer = self._clock.call_at(self._clock.monotonic(), call.end, CallResult(None, error))

    def _peer(self, route: Route, endpoint: Endpoint, limit_s: float) -> Peer:
        peer = self._peers.get(route)
        if peer is None:
            peer = self._peers[route] = Peer(endpoint, self._client_id, self._dial, limit_s * LIMITS)
        return peer

    def _drop_changed(self, endpoints: dict[int, Endpoint]) -> None:
        """End the connections to brokers that are not alive, or have another address; their calls fail."""
        for route, peer in list(self._peers.items()):
            if endpoints.get(route.broker_id) != peer.endpoint:
                self._drop(route)

    def _drop(self, route: Route) -> None:
        self._peers.pop(route).close()
        for call in self._open.get(route.broker_id, {}):
            self._end_soon(call, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE)


class OpenCall:
    """One call that has not ended.

    Arguments:
        then: called with the result.
        opened: the open calls to its broker; this one is removed at its end.

    Attributes:
        timer: of its end.
        sent: where it was sent; None: it waits.
    """

    def __init__(self, then: CallDone, opened: dict["OpenCall", None]) -> None:
        self.timer: Timer | None = None
        self.sent: tuple[Route, Peer] | None = None
        self._free: End | None = None
        self._then = then
        self._opened = opened

    def run(self, send: Callable[[], None], free: End) -> None:
        """Send a call that has waited, unless it has ended; `free` is called at its end."""
        if self in self._opened:
            self._free = free
            send()
        else:
            free()

    def end(self, result: CallResult) -> None:
        """End the call; a second end has no effect."""
        if self in self._opened:
            del self._opened[self]
            if self.timer is not None:
                self.timer.cancel()
            try:
                self._then(result)
            finally:
                self._next()

    def _next(self) -> None:
        free, self._free = self._free, None
        if free is not None:
            free()


def answered(call: OpenCall, response: Any) -> None:
    """End a call with the response."""
    call.end(CallResult(response))


def failed(call: OpenCall, _reason: str) -> None:
    """End a call whose connection has failed."""
    call.end(CallResult(None, KafkaErrorCode.COORDINATOR_NOT_AVAILABLE))
