"""Time, chance and work outside the loop, as parameters (decision 9 of the design).

Nothing in the package asks the operating system for them; it gets a `Clock`, a `Random` and an `Offload`. Their virtual
twins are in `kafkalite.testing.virtual_clock`.

Laws:
1. Timeouts and intervals use `monotonic`; what is written into records and files uses `wall_ms`.
2. One heap of timers per broker over a single timer of the loop. A timer never fires early; all timers that are due
   fire in one callback, in order of their time, then of their creation.
3. A job gets everything it may touch as arguments. Its outcome is applied on the loop by one callback which drains a
   queue, in the order in which jobs end, and never from inside `run`. What a job raises arrives as an `Outcome`. The
   callback ends after `OUTCOMES_S` and continues in the next loop iteration: jobs that end faster than their outcomes
   are applied do not keep the loop from its connections.
4. A callback that raises is reported, to the loop's exception handler unless somebody else wants to know, and takes
   no other timer or outcome with it.
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
    from asyncio import AbstractEventLoop, TimerHandle

Raised: TypeAlias = Callable[[object, BaseException], object]
Job: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Callable[["Outcome"], object]]

LOGGER = logging.getLogger("kafkalite.clock")
JUMP_MS = 600_000
PAUSE_MS = 3_600_000
OUTCOMES_S = 0.004  # applied at a time, then the loop serves its connections
COMPACT_AT = 64  # cancelled timers that may lie in the heap before they are swept out (then: half of it)


class Timer(Protocol):
    """A callback that will be called once."""

    def cancel(self) -> None:
        """Call it no more; does nothing when it has been called already."""


class Clock(Protocol):
    """Time and timers."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump in both directions."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` on the loop once `monotonic()` has reached `when` (seconds)."""


class BrokerClock(Clock, Protocol):
    """A clock of one broker."""

    def close(self) -> None:
        """Cancel all timers."""


class Random(Protocol):
    """A source of random numbers."""

    def bytes(self, size: int) -> bytes:
        """`size` random bytes."""

    def below(self, limit: int) -> int:
        """A whole number in [0, limit)."""

    def uuid(self) -> builtins.bytes:
        """A version 4 UUID as 16 bytes whose base64url text does not begin with '-' (Uuid.java, randomUuid)."""


class Outcome:
    """How a job ended.

    Arguments:
        value: what it returned.
        error: what it raised, or None.
    """

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def result(self) -> Any:
        """What the job returned; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.value


class Offload(Protocol):
    """Work that may block or takes longer than a millisecond."""

    def run(self, job: Callable[..., Any], *args: Any, done: Callable[[Outcome], object]) -> None:
        """Call `job(*args)` outside the loop, then `done(outcome)` on the loop, never before `run` has returned."""


class Executor(Offload, Protocol):
    """An `Offload` of one broker."""

    def close(self) -> None:
        """Wait for every job and apply its outcome; call it on the loop's thread. A second call does nothing."""


def outcome_of(job: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """Call a job and catch everything it raises."""
    try:
        return Outcome(job(*args))
    except BaseException as error:  # handed to whoever asked for the job
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
        """Call it no more."""
        if self.callback is not None:
            self.drop()
            self._heap.cancelled()

    def drop(self) -> None:
        """Let go of what it would have called."""
        self.callback = None
        self.args = ()


class ClockWatch:
    """Says whether the wall clock can be believed: a jump must not make everything look old.

    Time since the last look is compared on both clocks. When they differ by more than `JUMP_MS`, nothing is deleted for
    its age for a while, so that somebody can see the line and set the clock right.

    Arguments:
        clock: both of them.
        pause_ms: how long the wall clock is not believed after a jump.
    """

    def __init__(self, clock: Clock, pause_ms: int = PAUSE_MS) -> None:
        self.pause_ms = pause_ms
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._monotonic = clock.monotonic()
        self._paused_until = self._monotonic

    def look(self) -> int | None:
        """The wall time in milliseconds, None while it is not believed."""
        wall_ms, monotonic = self._clock.wall_ms(), self._clock.monotonic()
        jump_ms = (wall_ms - self._wall_ms) - round((monotonic - self._monotonic) * 1000)
        self._wall_ms, self._monotonic = wall_ms, monotonic
        if abs(jump_ms) > JUMP_MS:
            self._paused_until = monotonic + self.pause_ms / 1000
            LOGGER.warning(
                "the wall clock jumped by %d s; time-based retention pauses for %d s",
                round(jump_ms / 1000), round(self.pause_ms / 1000),
            )  # fmt: skip
        return None if monotonic < self._paused_until else wall_ms


class TimerHeap:
    """Timers in order of their time; knows neither clock nor loop."""

    def __init__(self) -> None:
        self._timers: list[HeapTimer] = []
        self._sequence = itertools.count()
        self._cancelled = 0

    def __len__(self) -> int:
        """How many timers still wait."""
        return len(self._timers) - self._cancelled

    def add(self, when: float, callback: Callable[..., object], args: tuple[object, ...]) -> HeapTimer:
        """A new timer."""
        timer = HeapTimer(self, when, next(self._sequence), callback, args)
        heapq.heappush(self._timers, timer)
        return timer

    def cancelled(self) -> None:
        """A waiting timer was cancelled: sweep when too many such lie about."""
        self._cancelled += 1
        if self._cancelled > COMPACT_AT and self._cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def next_when(self) -> float | None:
        """When the next one is due, or None."""
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled -= 1
        return self._timers[0].when if self._timers else None

    def mark(self) -> int:
        """A number above the sequence of every timer that exists now."""
        return next(self._sequence)

    def pop_due(self, now: float, mark: int) -> tuple[Callable[..., object], tuple[object, ...]] | None:
        """Take out the next timer that is due and older than `mark`; None when there is none.

        The mark keeps a callback that asks for a timer in the past from being called for ever.
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
        loop: the loop whose thread owns the broker's state; all calls come from that thread.
        raised: called with a callback that raised and what it raised; None = the loop's exception handler.
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
        """Call `callback(*args)` once the monotonic clock has reached `when`."""
        timer = self._heap.add(when, callback, args)
        if when < self._armed_for:
            self._arm(when)
        return timer

    def close(self) -> None:
        """Forget all timers."""
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
    """Call; what it raises is told to `raised`."""
    try:
        callback(*args)
    except Exception as error:
        raised(callback, error)


def report_to_loop(loop: "AbstractEventLoop", callback: object, error: BaseException) -> None:
    """Report to the loop's exception handler, as with a callback of the loop's own."""
    loop.call_exception_handler({"message": f"exception in {callback!r}", "exception": error})


class SystemRandom:
    """The operating system's random numbers."""

    def bytes(self, size: int) -> bytes:
        """`size` random bytes."""
        return os.urandom(size)

    def below(self, limit: int) -> int:
        """A whole number in [0, limit)."""
        if limit <= 0:
            raise ValueError(f"nothing is below {limit}")
        bits = limit.bit_length()
        while True:  # drawn again when too large, so that every number is as likely
            drawn = int.from_bytes(os.urandom((bits + 7) // 8)) & ((1 << bits) - 1)
            if drawn < limit:
                return drawn

    def uuid(self) -> builtins.bytes:
        """A random UUID as Kafka makes them."""
        return uuid_from(os.urandom)


def uuid_from(random_bytes: Callable[[int], bytes]) -> bytes:
    """A version 4 UUID from a source of bytes; drawn again while its text begins with '-', as an option does."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:  # 62 is '-' in base64url
            return bytes(raw)


class ThreadOffload:
    """Jobs in threads of their own, begun as they are needed.

    Arguments:
        loop: where outcomes are applied; it must outlive `close`.
        threads: how many jobs run at the same time at most.
        raised: called with a callback that raised and what it raised; None = the loop's exception handler.
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
        self._ended: SimpleQueue[tuple[Callable[[Outcome], object], Outcome]] = SimpleQueue()
        self._open = 0  # jobs whose outcome was not applied yet
        self._closed = False
        self._awake = False  # a drain is on its way; a lost race costs one empty drain, never an outcome

    def run(self, job: Callable[..., Any], *args: Any, done: Callable[[Outcome], object]) -> None:
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

    def _apply(self, done: Callable[[Outcome], object], outcome: Outcome) -> None:
        self._open -= 1
        call_guarded(self._raised, done, (outcome,))
