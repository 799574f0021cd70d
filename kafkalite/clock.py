"""Time, random numbers and work outside the loop, as parameters.

Nothing in the package asks the operating system for them; it gets a `Clock`, a `Random` and an `Offload`. Their virtual
twins are in `kafkalite.testing.virtual_clock`.

1. Timeouts and intervals use `monotonic`; times in records and files use `wall_ms`.
2. One heap of timers per broker over a single timer of the loop. A timer never fires early; all timers that are due
   fire in one callback, in order of their time, then of their creation.
3. A job gets everything it may touch as arguments. Its outcome is applied on the loop by one callback which drains a
   queue, in the order in which jobs end, and never from inside `run`. The exception of a job is in its `Outcome`. The
   callback ends after `OUTCOMES_S` and continues in the next loop iteration: jobs that end faster than their outcomes
   are applied do not keep the loop from its connections.
4. The exception of a callback is reported, by default to the loop's exception handler, and affects no other timer or
   outcome.
"""

import builtins
import heapq
import itertools
import logging
import math
import os
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, TimerHandle

Raised: TypeAlias = Callable[[object, BaseException], object]
Job: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Callable[["Outcome"], object]]

LOGGER = logging.getLogger("kafkalite.clock")
JUMP_MS = 600_000
STEP_MS = 2_000  # above what NTP adjusts the frequency by between two checks (500 ppm of minutes)
PAUSE_MS = 3_600_000
OUTCOMES_S = 0.004  # applied at a time, then the loop serves its connections
COMPACT_AT = 64  # cancelled timers that may lie in the heap before they are swept out (then: half of it)


class Timer(Protocol):
    """A callback that will be called once."""

    def cancel(self) -> None:
        """Cancel the call; does nothing after it."""


