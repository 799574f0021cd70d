"""Runs asyncio code in virtual time: one thread, no sockets, no waits.

    result, seconds = run_virtually(main)       # main: a coroutine function without arguments

When no callback is ready, the loop sets its time to that of the next timer. Time does not pass while code runs. A run
that uses only the loop, `MemoryNetwork` and seeded random numbers repeats exactly.
"""

import asyncio
import math
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

from kafkalite.testing.virtual_clock import START_WALL_MS

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CANCEL_S = 60.0  # of virtual time, then the tasks that are left are cancelled again
WAIT_MAX_S = 24 * 3600.0  # of one iteration, as in asyncio
CANCELLED_MIN, CANCELLED_SHARE = 100, 0.5  # of timers in the heap, as in asyncio

# Of two timers of one time neither is less than the other, as among handles of asyncio: the heap orders them as asyncio
# does. Each entry has a NaN of its own, because tuples take one object on both sides for equal.
HeapEntry = tuple[float, float, asyncio.TimerHandle]
NAN = math.nan


class VirtualTimeError(Exception):
    """Code in virtual time waits for ever, or has failed outside of the coroutine that runs."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits.

    It calls what `asyncio.BaseEventLoop` would call, in the same order, without a selector. A simulation spends a tenth
    of its time in the loop.

    Attributes:
        failures: exceptions of callbacks and of tasks that no code has awaited, in the order of their report.
    """

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())  # for the pipe of call_soon_threadsafe alone, nothing waits for it
        self.failures: list[BaseException] = []
        self._now_s = 0.0
        self._timers: list[HeapEntry] = []
        self._cancelled = 0  # number of timers in the heap that are cancelled
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        """Return the virtual time in seconds since the creation of the loop."""
        return self._now_s

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call a function when the time of the loop has reached `when`."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, -NAN, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        """A timer was cancelled; asyncio calls this."""
        self._cancelled += timer._scheduled  # type: ignore[attr-defined]

    def _run_once(self) -> None:
        """Run one iteration; asyncio calls this.

        A timer is due one rounding error before its time, not 1 ns as in asyncio, the resolution of the real clock:
        code that finds its deadline in the future would wait again, at the same virtual time, without an end.
        """
        self._drop_cancelled()
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise VirtualTimeError("nothing is ready and no timer is set: this code would wait for ever")
            self._now_s += min(max(0.0, timers[0][0] - self._now_s), WAIT_MAX_S)
        end = self._now_s + math.ulp(self._now_s)
        while timers and timers[0][0] < end:
            ready.append(pop(timers))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> None:
        """Remove cancelled timers, all of them where they are more than half of the heap, as asyncio does."""
        timers = self._timers
        if len(timers) > CANCELLED_MIN and self._cancelled / len(timers) > CANCELLED_SHARE:
            self._timers = [entry for entry in timers if not entry[2].cancelled()]
            heapify(self._timers)
            self._cancelled = 0
            return
        while timers and timers[0][2].cancelled():
            self._cancelled -= 1
            pop(timers)

    def close(self) -> None:
        """Close the loop."""
        super().close()
        self._timers.clear()

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
        return [timer for _, _, timer in self._timers if not timer.cancelled()]

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context.get("exception") or VirtualTimeError(context["message"]))


def pop(timers: list[HeapEntry]) -> asyncio.TimerHandle:
    """Remove the first timer of a heap."""
    timer = heappop(timers)[2]
    timer._scheduled = False  # type: ignore[attr-defined]
    return timer


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
