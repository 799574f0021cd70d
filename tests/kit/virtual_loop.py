"""An asyncio event loop in virtual time, and the ports of a broker that runs in it: one thread, no sockets, no waits.

When no callback is ready, the loop sets its time to that of the next timer. Time does not pass while code runs.
"""

import asyncio
import selectors
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kafkalite._speedups.net.framing import Limits, Service
from kafkalite.clock import Raised
from kafkalite.net.listener import SocketOptions
from kafkalite.net.memory_transport import Client, MemoryHub
from kafkalite.server.ports import Ports
from kafkalite.storage.log.flush_job import JobSyncer
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import START_WALL_MS, InlineOffload, SeededRandom

T = TypeVar("T")


class VirtualSelector(selectors.SelectSelector):
    """Waits in virtual time: returns at once, and moves the time of the loop by the timeout."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is ready and no timer is set: this simulation would wait for ever"
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits."""

    def __init__(self) -> None:
        self.virtual = VirtualSelector()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now_s


class VirtualLoopClock:
    """A `BrokerClock` over the timers of a `VirtualLoop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, raised: Raised) -> None:
        self._loop = loop
        self._raised = raised
        self._timers: set[asyncio.TimerHandle] = set()

    def wall_ms(self) -> int:
        return START_WALL_MS + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        def fire() -> None:
            self._timers.discard(timer)
            try:
                callback(*args)
            except Exception as error:
                self._raised(callback, error)

        timer = self._loop.call_at(when, fire)
        self._timers.add(timer)
        return timer

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


class LoopOffload(InlineOffload):
    """Runs jobs in the thread of the loop, and applies their outcomes in its next iteration."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *_: object, **_named: object) -> None:
        super().__init__(loop.call_soon)

    def close(self) -> None:
        self.drain()


class MemoryListener(MemoryHub):
    """A `BrokerListener` whose connections are in memory."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: Service,
        limits: Limits | None = None,
        *,
        sockets: SocketOptions | None = None,
        refuse_from: int | None = None,
    ) -> None:
        super().__init__(service, limits)
        self._loop = loop

    def wake(self) -> None:
        super().wake()
        self._loop.call_soon(self.pump)

    def bind(self, host: str, port: int, name: str = "PLAINTEXT") -> tuple[str, int]:
        return "memory", port

    def inherit(self, listening: socket.socket, name: str = "PLAINTEXT") -> tuple[str, int]:
        raise NotImplementedError

    def limit(self, connections_max: int, connections_per_ip_max: int) -> None:
        """The number of connections is the test's choice."""

    def free_unused(self) -> None:
        """Connections in memory have no receive buffers."""

    async def close(self, grace_s: float = 5.0) -> None:
        self.pump()


class MemoryNetwork:
    """Creates the listener of one broker, and connections to it."""

    def __init__(self) -> None:
        self._listener: MemoryListener | None = None

    def listen(self, *args: Any, **named: Any) -> MemoryListener:
        self._listener = MemoryListener(*args, **named)
        return self._listener

    def connect(self) -> Client:
        assert self._listener is not None, "no broker listens"
        return self._listener.connect()


def virtual_ports(seed: int, network: MemoryNetwork, disk: FaultyDisk) -> Ports:
    """Ports without threads, sockets, real time and real randomness."""
    return Ports(
        clock=VirtualLoopClock,
        random=SeededRandom(seed),
        offload=LoopOffload,
        disk=disk,
        syncer=lambda disk, _paths, _loop, jobs, _raised: JobSyncer(disk, jobs, jobs.close),
        listen=network.listen,
    )


async def pass_time(seconds: float) -> None:
    """Let virtual time pass; never use it in real time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    passed = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    await passed


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, float]:
    """Run a coroutine in a loop of its own; its result, and the seconds of virtual time that it took."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main()), loop.time()
    finally:
        loop.close()