class Clock(Protocol):
    """Time and timers."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump in both directions."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary time; never decreases."""

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` on the loop when `monotonic()` reaches `when` (seconds)."""


class BrokerClock(Clock, Protocol):
    """A clock of one broker."""

    def close(self) -> None:
        """Cancel all timers."""


class Random(Protocol):
    """A source of random numbers."""

    def bytes(self, size: int) -> bytes:
        """Return `size` random bytes."""

    def below(self, limit: int) -> int:
        """Return a whole number in [0, limit)."""

    def uuid(self) -> builtins.bytes:
        """Return a version 4 UUID as 16 bytes whose base64url text does not begin with '-' (Uuid.java, randomUuid)."""


class Outcome:
    """The result of a job.

    Arguments:
        value: its return value.
        error: its exception, or None.
    """

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def result(self) -> Any:
        """Return the job's return value, or raise its exception."""
        if self.error is not None:
            raise self.error
        return self.value


Then = Callable[[Outcome], object]  # what an operation calls once, when it has ended, now or later


async def await_outcome(call: Callable[[Then], object]) -> Outcome:
    """Make a call that takes a callback, and wait for its outcome. The call may end after the wait was cancelled."""
    from asyncio import get_running_loop  # commands without an event loop import this module, too

    ended: Future[Outcome] = get_running_loop().create_future()
    call(lambda outcome: None if ended.done() else ended.set_result(outcome))
    return await ended


class Offload(Protocol):
    """Runs jobs that may block or take longer than a millisecond."""

    def run(self, job: Callable[..., Any], *args: Any, done: Then) -> None:
        """Call `job(*args)` outside the loop, then `done(outcome)` on the loop, never before `run` has returned."""


class Executor(Offload, Protocol):
    """An `Offload` of one broker."""

    def close(self) -> None:
        """Wait for every job and apply its outcome; call it on the loop's thread. A second call does nothing."""


def outcome_of(job: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """Call a job and catch every exception."""
    try:
        return Outcome(job(*args))
    except BaseException as error:  # goes to the caller in the outcome
        return Outcome(error=error)


class HeapTimer:
    """A timer of a `TimerHeap`."""

    __slots__ = ("_heap", "args", "callback", "sequence", "when")

    def __init__(
        self, heap: "TimerHeap", when: float, sequence: int, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self._heap = heap
        self.when = when
        self.sequence = sequence
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def __lt__(self, other: "HeapTimer") -> bool:
        return (self.when, self.sequence) < (other.when, other.sequence)

    def cancel(self) -> None:
        """Cancel the call."""
        if self.callback is not None:
            self.drop()
            self._heap.cancelled()

    def drop(self) -> None:
        """Release the callback and its arguments."""
        self.callback = None
        self.args = ()


class ClockWatch:
    """Detects jumps of the wall clock, which must not make all data look old.

    The time since the last check is compared on both clocks. If they differ by more than `JUMP_MS`, nothing is deleted
    by age for `pause_ms`, so that an operator can read the log line and correct the clock.

    Arguments:
        clock: both clocks.
        pause_ms: how long the wall clock is distrusted after a jump.
        logs_steps: log smaller steps, too, from `STEP_MS` on. A machine that was suspended looks the same: its
            monotonic clock was stopped.
    """

    def __init__(self, clock: Clock, pause_ms: int = PAUSE_MS, *, logs_steps: bool = False) -> None:
        self.pause_ms = pause_ms
        self._logs_steps = logs_steps
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._monotonic = clock.monotonic()
        self._paused_until = self._monotonic

    def look(self) -> int | None:
        """Return the wall time in milliseconds, None while it is distrusted."""
        wall_ms, monotonic = self._clock.wall_ms(), self._clock.monotonic()
        jump_ms = (wall_ms - self._wall_ms) - round((monotonic - self._monotonic) * 1000)
        self._wall_ms, self._monotonic = wall_ms, monotonic
        if abs(jump_ms) > JUMP_MS:
            self._paused_until = monotonic + self.pause_ms / 1000
            LOGGER.warning(
                "the wall clock jumped by %d s; time-based retention pauses for %d s%s",
                round(jump_ms / 1000),
                round(self.pause_ms / 1000),
                "; the expiry of tokens follows it" if self._logs_steps else "",
            )
        elif self._logs_steps and abs(jump_ms) > STEP_MS:
            LOGGER.warning(
                "the wall clock has moved by %+.1f s, or the machine was suspended: the expiry of tokens follows it, "
                "sessions and quotas do not",
                jump_ms / 1000,
            )
        return None if monotonic < self._paused_until else wall_ms


class TimerHeap:
    """Timers in order of their time, independent of clock and loop."""

    def __init__(self) -> None:
        self._timers: list[HeapTimer] = []
        self._sequence = itertools.count()
        self._cancelled = 0

    def __len__(self) -> int:
        """Return the number of pending timers."""
        return len(self._timers) - self._cancelled

    def add(self, when: float, callback: Callable[..., object], args: tuple[object, ...]) -> HeapTimer:
        """Add a timer."""
        timer = HeapTimer(self, when, next(self._sequence), callback, args)
        heapq.heappush(self._timers, timer)
        return timer

    def cancelled(self) -> None:
        """Count a cancelled timer, and remove cancelled timers from the heap when they are many."""
        self._cancelled += 1
        if self._cancelled > COMPACT_AT and self._cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def next_when(self) -> float | None:
        """Return the time of the next timer, or None."""
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled -= 1
        return self._timers[0].when if self._timers else None

    def mark(self) -> int:
        """Return a number above the sequence of every existing timer."""
        return next(self._sequence)

    def pop_due(self, now: float, mark: int) -> tuple[Callable[..., object], tuple[object, ...]] | None:
        """Remove and return the next timer that is due and older than `mark`; None if there is none.

        The mark prevents an endless loop of a callback that sets a timer in the past.
        """
        when = self.next_when()
        if when is None or when > now or self._timers[0].sequence >= mark:
            return None
        timer = heapq.heappop(self._timers)
        callback, args = timer.callback, timer.args
        assert callback is not None, "next_when() removed the cancelled ones"
        timer.drop()
        return callback, args


FIRE_BUDGET_S = 0.004


class LoopClock:
    """The system's clocks, and timers over a single timer of an event loop.

    Callbacks run at most `FIRE_BUDGET_S`, plus the rest of one callback, per loop iteration: timers that are due at the
    same moment, such as the sessions of all members after a start, are spread over iterations, in their order.

    Arguments:
        loop: its thread owns the broker's state and makes all calls.
        raised: called with a failed callback and its exception; None = the loop's exception handler.
    """

    def __init__(self, loop: "AbstractEventLoop", raised: Raised | None = None) -> None:
        self._loop = loop
        self._raised = raised or partial(report_to_loop, loop)
        self._heap = TimerHeap()
        self._armed: TimerHandle | None = None
        self._armed_for = math.inf

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # seconds; each request asks, and is spared a frame

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` when the monotonic clock reaches `when`."""
        timer = self._heap.add(when, callback, args)
        if when < self._armed_for:
            self._arm(when)
        return timer

    def close(self) -> None:
        """Cancel all timers."""
        self._disarm()
        self._heap = TimerHeap()

    def _arm(self, when: float) -> None:
        self._disarm()
        delay_ms = math.ceil(max(0.0, when - time.monotonic()) * 1000)  # uvloop rounds to milliseconds, also downwards
        self._armed = self._loop.call_later(delay_ms / 1000, self._fire)
        self._armed_for = when

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed = None
        self._armed_for = math.inf

    def _fire(self) -> None:
        self._armed = None
        self._armed_for = -math.inf  # timers made meanwhile are armed for below
        heap, now = self._heap, time.monotonic()
        mark, until = heap.mark(), now + FIRE_BUDGET_S
        while (due := heap.pop_due(now, mark)) is not None:
            call_guarded(self._raised, *due)
            if time.monotonic() >= until:
                break  # what else is due fires in the next loop iteration
        self._armed_for = math.inf
        when = self._heap.next_when()
        if when is not None:
            self._arm(when)


def call_guarded(raised: Raised, callback: Callable[..., object], args: tuple[object, ...]) -> None:
    """Call; an exception goes to `raised`."""
    try:
        callback(*args)
    except Exception as error:
        raised(callback, error)


def report_to_loop(loop: "AbstractEventLoop", callback: object, error: BaseException) -> None:
    """Report an exception to the loop's exception handler, as for a callback of the loop itself."""
    loop.call_exception_handler({"message": f"exception in {callback!r}", "exception": error})


