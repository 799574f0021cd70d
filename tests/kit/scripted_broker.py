"""A cluster of one or more nodes whose responses a test scripts; unscripted requests are served correctly.

    async with ScriptedBroker(nodes=3) as broker:
        broker.cluster.create_topic("orders", partitions=3)
        broker.on(ProduceRequest, error=KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        stalled = broker.on(ProduceRequest, stall=True)
        ...                                                     # a client of `broker.bootstrap`
        await stalled.reached()                                 # the request has arrived
        stalled.release()
        broker.on(FetchRequest, disconnect_after_bytes=10)      # in the middle of the frame
        broker.on(FetchRequest, frame=wrong_correlation_id)     # a false response, see `scripted_frames`
        assert [each.version for each in broker.requests(ProduceRequest)] == [13, 13]

It speaks through asyncio transports and the codec of kafkalite, because a false frame cannot leave through the
broker's own framing. With a `network` of `kafkalite.testing` it runs in virtual time, else on sockets of 127.0.0.1.
Responses leave in request order: a stalled response holds back the later ones of its connection.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar, cast

from kafkalite._speedups.codec import RequestHeader, decode, encode, read_request_header, response_header
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.schema import Request, Response
from tests.kit.scripted_cluster import ScriptedCluster
from tests.kit.scripted_errors import set_errors
from tests.kit.scripted_handlers import HANDLERS

AnyRequest = TypeVar("AnyRequest", bound=Request)
SIZE_BYTES = 4
DEADLINE_S = 60.0
UNSUPPORTED_VERSION = 35


class Network(Protocol):
    """Serves an address: sockets, or connections in memory."""

    async def create_server(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> asyncio.Server: ...


class SocketNetwork:
    """Sockets of this machine."""

    async def create_server(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(factory, host, port)


@dataclass(frozen=True, slots=True)
class Logged:
    """A request as it arrived: receiving node, number of the connection (in order of opening), and the request."""

    node: int
    connection: int
    api_key: int
    version: int
    client_id: str | None
    request: Any
    at: float


@dataclass(slots=True)
class Rule:
    """What happens to matching requests; see `ScriptedBroker.on`."""

    request: type[Request]
    node: int | None
    when: Callable[[Any], bool]
    skip: int
    times: int | None
    error: int
    partitions: Collection[tuple[str, int]] | None
    applied: bool
    respond: Callable[[ScriptedCall], Response | None] | None
    edit: Callable[[Any], object] | None
    frame: Callable[[bytes], bytes] | None
    stall: bool
    delay_s: float
    disconnect: bool
    disconnect_after_bytes: int | None
    used: int = 0
    held: list[Callable[[], object]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, node: int, request: Request) -> bool:
        """Whether the rule is for this request; counts those that are skipped."""
        if type(request) is not self.request or self.node not in (None, node) or not self.when(request):
            return False
        if self.times is not None and self.used >= self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        return True

    async def reached(self) -> None:
        """Wait until a request has met the rule."""
        async with asyncio.timeout(DEADLINE_S):
            await self.arrived.wait()

    def release(self) -> None:
        """Send the stalled responses; later requests are not stalled."""
        self.stall = False
        held, self.held = self.held, []
        for each in held:
            each()

    def end(self) -> None:
        """No further request meets the rule; stalled responses stay stalled."""
        self.times = self.used

    def send(self, call: ScriptedCall, response: Response) -> None:
        """Send a response as the rule demands."""
        if self.error:
            set_errors(response, self.error, self.partitions, call.cluster)
        if self.edit is not None:
            self.edit(response)
        frame = call.frame(response)
        if self.frame is not None:
            frame = self.frame(frame)
        elif self.disconnect:
            frame = b""
        if self.disconnect_after_bytes is not None:
            frame = frame[: self.disconnect_after_bytes]
        ending = self.disconnect or self.disconnect_after_bytes is not None
        complete = functools.partial(call.slot.complete, frame, disconnect=ending)
        if self.stall:
            self.held.append(complete)
        elif self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, complete)
        else:
            complete()


class ScriptedCall:
    """A request that is being served.

    Attributes:
        apply: whether the request has its effect; False for a scripted error.
        at_once: a Fetch does not wait for data.
    """

    __slots__ = ("apply", "at_once", "broker", "connection", "header", "node", "request", "rule", "slot", "version")

    def __init__(self, connection: Connection, header: RequestHeader, request: Request) -> None:
        self.connection = connection
        self.broker = connection.node.broker
        self.node = connection.node.node_id
        self.version = header.api_version
        self.header = header
        self.request: Any = request
        self.slot = connection.new_slot()
        self.rule: Rule | None = None
        self.apply = True
        self.at_once = False

    @property
    def cluster(self) -> ScriptedCluster:
        return self.broker.cluster

    def applies_to(self, topic: str, partition: int) -> bool:
        """Whether the request has its effect on a partition; a scripted error may be for others only."""
        others = None if self.rule is None else self.rule.partitions
        return self.apply or (others is not None and (topic, partition) not in others)

    def frame(self, response: Response) -> bytes:
        """The frame of a response, with its size field."""
        cls, version = type(response), self.version
        served = self.broker.versions[type(self.request)]
        if isinstance(response, ApiVersionsResponse) and not served[0] <= version <= served[1]:
            version = 0
        body = response_header(cls, version, self.header.correlation_id) + encode(response, version)
        return len(body).to_bytes(SIZE_BYTES, "big") + body

    def answer(self, response: Response) -> None:
        """Send a response in request order, as the rule of the request demands."""
        if self.rule is None:
            self.slot.complete(self.frame(response))
        else:
            self.rule.send(self, response)

    def no_response(self) -> None:
        """The request has no response."""
        self.slot.complete(b"")


class Slot:
    """The position of a response in the order of its connection."""

    __slots__ = ("connection", "data", "disconnect")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data: bytes | None = None
        self.disconnect = False

    def complete(self, data: bytes, *, disconnect: bool = False) -> None:
        """Send bytes, and end the connection behind them where `disconnect` is set."""
        self.data = data
        self.disconnect = disconnect
        self.connection.send_ready()


class Connection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, node: ScriptedNode) -> None:
        self.node = node
        self.number = node.broker.new_connection()
        self.transport: asyncio.Transport | None = None
        self._bytes = bytearray()
        self._slots: deque[Slot] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.node.connections[self] = None
        if self.node.refuses:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.node.connections.pop(self, None)
        self.node.broker.changed()

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        self.serve()

    def serve(self) -> None:
        """Serve the whole requests that have arrived, unless the node is frozen."""
        while not self.node.frozen and len(self._bytes) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._bytes[:SIZE_BYTES], "big")
            if len(self._bytes) < end:
                return
            frame = bytes(self._bytes[SIZE_BYTES:end])
            del self._bytes[:end]
            self.node.broker.serve_frame(self, frame)

    def new_slot(self) -> Slot:
        slot = Slot(self)
        self._slots.append(slot)
        return slot

    def send_ready(self) -> None:
        """Send the responses that are next in order."""
        while self._slots and self._slots[0].data is not None:
            slot = self._slots.popleft()
            if self.transport is None:
                return
            if slot.data:
                self.transport.write(slot.data)
            if slot.disconnect:
                self.transport.close()
                return

    def abort(self) -> None:
        """Reset the connection."""
        if self.transport is not None:
            self.transport.abort()


class ScriptedNode:
    """One broker of the cluster.

    Attributes:
        frozen: requests are accepted and not served, as with SIGSTOP; see `freeze`.
        refuses: connections are reset as soon as they are made.
    """

    def __init__(self, broker: ScriptedBroker, node_id: int) -> None:
        self.broker = broker
        self.node_id = node_id
        self.host, self.port = ("127.0.0.1", 0) if broker.on_sockets else (f"node{node_id}", 9092)
        self.connections: dict[Connection, None] = {}
        self.frozen = False
        self.refuses = False
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, at the same port as before."""
        self._server = await self.broker.network.create_server(lambda: Connection(self), self.host, self.port)
        if not self.port:
            self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.disconnect()

    def disconnect(self) -> None:
        """Reset all connections."""
        for each in list(self.connections):
            each.abort()

    def freeze(self) -> None:
        """Serve no requests until `thaw`; connections stay open and are accepted."""
        self.frozen = True

    def thaw(self) -> None:
        """Serve requests again, those that have arrived meanwhile first."""
        self.frozen = False
        for each in list(self.connections):
            each.serve()


