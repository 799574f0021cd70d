"""Runs asyncio code in virtual time: one thread, no sockets, no waits.

    result, seconds = run_virtually(main)       # main: a coroutine function without arguments

When no callback is ready, the loop sets its time to that of the next timer. Time does not pass while code runs. A run
that uses only the loop, `MemoryNetwork` and seeded random numbers repeats exactly.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kafkalite.testing.virtual_clock import START_WALL_MS

T = TypeVar("T")

CANCEL_S = 60.0  # of virtual time, then the tasks that are left are cancelled again


class VirtualTimeError(Exception):
    """Code in virtual time waits for ever, or has failed outside of the coroutine that runs."""


class VirtualSelector(selectors.SelectSelector):
    """Waits in virtual time: returns at once, and moves the time of the loop by the timeout."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return no events. Raises VirtualTimeError without a timeout: no timer is set, so nothing would happen."""
        if timeout is None:
            raise VirtualTimeError("nothing is ready and no timer is set: this code would wait for ever")
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits.

    Attributes:
        failures: exceptions of callbacks and of tasks that no code has awaited, in the order of their report.
    """

    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)
        self.failures: list[BaseException] = []
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        """Return the virtual time in seconds since the creation of the loop."""
        return self._virtual.now_s

    @property
    def _clock_resolution(self) -> float:
        """The smallest step of the time. asyncio calls timers early by the resolution of the clock, 1 ns: code that
        finds its deadline in the future then waits again, at the same virtual time, without an end.
        """
        return math.ulp(self._virtual.now_s)

    @_clock_resolution.setter
    def _clock_resolution(self, _: float) -> None:
        """Ignore the resolution of the real clock."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """Call a function now, in the thread of the loop; a thread would need real time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    @property
    def pending_timers(self) -> list[asyncio.TimerHandle]:
        """The timers that are set."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return [timer for timer in scheduled if not timer.cancelled()]

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context.get("exception") or VirtualTimeError(context["message"]))


def _end(passed: "asyncio.Future[None]") -> None:
    if not passed.done():  # else it was cancelled in this iteration
        passed.set_result(None)


async def pass_time(seconds: float) -> None:
    """Let virtual time pass. Raises VirtualTimeError in a loop of real time."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise VirtualTimeError("pass_time is for code of run_virtually; await an event in real time")
    passed = loop.create_future()
    timer = loop.call_later(seconds, _end, passed)
    try:
        await passed
    finally:
        timer.cancel()


def virtual_wall_ms() -> int:
    """Return the wall time in milliseconds since 1970: `START_WALL_MS` when the running loop was created."""
    return START_WALL_MS + round(asyncio.get_running_loop().time() * 1000)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, float]:
    """Run a coroutine in a loop of its own.

    Returns: its result, and the seconds of virtual time that it took.

    Raises: its exception; VirtualTimeError where it waits for ever, or where a callback or a task that no code has
    awaited has failed.
    """
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main())
        if loop.failures:
            raise VirtualTimeError(f"{len(loop.failures)} callbacks have failed") from loop.failures[0]
        return result, loop.time()
    finally:
        try:
            loop.run_until_complete(_cancel_all())
        finally:
            loop.close()


async def _cancel_all() -> None:
    """Cancel the tasks that a failed run has left, and let them end; their exceptions follow from the cancellation."""
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