class SystemRandom:
    """The operating system's random numbers."""

    def bytes(self, size: int) -> bytes:
        """Return `size` random bytes."""
        return os.urandom(size)

    def below(self, limit: int) -> int:
        """Return a whole number in [0, limit)."""
        if limit <= 0:
            raise ValueError(f"nothing is below {limit}")
        bits = limit.bit_length()
        while True:  # drawn again when too large, so that every number is as likely
            drawn = int.from_bytes(os.urandom((bits + 7) // 8)) & ((1 << bits) - 1)
            if drawn < limit:
                return drawn

    def uuid(self) -> builtins.bytes:
        """Return a random UUID as Kafka generates them."""
        return uuid_from(os.urandom)


def uuid_from(random_bytes: Callable[[int], bytes]) -> bytes:
    """Return a version 4 UUID from a source of bytes; drawn again while its text begins with '-', like a command-line
    option.
    """
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:  # 62 is '-' in base64url
            return bytes(raw)


class ThreadOffload:
    """Runs jobs in its own threads, which start when they are needed.

    Arguments:
        loop: applies the outcomes; it must outlive `close`.
        threads: maximum number of jobs at the same time.
        raised: called with a failed callback and its exception; None = the loop's exception handler.
        name: of the threads.
        prepare: called first in each thread, for example to lower its priority.
    """

    def __init__(
        self,
        loop: "AbstractEventLoop",
        threads: int = 4,
        raised: Raised | None = None,
        *,
        name: str = "kafkalite-job",
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self._loop = loop
        self._raised = raised or partial(report_to_loop, loop)
        self._threads_max = threads
        self._name = name
        self._prepare = prepare
        self._threads: list[Thread] = []
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # a pool of futures takes some 40 us more per job
        self._ended: SimpleQueue[tuple[Then, Outcome]] = SimpleQueue()
        self._open = 0  # jobs whose outcome was not applied yet
        self._closed = False
        self._awake = False  # a drain is on its way; a lost race costs one empty drain, never an outcome

    def run(self, job: Callable[..., Any], *args: Any, done: Then) -> None:
        """Call `job(*args)` in a thread, then `done(outcome)` on the loop. Raises RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("the executor is closed")
        self._open += 1
        if len(self._threads) < min(self._open, self._threads_max):
            self._threads.append(Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True))
            self._threads[-1].start()
        self._jobs.put((job, args, done))

    def close(self) -> None:
        """Wait for every job and apply its outcome; call it on the loop's thread. A second call does nothing."""
        self._closed = True
        while self._open:
            self._apply(*self._ended.get())
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        if self._prepare is not None:
            self._prepare()
        while (taken := self._jobs.get()) is not None:
            job, args, done = taken
            self._ended.put((done, outcome_of(job, args)))
            del taken, job, args, done  # nothing is kept alive by a thread that waits
            if not self._awake:
                self._awake = True
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._awake = False
        until = time.monotonic() + OUTCOMES_S
        while not self._ended.empty():
            self._apply(*self._ended.get())
            if time.monotonic() > until:
                self._awake = True
                self._loop.call_soon(self._drain)
                return

    def _apply(self, done: Then, outcome: Outcome) -> None:
        self._open -= 1
        call_guarded(self._raised, done, (outcome,))
