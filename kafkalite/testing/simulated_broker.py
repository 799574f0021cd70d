"""A whole broker in virtual time, which can be killed or lose its power and start again in the same event loop.

    network = MemoryNetwork(random.Random(7))
    async with SimulatedBroker(directory, network, seed=7) as broker:
        ...                                     # clients with `network.dial` and the bootstrap server "broker:9092"
        broker.kill()                           # the process ends; what it wrote stays
        await broker.start()
        broker.cut_power()                      # what was not flushed is lost at random
        await broker.start()
        broker.pause()                          # the process does not run, as after SIGSTOP
        broker.resume()

The broker runs without threads, sockets, real time and real randomness (`kafkalite.server.process.ports`).
"""

import asyncio
import random as randoms
import socket
import ssl as ssl_module
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from kafkalite._speedups.net.framing import Limits, Service
from kafkalite._speedups.storage.file import File
from kafkalite.clock import Raised, Then
from kafkalite.config.keys import SettingValue
from kafkalite.net.listener import ConnectionCounts, SocketOptions
from kafkalite.net.memory_transport import MemoryConnection, MemoryHub, frozen_clock
from kafkalite.net.transport import TlsSide
from kafkalite.server.broker import EMBEDDED, Broker
from kafkalite.server.process.ports import Ports
from kafkalite.server.requests.api import ROWS
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.storage.log.flush_job import JobSyncer
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.memory_network import MemoryNetwork, MemoryServer, MemoryTransport, ProtocolFactory
from kafkalite.testing.virtual_clock import START_WALL_MS, InlineOffload, SeededRandom

HOST, PORT = "broker", 9092


class LoopTimers:
    """A `BrokerClock` over the timers of an event loop in virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, raised: Raised, wall_offset_ms: int = 0) -> None:
        self._loop = loop
        self._raised = raised
        self._wall_offset_ms = wall_offset_ms
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = self._paused = False
        self._late: list[Callable[[], object]] = []  # timers that were due during the pause

    def wall_ms(self) -> int:
        """Return the virtual wall time, milliseconds since 1970."""
        return START_WALL_MS + self._wall_offset_ms + round(self._loop.time() * 1000)

    def jump_wall(self, by_ms: int) -> None:
        """Move the wall clock alone, as an administrator or NTP would."""
        self._wall_offset_ms += by_ms

    def monotonic(self) -> float:
        """Return the time of the loop in seconds."""
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call `callback(*args)` when the time of the loop reaches `when`."""

        def fire() -> None:
            self._timers.discard(timer)
            if self._closed or timer.cancelled():
                return
            if self._paused:
                self._late.append(fire)
                return
            try:
                callback(*args)
            except Exception as error:
                self._raised(callback, error)

        timer = self._loop.call_at(when, fire)
        self._timers.add(timer)
        return timer

    def pause(self) -> None:
        """Call nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Call what was due meanwhile, in its order."""
        self._paused = False
        late, self._late = self._late, []
        for fire in late:
            self._loop.call_soon(fire)

    def close(self) -> None:
        """Cancel all timers, and call nothing any more."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


class LoopOffload(InlineOffload):
    """Runs jobs in the thread of the loop, and applies their outcomes in its next iteration.

    Attributes:
        late_s: how long jobs take, those of a slow disk: a job runs after one half of it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *_: object, **_named: object) -> None:
        super().__init__(self._later)
        self.late_s = 0.0
        self._loop = loop
        self._killed = self._paused = False
        self._stopped: list[Callable[[], object]] = []  # jobs whose threads do not run

    def _later(self, apply: Callable[[], object]) -> None:
        if self.late_s:
            self._loop.call_later(self.late_s / 2, apply)
        else:
            self._loop.call_soon(apply)

    def run(self, job: Callable[..., Any], *args: Any, done: Then) -> None:
        """Run a job, unless the process has ended."""
        if self._killed:
            return
        if self.late_s and not self.held:
            self._loop.call_later(self.late_s / 2, self._run_late, job, args, done)
        else:
            super().run(job, *args, done=done)

    def _run_late(self, job: Callable[..., Any], args: tuple[Any, ...], done: Then) -> None:
        if self._paused:
            self._stopped.append(partial(self._run_late, job, args, done))
        elif not self._killed:
            super().run(job, *args, done=done)

    def drain(self) -> int:
        """Apply all outcomes, unless the process has ended or does not run."""
        return 0 if self._killed or self._paused else super().drain()

    def pause(self) -> None:
        """Run no job and apply no outcome until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Continue."""
        self._paused = False
        stopped, self._stopped = self._stopped, []
        for run in stopped:
            run()
        self._loop.call_soon(self.drain)

    def kill(self) -> None:
        """The process ends: no job runs and no outcome is applied any more."""
        self._killed = True

    def close(self) -> None:
        """Apply all outcomes."""
        self.drain()


