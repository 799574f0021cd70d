"""Virtual twins of `kafkalite.clock`: time that a test moves, seeded random numbers, jobs without threads.

A run with these three and the same seed repeats exactly.
"""

import builtins
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from kafkalite.clock import Outcome, Then, Timer, TimerHeap, outcome_of, uuid_from

START_WALL_MS = 1_700_000_000_000


class VirtualClock:
    """A clock that a test moves; timers fire inside `advance`, at their own time.

    Arguments:
        wall_ms: the wall time at the start, milliseconds since 1970.
    """

    def __init__(self, wall_ms: int = START_WALL_MS) -> None:
        self._heap = TimerHeap()
        self._now_ms = 0.0
        self._wall_offset_ms = wall_ms

    def wall_ms(self) -> int:
        """Return the virtual wall time, milliseconds since 1970."""
        return self._wall_offset_ms + int(self._now_ms)

    def monotonic(self) -> float:
        """Return virtual seconds since the creation of this clock."""
        return self._now_ms / 1000

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` when `advance` reaches `when`."""
        return self._heap.add(when, callback, args)

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` in the next `advance`, also by 0."""
        return self.call_at(self.monotonic(), callback, *args)

    @property
    def timers(self) -> int:
        """The number of pending timers."""
        return len(self._heap)

    def close(self) -> None:
        """Cancel all timers."""
        self._heap = TimerHeap()

    def jump_wall(self, by_ms: int) -> None:
        """Move the wall clock alone, as an administrator or NTP would."""
        self._wall_offset_ms += by_ms

    def stop(self, by_ms: float) -> None:
        """Let `by_ms` milliseconds pass without firing a timer: the process was stopped (SIGSTOP)."""
        self._now_ms += by_ms

    def advance(self, by_ms: float) -> None:
        """Advance the time by `by_ms` milliseconds and fire all due timers, also those set meanwhile.

        An exception of a callback ends the call at that moment.
        """
        end_ms = self._now_ms + by_ms
        end = end_ms / 1000  # as `monotonic` returns it: multiplied by 1000 it may be slightly above
        while (when := self._heap.next_when()) is not None and when <= end:
            self._now_ms = min(max(self._now_ms, when * 1000), end_ms)
            due = self._heap.pop_due(when, self._heap.mark())
            assert due is not None
            due[0](*due[1])
        self._now_ms = max(self._now_ms, end_ms)


class SeededRandom:
    """Random numbers that repeat.

    Arguments:
        seed: any whole number; a failing test prints it.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)

    def bytes(self, size: int) -> bytes:
        """Return `size` bytes."""
        return self._random.randbytes(size)

    def below(self, limit: int) -> int:
        """Return a whole number in [0, limit)."""
        return self._random.randrange(limit)

    def uuid(self) -> builtins.bytes:
        """Return a version 4 UUID."""
        return uuid_from(self._random.randbytes)


class InlineOffload:
    """Runs jobs in the calling thread: a job runs inside `run`, its outcome is applied later, as with threads.

    Arguments:
        soon: schedules the application of outcomes, for example `loop.call_soon` or `VirtualClock.call_soon`; None = a
            test
            calls `drain`.

    While `held` is true, jobs are queued until `release`.
    """

    def __init__(self, soon: Callable[[Callable[[], object]], object] | None = None) -> None:
        self.held = False
        self._soon = soon
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...], Then]] = deque()
        self._ended: deque[tuple[Then, Outcome]] = deque()

    def run(self, job: Callable[..., Any], *args: Any, done: Then) -> None:
        """Call `job(*args)`, unless held; `done(outcome)` follows with the next drain."""
        self._waiting.append((job, args, done))
        if not self.held:
            self._work()

    @property
    def waiting(self) -> int:
        """The number of queued jobs."""
        return len(self._waiting)

    def release(self) -> None:
        """Run the queued jobs, and queue no more."""
        self.held = False
        self._work()

    def drain(self) -> int:
        """Apply all outcomes, those of new jobs included; returns how many."""
        applied = 0
        while self._ended:
            done, outcome = self._ended.popleft()
            done(outcome)
            applied += 1
        return applied

    def _work(self) -> None:
        while self._waiting:
            job, args, done = self._waiting.popleft()
            self._ended.append((done, outcome_of(job, args)))
            if self._soon is not None:
                self._soon(self.drain)
