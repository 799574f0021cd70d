"""The ports of a broker that can be killed or lose its network, although it runs in a thread of the test's process.

Its clock, sockets, threads and files are the real ones. `kafkalite.testing.simulated_broker` has the simulated ones.
"""

import asyncio
import ssl as ssl_module
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any, Protocol, runtime_checkable

from kafkalite._speedups.net.framing import Limits, Service
from kafkalite._speedups.storage.file import File
from kafkalite.clock import LoopClock, Outcome, Raised, Then, ThreadOffload
from kafkalite.net.listener import ConnectionCounts, Listener, SocketOptions
from kafkalite.net.transport import TlsSide
from kafkalite.server.process.ports import Ports
from kafkalite.storage.dirs.temporary import TemporaryDisk
from kafkalite.storage.log.flush_job import JobSyncer


@runtime_checkable
class AwaitedConnection(Protocol):
    """The protocol of a connection whose end tasks may wait for."""

    ended: asyncio.Event


class OpenFile(File):
    """A file of a `ProcessDisk`."""


class ProcessDisk(TemporaryDisk):
    """A temporary disk whose files are closed when the process ends, and their locks released."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[OpenFile] = weakref.WeakSet()

    def make_file(self, path: str, fd: int) -> OpenFile:
        """A file that the end of the process closes."""
        file = OpenFile(path, fd)
        self._open.add(file)
        return file

    def kill(self) -> None:
        """Close all files."""
        for file in list(self._open):
            file.close()


class ProcessOffload(ThreadOffload):
    """Threads that may end without the outcomes of their jobs."""

    _killed = False

    def kill(self) -> None:
        """Wait for jobs that run; no other one begins, and no outcome is applied. In the thread of the loop."""
        self._killed = True
        with suppress(Empty):
            while True:
                self._jobs.get_nowait()
                self._open -= 1
        self.close()

    def _apply(self, done: Then, outcome: Outcome) -> None:
        if self._killed:
            self._open -= 1
        else:
            super()._apply(done, outcome)


class ProcessListener(Listener):
    """A listener that can be cut off: its connections are closed, and new ones wait in the backlog."""

    _cut = _paused_by_broker = False

    def pause(self) -> None:
        """Accept nothing until `resume`."""
        self._paused_by_broker = True
        super().pause()

    def resume(self) -> None:
        """Accept again, unless the network is cut."""
        self._paused_by_broker = False
        if not self._cut:
            super().resume()

    def cut(self, cut: bool) -> None:
        """Cut the network off, or restore it."""
        self._cut = cut
        if cut:
            super().pause()
            self.disconnect("the network is cut")
        elif not self._paused_by_broker:
            super().resume()


class RealProcess:
    """One incarnation of a broker: what ends when its process ends, and what its network is."""

    def __init__(self) -> None:
        self._disk = ProcessDisk()
        self._clocks: list[LoopClock] = []
        self._jobs: list[ProcessOffload] = []
        self._listeners: list[ProcessListener] = []
        self._dialed: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._cut = False

    def ports(self) -> Ports:
        """The ports of the broker."""
        return Ports(
            clock=self._clock,
            offload=self._offload,
            disk=self._disk,
            syncer=lambda disk, _paths, _loop, jobs, _raised: JobSyncer(disk, jobs, jobs.close),
            listen=self._listen,
            dial=self._dial,
        )

    def cut(self, cut: bool) -> None:
        """Cut the network off in both directions, or restore it. In the thread of the broker."""
        self._cut = cut
        for listener in self._listeners:
            listener.cut(cut)
        if cut:
            self._abort_dialed()

    async def kill(self) -> None:
        """End the process at once, as SIGKILL does: what it wrote stays. In the thread of the broker."""
        self._cut = True
        for clock in self._clocks:
            clock.close()
        for listener in self._listeners:
            listener.disconnect("the process is killed")
        for transport in list(self._dialed):
            protocol = transport.get_protocol()
            transport.set_protocol(asyncio.Protocol())  # a process that has ended learns nothing about its connections
            transport.abort()
            if isinstance(protocol, AwaitedConnection):
                protocol.ended.set()  # the end of the loop cancels tasks, and waits for those that wait for this
        for jobs in self._jobs:
            jobs.kill()
        for listener in self._listeners:
            await listener.close(0)
        self._disk.kill()

    def _abort_dialed(self) -> None:
        for transport in list(self._dialed):
            transport.abort()

    async def _dial(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, ssl: ssl_module.SSLContext | None
    ) -> None:
        """Connect to another broker or to the coordination service, unless the network is cut."""
        if self._cut:
            raise ConnectionRefusedError("the network is cut")
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port, ssl=ssl)
        self._dialed.add(transport)
        if self._cut:
            transport.abort()

    def _clock(self, loop: asyncio.AbstractEventLoop, raised: Raised) -> LoopClock:
        self._clocks.append(LoopClock(loop, raised))
        return self._clocks[-1]

    def _offload(
        self, loop: asyncio.AbstractEventLoop, threads: int = 4, raised: Raised | None = None, **options: Any
    ) -> ProcessOffload:
        self._jobs.append(ProcessOffload(loop, threads, raised, **options))
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
    ) -> ProcessListener:
        listener = ProcessListener(
            loop, service, limits, tls=tls, counts=counts, sockets=sockets, refuse_from=refuse_from
        )
        self._listeners.append(listener)
        return listener