class SimulatedDisk(FaultyDisk):
    """A faulty disk whose files are closed when the process ends."""

    def __init__(self, before: "SimulatedDisk | None" = None) -> None:
        super().__init__()
        if before is not None:
            self.shadow = before.shadow
        self._open: list[weakref.ref[File]] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file."""
        file = super().open(path, create=create, read_only=read_only)
        self._open.append(weakref.ref(file))
        return file

    def kill(self) -> None:
        """The process ends: no operation has an effect any more, and the locks of its files are released."""
        self.crashed = True
        for reference in self._open:
            file = reference()
            if file is not None:
                file.close()
        self._open.clear()


class MemoryBrokerConnection(MemoryConnection):
    """The broker's half of a connection of a `MemoryNetwork`."""

    def __init__(self, hub: "MemoryListener", name: str, transport: MemoryTransport) -> None:
        super().__init__(hub, name, transport.get_extra_info("peername"), None, transport.get_extra_info("sockname"))
        self.listening = hub
        self.transport = transport
        self.writable = True

    def transmit(self) -> None:
        """Send what can leave."""
        self.advance(0)
        while self.writable and not self.closed and (runs := self.outgoing()):
            data = runs[0] if isinstance(runs[0], bytes) else runs[0].read()
            self.transport.write(data)
            self.advance(len(data))

    def gone(self) -> None:
        """The connection is closed."""
        self.listening.ended(self)
        self.transport.close()


class MemoryBrokerProtocol(asyncio.Protocol):
    """Passes the bytes of a connection to the broker's framing; each call runs a pass."""

    def __init__(self, hub: "MemoryListener", name: str) -> None:
        self._hub = hub
        self._name = name
        self._connection: MemoryBrokerConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self._connection = MemoryBrokerConnection(self._hub, self._name, transport)
        self._hub.connections[self._connection] = None
        self._hub.accept_connection(self._connection)

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        assert connection is not None
        if not connection.closed:
            connection.inbox += data
            self._pass(connection)

    def eof_received(self) -> bool:
        connection = self._connection
        assert connection is not None
        connection.finished = True
        self._hub.begin()
        connection.hang_up()
        connection.update_interest()
        self._hub.end()
        return True

    def pause_writing(self) -> None:
        assert self._connection is not None
        self._connection.writable = False

    def resume_writing(self) -> None:
        assert self._connection is not None
        self._connection.writable = True
        self._connection.touch()

    def connection_lost(self, error: Exception | None) -> None:
        assert self._connection is not None
        if not self._hub.killed:
            self._connection.close("reset by the peer" if error is None else str(error))

    def _pass(self, connection: MemoryBrokerConnection) -> None:
        if self._hub.killed:
            return
        self._hub.begin()
        connection.touch()
        connection.update_interest()
        self._hub.end()