class ScriptedBroker:
    """A scripted cluster.

    Arguments:
        nodes: number of brokers; their ids begin with 1.
        network: where they listen; None = sockets of 127.0.0.1.

    Attributes:
        cluster: topics, leaders, logs and committed offsets.
        log: all requests in the order of their arrival.
        versions: served versions by request class; change them before a client connects.
    """

    def __init__(self, nodes: int = 1, network: Network | None = None) -> None:
        self.on_sockets = network is None
        self.network: Network = network or SocketNetwork()
        self.cluster = ScriptedCluster()
        self.nodes = {each: ScriptedNode(self, each) for each in range(1, nodes + 1)}
        self.log: list[Logged] = []
        self.versions: dict[type[Request], tuple[int, int]] = {each: each.versions for each in HANDLERS}
        self.unserved: list[tuple[int, int]] = []  # api key and version of requests that ended their connection
        self._handlers: dict[type[Request], Callable[[ScriptedCall], Response | None]] = dict(HANDLERS)
        self._rules: list[Rule] = []
        self._connections = 0
        self._change = asyncio.Event()

    async def __aenter__(self) -> Self:
        for each in self.nodes.values():
            await each.start()
            self.cluster.addresses[each.node_id] = each.host, each.port
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.until(lambda: not any(each.connections for each in self.nodes.values()))

    def close(self) -> None:
        """Stop all nodes."""
        for each in self.nodes.values():
            each.stop()

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, comma-separated."""
        return ",".join(f"{each.host}:{each.port}" for each in self.nodes.values())

    def on(
        self,
        request: type[Request],
        *,
        node: int | None = None,
        when: Callable[[Any], bool] = lambda _request: True,
        skip: int = 0,
        times: int | None = 1,
        error: int = 0,
        partitions: Collection[tuple[str, int]] | None = None,
        applied: bool | None = None,
        respond: Callable[[ScriptedCall], Response | None] | None = None,
        edit: Callable[[Any], object] | None = None,
        frame: Callable[[bytes], bytes] | None = None,
        stall: bool = False,
        delay_s: float = 0.0,
        disconnect: bool = False,
        disconnect_after_bytes: int | None = None,
    ) -> Rule:
        """Script what happens to requests; of several matching rules the first one that is not used up applies.

        Arguments:
            request: class of the requests.
            node: only requests to this node.
            when: only requests for which it returns True.
            skip: number of matching requests that pass first.
            times: number of requests, None = all.
            error: error code of every partition or element of the response (of the response, if it has no elements).
            partitions: the topics and partitions that get the error; None = all.
            applied: whether the request has its effect; None = unless there is an error.
            respond: returns the response instead; None = the default response.
            edit: changes the response in place.
            frame: changes the frame of the response; see `scripted_frames`.
            stall: the response is held back until `release`.
            delay_s: the response is held back that long.
            disconnect: the connection is closed instead of a response (with `frame`: behind it).
            disconnect_after_bytes: the connection is closed behind so many bytes of the response.
        """
        effect = applied if applied is not None else not error
        rule = Rule(
            request, node, when, skip, times, error, partitions, effect, respond, edit, frame, stall, delay_s,
            disconnect, disconnect_after_bytes,
        )  # fmt: skip
        self._rules.append(rule)
        return rule

    def end_rules(self) -> None:
        """Serve all further requests as if nothing was scripted."""
        self._rules.clear()

    def handle(self, request: type[Request], handler: Callable[[ScriptedCall], Response | None]) -> None:
        """Serve a request class by a function of the test; None = it calls `call.answer` later."""
        self._handlers[request] = handler
        self.versions.setdefault(request, request.versions)

    def requests(self, request: type[AnyRequest], node: int | None = None) -> list[Logged]:
        """The logged requests of a class."""
        return [each for each in self.log if type(each.request) is request and node in (None, each.node)]

    async def received(self, request: type[Request], count: int = 1, node: int | None = None) -> Logged:
        """Wait for the request number `count` of a class; returns it."""
        await self.until(lambda: len(self.requests(request, node)) >= count)
        return self.requests(request, node)[count - 1]

    async def until(self, condition: Callable[[], bool], timeout_s: float = DEADLINE_S) -> None:
        """Wait until a condition holds; it is checked after each request and each end of a connection."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._change.clear()
                await self._change.wait()

    def changed(self) -> None:
        """Check the conditions of `until` again."""
        self._change.set()

    def new_connection(self) -> int:
        self._connections += 1
        return self._connections

    def serve_frame(self, connection: Connection, frame: bytes) -> None:
        """Serve one request."""
        header = read_request_header(frame)
        request_class = next((each for each in self.versions if each.api_key == header.api_key), None)
        version = header.api_version
        served = (0, -1) if request_class is None else self.versions[request_class]
        if request_class is None or not served[0] <= version <= served[1]:
            if request_class is ApiVersionsRequest:
                self._refuse_api_versions(ScriptedCall(connection, header, ApiVersionsRequest()))
                return
            self.unserved.append((header.api_key, version))
            connection.abort()
            return
        request = decode(request_class, version, header.body, False)
        at = asyncio.get_running_loop().time()
        logged = Logged(
            connection.node.node_id, connection.number, header.api_key, version, header.client_id, request, at
        )
        self.log.append(logged)
        self._serve(ScriptedCall(connection, header, request))
        self.changed()

    def _refuse_api_versions(self, call: ScriptedCall) -> None:
        lowest, highest = self.versions[ApiVersionsRequest]
        own = ApiVersionsResponse.ApiVersion(
            api_key=ApiVersionsRequest.api_key, min_version=lowest, max_version=highest
        )
        call.answer(ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[own]))

    def _serve(self, call: ScriptedCall) -> None:
        rule = next((each for each in self._rules if each.matches(call.node, call.request)), None)
        response = None
        if rule is not None:
            call.rule = rule
            call.apply = rule.applied
            call.at_once = rule.error != 0 or rule.edit is not None or rule.disconnect
            rule.used += 1
            rule.arrived.set()
            response = rule.respond(call) if rule.respond is not None else None
        if response is None:
            response = self._handlers[type(call.request)](call)
        if response is not None:
            call.answer(response)
