"""A network in memory for clients and brokers of one event loop, with delays, stalls and disconnects by a seed.

    network = MemoryNetwork(random.Random(7), delay_s=(0.0001, 0.005), fragment_bytes=1000)
    server = await network.create_server(protocol_factory, "broker", 9092)
    environment = Environment(dial=network.dial, ...)       # of a client
    network.reset("broker", 9092)                           # all connections end; bytes in transit are lost
    network.stall("broker", 9092, seconds=3.0)              # no bytes pass, new connections wait
    network.refuse("broker", 9092)                          # until `accept`
    network.disconnect("broker1", "broker2")                # no bytes pass between these hosts until `reconnect`
    network.pause("broker1")                                # it receives nothing until `resume`; what it sent arrives

Invariants:
1. The transports behave as those of asyncio: bytes arrive in order, in calls of the loop, never inside `write`; a
   writer is paused above the high-water mark; `connection_lost` comes exactly once.
2. A transport accepts `WINDOW_BYTES` as a kernel does: they count as sent, and `close` waits for the rest only.
3. All random decisions come from the given generator, so a run in virtual time repeats exactly.
4. Bytes between disconnected hosts arrive after `reconnect`, as TCP sends them again. Disconnected peers of a process
   notice its end at once.
"""

import asyncio
import errno
import os
import ssl as ssl_module
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import Any, cast

WINDOW_BYTES = 64 << 10
HIGH_WATER_BYTES = 64 << 10
Address = tuple[str, int]
ProtocolFactory = Callable[[], asyncio.BaseProtocol]


def _end(passed: "asyncio.Future[None]") -> None:
    if not passed.done():  # else it was cancelled in this iteration
        passed.set_result(None)