class MemoryListener(MemoryHub):
    """A `BrokerListener` on a network in memory."""

    def __init__(
        self, network: MemoryNetwork, loop: asyncio.AbstractEventLoop, service: Service, limits: Limits | None
    ) -> None:
        super().__init__(service, limits, frozen_clock)
        self.killed = False
        self.connections: dict[MemoryBrokerConnection, None] = {}
        self._network = network
        self._loop = loop
        self._servers: list[MemoryServer] = []
        self._drained: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Run a pass in the next iteration."""
        super().wake()
        self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Run the scheduled passes, unless the process has ended."""
        if not self.killed:
            super().pump()

    def bind(self, host: str, port: int, name: str = "PLAINTEXT") -> tuple[str, int]:
        """Listen at an address of the network."""
        self._servers.append(self._network.listen(lambda: MemoryBrokerProtocol(self, name), host, port))
        return host, port

    def inherit(self, listening: socket.socket, name: str = "PLAINTEXT") -> tuple[str, int]:
        """A simulated broker has no sockets."""
        raise NotImplementedError("a simulated broker has no sockets")

    def limit(self, connections_max: int, connections_per_ip_max: int, own_max: int | None = None) -> None:
        """The number of connections is the test's choice."""

    def free_unused(self) -> None:
        """Connections in memory have no receive buffers."""

    def pause(self) -> None:
        """Refuse connections until `resume`."""
        for server in self._servers:
            server.accepting = False

    def resume(self) -> None:
        """Accept connections again."""
        for server in self._servers:
            server.accepting = True

    def disconnect(self, reason: str) -> None:
        """Reset all connections."""
        for server in self._servers:
            for link in list(server.links):
                link.reset()

    def kill(self) -> None:
        """The process ends: its connections are reset, and its address refuses connections."""
        self.killed = True
        for server in self._servers:
            server.close()
            for link in list(server.links):
                link.reset()

    async def close(self, grace_s: float = 5.0) -> None:
        """Listen no more, and close the connections when open responses have left, at the latest after `grace_s`."""
        for server in self._servers:
            server.close()
        self.begin()
        for connection in self.connections:
            connection.drain()
        self.end()
        if self.connections:
            self._drained = self._loop.create_future()
            timer = self._loop.call_later(grace_s, self._end_all)
            try:
                await self._drained
            finally:
                timer.cancel()
        self.pump()

    def _end_all(self) -> None:
        for connection in self.connections:
            connection.close("the broker stops")

    def ended(self, connection: MemoryBrokerConnection) -> None:
        """A connection has ended."""
        self.connections.pop(connection, None)
        if not self.connections and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


class Process:
    """One incarnation of a simulated broker: what ends when its process ends."""

    def __init__(self, network: MemoryNetwork, host: str, disk: SimulatedDisk, wall_offset_ms: int) -> None:
        self.disk = disk
        self._network = network
        self._host = host
        self._wall_offset_ms = wall_offset_ms
        self._clocks: list[LoopTimers] = []
        self._jobs: list[LoopOffload] = []
        self._listeners: list[MemoryListener] = []
        self._dialed: list[MemoryTransport] = []
        self._killed = False

    def ports(self, random: SeededRandom) -> Ports:
        """The ports of the broker."""
        return Ports(
            clock=self._clock,
            random=random,
            offload=self._offload,
            disk=self.disk,
            syncer=lambda disk, _paths, _loop, jobs, _raised: JobSyncer(disk, jobs, jobs.close),
            listen=self._listen,
            dial=self._dial,
        )

    async def _dial(self, factory: ProtocolFactory, host: str, port: int, ssl: ssl_module.SSLContext | None) -> None:
        """Connect to another broker, unless the process has ended."""
        if not self._killed:
            transport = await self._network.dial(factory, host, port, ssl, self._host)
            self._dialed = [each for each in self._dialed if not each.is_closing()]
            self._dialed.append(transport)
        if self._killed:
            for each in self._dialed:
                each.abort()
            raise ConnectionAbortedError("the process has ended")

    def pause(self) -> None:
        """Let nothing of the process run until `resume`, as SIGSTOP does: what it receives waits."""
        self._network.pause(self._host)
        for clock in self._clocks:
            clock.pause()
        for jobs in self._jobs:
            jobs.pause()

    def resume(self) -> None:
        """Let the process run again: first the timers that were due meanwhile, then what it has received."""
        for clock in self._clocks:
            clock.resume()
        for jobs in self._jobs:
            jobs.resume()
        self._network.resume(self._host)

    def kill(self) -> None:
        """End the process: nothing of it runs any more."""
        self._killed = True
        for transport in self._dialed:
            transport.abort()
        self.disk.kill()
        for clock in self._clocks:
            clock.close()
        for jobs in self._jobs:
            jobs.kill()
        for listener in self._listeners:
            listener.kill()
        self._network.resume(self._host)

    def jump_wall(self, by_ms: int) -> None:
        """Move the wall clock."""
        self._wall_offset_ms += by_ms
        for clock in self._clocks:
            clock.jump_wall(by_ms)

    def slow_jobs(self, late_s: float) -> None:
        """Apply the outcomes of jobs later."""
        for jobs in self._jobs:
            jobs.late_s = late_s

    def _clock(self, loop: asyncio.AbstractEventLoop, raised: Raised) -> LoopTimers:
        self._clocks.append(LoopTimers(loop, raised, self._wall_offset_ms))
        return self._clocks[-1]

    def _offload(self, loop: asyncio.AbstractEventLoop, *_: object, **_named: object) -> LoopOffload:
        self._jobs.append(LoopOffload(loop))
        return self._jobs[-1]

    def _listen(
        self,
        loop: asyncio.AbstractEventLoop,
        service: Service,
        limits: Limits | None = None,
        *,
        tls: TlsSide | None = None,
        counts: ConnectionCounts | None = None,
        sockets: SocketOptions | None = None,
        refuse_from: int | None = None,
    ) -> MemoryListener:
        self._listeners.append(MemoryListener(self._network, loop, service, limits))
        return self._listeners[-1]


class Machine:
    """A machine on which brokers run; a power failure boots it.

    Arguments:
        name: of the machine.

    Attributes:
        boots: since the start of the test.
    """

    def __init__(self, name: str) -> None:
        self.boots = 1
        self._name = name

    @property
    def boot_id(self) -> str:
        """Of the present boot."""
        return f"boot {self.boots} of {self._name}"


class SimulatedBroker:
    """A broker in virtual time, an async context manager.

    Arguments:
        data_dir: its log directory.
        network: where it listens.
        seed: of its random numbers, and of what a power failure leaves.
        settings: configs under Kafka's names.
        host, port: its address in the network.
        machine: where it runs, perhaps beside others; None: it has a machine of its own.

    Attributes:
        settings: all configs; a change is in force with the next start.
        on_failed: as of `Broker`.
    """

    def __init__(
        self,
        data_dir: str,
        network: MemoryNetwork,
        *,
        seed: int = 0,
        settings: Mapping[str, SettingValue] | None = None,
        host: str = HOST,
        port: int = PORT,
        machine: Machine | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self.data_dir = data_dir
        self._network = network
        self.settings = {**EMBEDDED, "listeners": f"PLAINTEXT://{self.address}", **(settings or {})}
        self._random = SeededRandom(seed)
        self._failures = randoms.Random(seed)
        self._broker: Broker | None = None
        self._host = host
        self._wall_offset_ms = 0
        self.machine = machine or Machine(host)
        self._process = Process(network, host, SimulatedDisk(), 0)
        self.on_failed: Callable[[str], None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def running(self) -> RunningBroker:
        """The parts of the broker. Raises RuntimeError while it does not run."""
        if self._broker is None:
            raise RuntimeError("the broker does not run: `await broker.start()`")
        return self._broker.running

    @property
    def is_running(self) -> bool:
        """Whether the process exists and has started; it may be paused."""
        return self._broker is not None

    @property
    def disk(self) -> FaultyDisk:
        """The disk, for faults; a new one after each start, with the same contents."""
        return self._process.disk

    async def start(self) -> None:
        """Recover the logs and accept connections. Does nothing where the broker runs."""
        if self._broker is None:
            for row in ROWS:
                row.load()  # the first use would load it in steps: a run would depend on the runs before it
            disk = SimulatedDisk(self._process.disk)
            self._process = Process(self._network, self._host, disk, self._wall_offset_ms)
            boot_id = self.machine.boot_id
            ports = self._process.ports(self._random)
            ports = replace(ports, boot_id=lambda: boot_id)
            broker = Broker(self.data_dir, self.settings, ports=ports)
            broker.on_failed = self._failed
            await broker.start()
            self._broker = broker

    def _failed(self, text: str) -> None:
        if self.on_failed is not None:
            self.on_failed(text)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop cleanly, as `Broker.stop`, also a paused process. Does nothing where the broker does not run."""
        if self._broker is not None:
            self._process.resume()
            broker, self._broker = self._broker, None
            await broker.stop(grace_s)

    def jump_wall(self, by_ms: int) -> None:
        """Move the wall clock of the machine, milliseconds; it stays moved after a restart."""
        self._wall_offset_ms += by_ms
        self._process.jump_wall(by_ms)

    def slow_jobs(self, late_s: float) -> None:
        """Let the jobs of the broker end `late_s` seconds later, as those of a slow disk do, until the next start."""
        self._process.slow_jobs(late_s)

    def pause(self) -> None:
        """Stop the process as SIGSTOP does, until `resume` or its end."""
        if self._broker is not None:
            self._process.pause()

    def resume(self) -> None:
        """Let a paused process run again, as SIGCONT does."""
        self._process.resume()

    def kill(self) -> None:
        """End the process at once, as SIGKILL does: connections are reset, what it wrote stays."""
        if self._broker is not None:
            self._broker = None
            self._process.kill()

    def cut_power(self) -> int:
        """End the process and lose at random what was not flushed; returns the number of lost changes and names.

        The machine has another boot id then.
        """
        self.kill()
        self.machine.boots += 1
        return self.disk.crash(self._failures)