class MemoryTransport(asyncio.Transport):
    """One half of a connection.

    Arguments:
        link: the connection.
        local, peer: host and port of both ends.
    """

    def __init__(self, link: "Link", local: Address, peer: Address) -> None:
        super().__init__({"sockname": local, "peername": peer})
        self._link = link
        self._loop = link.network.loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._in_transit: deque[tuple[float, bytes]] = deque()  # time of arrival, bytes; b"" = the end of the stream
        self._unread_bytes = 0  # written and not received by the peer
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._writing_paused = self._reading_paused = False
        self._closing = self._ended = self._eof_written = False
        self._timer: asyncio.TimerHandle | None = None
        self._arrives_at = 0.0
        self.held = False  # the written bytes wait, those in transit too; the other direction works
        self.other: MemoryTransport

    # The interface of asyncio.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the receiver."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the receiver."""
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed."""
        return self._closing

    def is_reading(self) -> bool:
        """Return whether bytes are received."""
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        """Receive no bytes until `resume_reading`."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Receive bytes again."""
        self._reading_paused = False
        self.other.schedule()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks, in bytes, above and below which the protocol is paused and resumed."""
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the number of written bytes beyond the window of the network."""
        return max(0, self._unread_bytes - WINDOW_BYTES)

    def write(self, data: Any) -> None:
        """Send bytes."""
        if self._ended or self._closing or self._eof_written or not data:
            return
        network = self._link.network
        if network.holds:
            network.writing(self, data)
        for part in network.fragments(bytes(data)):
            self._arrives_at = max(self._arrives_at, network.arrival())
            self._in_transit.append((self._arrives_at, part))
            self._unread_bytes += len(part)
        if self._timer is None:
            self.schedule()
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            cast(asyncio.Protocol, self.get_protocol()).pause_writing()

    def can_write_eof(self) -> bool:
        """Return that the sending side can be closed alone."""
        return True

    def write_eof(self) -> None:
        """Close the sending side behind the written bytes."""
        if not self._eof_written and not self._ended:
            self._eof_written = True
            self._arrives_at = max(self._arrives_at, self._link.network.arrival())
            self._in_transit.append((self._arrives_at, b""))
            self.schedule()

    def close(self) -> None:
        """Close the connection when the network has accepted the written bytes."""
        if not self._closing:
            self.write_eof()
            self._closing = True
            self._end_if_flushed()

    def abort(self) -> None:
        """Reset the connection; written bytes may be lost."""
        self._link.reset(by=self)

    # The network.

    def end(self, error: Exception | None) -> None:
        """The connection has ended on this side; its protocol is called in the next iteration."""
        if self._ended:
            return
        self._ended = self._closing = True
        self._link.network.call(self.host, self.get_protocol().connection_lost, error)

    @property
    def host(self) -> str:
        """The host of this half."""
        found: str = self.get_extra_info("sockname")[0]
        return found

    def lose(self) -> None:
        """Drop the bytes in transit."""
        self._in_transit.clear()
        self._unread_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def schedule(self) -> None:
        """Deliver the next bytes when they arrive."""
        if self._timer is None and self._in_transit and not self.held and not self.other.receives_nothing:
            at = max(self._in_transit[0][0], self._link.stalled_until)
            if at < inf:
                self._timer = self._loop.call_at(at, self._deliver)

    def reschedule(self) -> None:
        """Deliver the next bytes at another time: the connection is held back differently."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.schedule()

    @property
    def receives_nothing(self) -> bool:
        """Whether bytes for this half must wait."""
        return (self._reading_paused or self._link.network.is_paused(self.host)) and not self._ended

    def _deliver(self) -> None:
        self._timer = None
        now = self._loop.time()
        if now >= self._link.stalled_until and not self.held and not self.other.receives_nothing:
            in_transit = self._in_transit
            arrived = []
            while in_transit and in_transit[0][0] <= now and in_transit[0][1]:
                arrived.append(in_transit.popleft()[1])
            if arrived:
                data = arrived[0] if len(arrived) == 1 else b"".join(arrived)
                self._unread_bytes -= len(data)
                self.other.receive(data)
            elif in_transit and in_transit[0][0] <= now:
                in_transit.popleft()
                self.other.receive_eof()
            self._written()
        if self._in_transit:
            self.schedule()

    def _written(self) -> None:
        if self._writing_paused and not self._ended and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            cast(asyncio.Protocol, self.get_protocol()).resume_writing()
        if self._closing:
            self._end_if_flushed()

    def _end_if_flushed(self) -> None:
        if self.get_write_buffer_size() == 0:
            self.end(None)

    def receive(self, data: bytes) -> None:
        """Pass bytes to the protocol; bytes for a closed half reset the connection."""
        if self._closing:
            self._link.reset(by=self)
            return
        protocol = self.get_protocol()
        if not isinstance(protocol, asyncio.BufferedProtocol):
            cast(asyncio.Protocol, protocol).data_received(data)
            return
        view = memoryview(data)
        while view and not self._closing:
            buffer = memoryview(protocol.get_buffer(len(view)))
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            protocol.buffer_updated(count)
            view = view[count:]

    def receive_eof(self) -> None:
        """The peer has closed its sending side."""
        if self._closing:
            self._link.forget()
        elif not cast(asyncio.Protocol, self.get_protocol()).eof_received():
            self.close()


class Link:
    """A connection: both halves, and until when its bytes are held back."""

    def __init__(self, network: "MemoryNetwork", server: "MemoryServer", client: Address) -> None:
        self.network = network
        self.server = server
        self.hosts = frozenset((client[0], server.address[0]))
        self.stalled_until = server.stalled_until
        self.client_half = MemoryTransport(self, client, server.address)
        self.server_half = MemoryTransport(self, server.address, client)
        self.client_half.other, self.server_half.other = self.server_half, self.client_half

    def connect(self, client: asyncio.BaseProtocol, accepted: asyncio.BaseProtocol) -> None:
        """Begin the connection on both sides."""
        self.server.links[self] = None
        self.client_half.set_protocol(client)
        self.server_half.set_protocol(accepted)
        accepted.connection_made(self.server_half)
        client.connection_made(self.client_half)

    def reset(self, by: MemoryTransport | None = None) -> None:
        """End the connection on both sides, with an error except for the side that has asked for it."""
        self.forget()
        for half in (self.client_half, self.server_half):
            half.lose()
            half.end(None if half is by else ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def stall(self, until: float) -> None:
        """Hold back all bytes until then, in seconds of the loop."""
        self.stalled_until = max(self.stalled_until, until)

    def hold_until(self, until: float) -> None:
        """Hold back all bytes until then, whatever was the time before; infinite = until the next call."""
        self.stalled_until = until
        for half in (self.client_half, self.server_half):
            half.reschedule()

    def forget(self) -> None:
        """The connection has ended."""
        self.server.links.pop(self, None)


@dataclass(eq=False, slots=True)
class MemoryServer:
    """A listening address.

    Attributes:
        accepting: False = connections are refused.
        stalled_until: until then no bytes pass, and new connections wait; in seconds of the loop.
        links: the open connections.
    """

    network: "MemoryNetwork"
    address: Address
    factory: ProtocolFactory
    accepting: bool = True
    stalled_until: float = 0.0
    links: dict[Link, None] = field(default_factory=dict)

    def close(self) -> None:
        """Listen no more; open connections stay open."""
        if self.network.servers.get(self.address) is self:
            del self.network.servers[self.address]


class HeldBytes:
    """Holds back the bytes from one host to another, from a chosen write on; see `MemoryNetwork.hold_next`."""

    def __init__(
        self, network: "MemoryNetwork", hosts: tuple[str, str], contents: bytes, begun: Callable[[], object]
    ) -> None:
        self._network = network
        self._hosts = hosts
        self._contents = contents
        self._begun = begun
        self._half: MemoryTransport | None = None

    def writing(self, half: MemoryTransport, data: Any) -> None:
        """Begin with this write, if it is the chosen one."""
        hosts = half.get_extra_info("sockname")[0], half.get_extra_info("peername")[0]
        if hosts == self._hosts and self._contents in bytes(data):
            self._half = half
            half.held = True
            self._network.holds.remove(self)
            self._network.loop.call_soon(self._begun)

    def release(self) -> None:
        """Let the bytes arrive in their order; before the chosen write, wait for it no longer."""
        if self._half is None:
            if self in self._network.holds:
                self._network.holds.remove(self)
        else:
            self._half.held = False
            self._half.schedule()


class MemoryNetwork:
    """Connections in memory.

    Arguments:
        random: source of all random decisions.
        delay_s: smallest and largest delay of bytes and of connecting, in seconds.
        fragment_bytes: largest number of bytes that arrive in one piece, 0 = bytes are not divided.
    """

    def __init__(
        self, random: Random | None = None, *, delay_s: tuple[float, float] = (0.0001, 0.0001), fragment_bytes: int = 0
    ) -> None:
        self.servers: dict[Address, MemoryServer] = {}
        self.holds: list[HeldBytes] = []  # those that wait for their write
        self._random = random or Random(0)
        self._delay_s = delay_s
        self._fragment_bytes = fragment_bytes
        self._clients = 0
        self._disconnected: dict[frozenset[str], asyncio.Future[None]] = {}  # done when the hosts are reconnected
        self._paused: dict[str, asyncio.Future[None]] = {}  # done when the processes of the host run again
        self._late_calls: dict[str, list[Callable[[], object]]] = {}  # of hosts whose processes do not run

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        return asyncio.get_running_loop()

    async def dial(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        ssl: ssl_module.SSLContext | None,
        origin: str = "client",
    ) -> MemoryTransport:
        """Connect a protocol, and return its transport; the `dial` of a client's environment.

        Arguments:
            factory: creates the protocol of the client.
            host, port: a listening address.
            ssl: must be None.
            origin: the host of the client.

        Raises:
            OSError: nothing listens there, or it refuses connections.
        """
        if ssl is not None:
            raise OSError(errno.EPROTONOSUPPORT, "a network in memory has no TLS")
        await self._wait(self.arrival())
        while (reachable := self._unreachable(origin, host)) is not None:
            await asyncio.shield(reachable)
        server = self.servers.get((host, port))
        while server is not None and server.stalled_until > self.loop.time():
            await self._wait(server.stalled_until)
            server = self.servers.get((host, port))
        if server is None or not server.accepting:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._clients += 1
        link = Link(self, server, (origin, self._clients))
        link.connect(factory(), server.factory())
        return link.client_half

    async def create_server(self, factory: ProtocolFactory, host: str, port: int) -> MemoryServer:
        """Listen at an address; see `listen`."""
        return self.listen(factory, host, port)

    def listen(self, factory: ProtocolFactory, host: str, port: int) -> MemoryServer:
        """Listen at an address.

        Arguments:
            factory: creates the protocol of each accepted connection.
            host, port: any name and number.

        Raises:
            OSError: the address is in use.
        """
        if (host, port) in self.servers:
            raise OSError(errno.EADDRINUSE, f"{host}:{port}: {os.strerror(errno.EADDRINUSE)}")
        server = self.servers[host, port] = MemoryServer(self, (host, port), factory)
        return server

    def reset(self, host: str, port: int, share: float = 1.0) -> int:
        """Reset connections of an address; returns how many.

        Arguments:
            host, port: the listening address.
            share: probability with which each connection is reset.
        """
        server = self.servers.get((host, port))
        chosen = [each for each in server.links if self._random.random() < share] if server is not None else []
        for link in chosen:
            link.reset()
        return len(chosen)

    def stall(self, host: str, port: int, seconds: float) -> None:
        """Hold back all bytes and new connections of an address.

        Arguments:
            host, port: the listening address.
            seconds: how long.
        """
        server = self.servers.get((host, port))
        if server is not None:
            server.stalled_until = max(server.stalled_until, self.loop.time() + seconds)
            for link in server.links:
                link.stall(server.stalled_until)

    def disconnect(self, host: str, other: str) -> None:
        """Let no bytes pass between two hosts, and let new connections wait, until `reconnect`."""
        hosts = frozenset((host, other))
        if hosts not in self._disconnected:
            self._disconnected[hosts] = self.loop.create_future()
            for link in self._links(hosts):
                link.hold_until(inf)

    def reconnect(self, host: str, other: str) -> None:
        """Let bytes pass again between two hosts."""
        hosts = frozenset((host, other))
        reconnected = self._disconnected.pop(hosts, None)
        if reconnected is not None:
            reconnected.set_result(None)
            for link in self._links(hosts):
                link.hold_until(link.server.stalled_until)

    def pause(self, host: str) -> None:
        """Let the processes of a host receive nothing, and notice no end of a connection, until `resume`.

        New connections from and to the host wait.
        """
        if host not in self._paused:
            self._paused[host] = self.loop.create_future()
            self._late_calls[host] = []

    def resume(self, host: str) -> None:
        """Let the processes of a host run again."""
        running = self._paused.pop(host, None)
        if running is not None:
            running.set_result(None)
            for call in self._late_calls.pop(host):
                self.loop.call_soon(call)
            for half in self._halves():
                if half.host == host:
                    half.other.schedule()

    def is_paused(self, host: str) -> bool:
        """Whether the processes of a host do not run."""
        return host in self._paused

    def call(self, host: str, callback: Callable[..., object], *args: object) -> None:
        """Call a protocol of a host in the next iteration in which its process runs."""
        if host in self._paused:
            self._late_calls[host].append(partial(callback, *args))
        else:
            self.loop.call_soon(callback, *args)

    def _unreachable(self, origin: str, host: str) -> "asyncio.Future[None] | None":
        """What a connection between two hosts must wait for."""
        return self._disconnected.get(frozenset((origin, host))) or self._paused.get(origin) or self._paused.get(host)

    def _halves(self) -> list[MemoryTransport]:
        links = [link for server in self.servers.values() for link in server.links]
        return [half for link in links for half in (link.client_half, link.server_half)]

    def hold_next(self, sender: str, receiver: str, contents: bytes, begun: Callable[[], object]) -> HeldBytes:
        """Hold back the bytes from one host to another on a connection, from the next write with these contents on.

        The other direction and other connections of the two hosts work.

        Arguments:
            sender, receiver: the hosts.
            contents: bytes that occur in the write.
            begun: called in the iteration after the write.
        """
        hold = HeldBytes(self, (sender, receiver), contents, begun)
        self.holds.append(hold)
        return hold

    def hold_responses(self, host: str, port: int, clients: Collection[str]) -> Callable[[], None]:
        """Hold back what an address sends on its open connections from some hosts; returns what lets it arrive.

        The other direction works, and so do other connections of these hosts, as those that the address has opened.

        Arguments:
            host, port: the listening address.
            clients: the hosts that receive nothing.
        """
        server = self.servers.get((host, port))
        links = [] if server is None else [each for each in server.links if each.client_half.host in clients]
        halves = [each.server_half for each in links if not each.server_half.held]
        for half in halves:
            half.held = True

        def release() -> None:
            for half in halves:
                half.held = False
                half.schedule()

        return release

    def writing(self, half: MemoryTransport, data: Any) -> None:
        """A transport is about to send bytes."""
        for hold in list(self.holds):
            hold.writing(half, data)

    def _links(self, hosts: frozenset[str]) -> list[Link]:
        return [link for server in self.servers.values() for link in server.links if link.hosts == hosts]

    def refuse(self, host: str, port: int) -> None:
        """Refuse new connections of an address until `accept`."""
        self.servers[host, port].accepting = False

    def accept(self, host: str, port: int) -> None:
        """Accept connections of an address again."""
        self.servers[host, port].accepting = True

    def arrival(self) -> float:
        """Return when bytes that leave now arrive, in seconds of the loop."""
        return self.loop.time() + self._random.uniform(*self._delay_s)

    def fragments(self, data: bytes) -> list[bytes]:
        """Divide bytes at random."""
        if not self._fragment_bytes or len(data) <= 1:
            return [data]
        parts, start = [], 0
        while start < len(data):
            size = self._random.randint(1, self._fragment_bytes)
            parts.append(data[start : start + size])
            start += size
        return parts

    async def _wait(self, until: float) -> None:
        passed = self.loop.create_future()
        timer = self.loop.call_at(until, _end, passed)
        try:
            await passed
        finally:
            timer.cancel()
