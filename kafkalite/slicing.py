"""Time slices for long work on the loop: generators that run a few milliseconds per loop iteration, in turn.

Work that touches thousands of objects cannot leave the loop, which owns them. It is written as a generator that yields
after every small step (well below a millisecond). A short generator ends inside `Slicer.run`, at no extra cost.

Invariants:
1. All generators together use at most `budget_s` per loop iteration, plus the rest of one step.
2. Generators take turns, one step each: a long one delays a short one by its own steps only.
3. `done` is called exactly once per generator, unless the generator is cancelled; perhaps before `run` returns.
4. On a virtual clock, which does not move while code runs, every generator ends inside `run`.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from kafkalite.clock import Clock, Outcome, Raised, Then, call_guarded

BUDGET_S = 0.004
STEPS_PER_SLICE = 16  # of `group_steps`: of some 10 us each
VISITS_PER_SLICE, VISITS_S = 64, 0.0005  # of `visit_in_slices`: maximum per loop iteration

Steps: TypeAlias = Generator[None, None, Any]
Item = TypeVar("Item")


def finish(steps: Steps) -> Any:
    """Run a generator to its end at once, and return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def group_steps(steps: Steps, count: int = STEPS_PER_SLICE) -> Steps:
    """Yield after each `count` steps of `steps`, as a step of the slicer costs about 1 us."""
    try:
        while True:
            for _ in range(count):
                next(steps)
            yield
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


class Slice:
    """A generator that is being run; `cancel` ends it early, without a call of its `done`. `ended`: it has returned."""

    __slots__ = ("cancelled", "done", "ended", "steps")

    def __init__(self, steps: Steps, done: Then) -> None:
        self.steps = steps
        self.done = done
        self.cancelled = False
        self.ended = False

    def cancel(self) -> None:
        """Run no further step; the slicer closes the generator."""
        self.cancelled = True


class Slicer:
    """Runs generators on the loop within a time budget per loop iteration.

    Arguments:
        clock: of the loop on which the generators run.
        raised: called with a `done` that raised and with its exception.
        budget_s: seconds per loop iteration for all generators together.
    """

    def __init__(self, clock: Clock, raised: Raised, budget_s: float = BUDGET_S) -> None:
        self._clock = clock
        self._raised = raised
        self._budget_s = budget_s
        self._waiting: deque[Slice] = deque()
        self._used_s = 0.0  # in this loop iteration
        self._armed = False
        self._running = False

    def run(self, steps: Steps, done: Then) -> Slice:
        """Run `steps`, now as far as the budget allows and then in later loop iterations.

        Arguments:
            steps: the generator; its return value becomes the value of the outcome, its exception the error.
            done: called on the loop with the `Outcome`.
        """
        job = Slice(steps, done)
        self._waiting.append(job)
        if len(self._waiting) == 1 and not self._running:  # else it runs after the others
            self._go_on()
        return job

    def close(self) -> None:
        """End all generators; no `done` is called any more."""
        while self._waiting:
            self._waiting.popleft().steps.close()

    def _next_iteration(self) -> None:
        self._armed = False
        self._used_s = 0.0
        self._go_on()

    def _go_on(self) -> None:
        self._running = True
        began = now = self._clock.monotonic()
        until = began + self._budget_s - self._used_s
        while self._waiting and now < until:
            self._step()
            now = self._clock.monotonic()
        self._running = False
        self._used_s += now - began
        if not self._armed and (self._waiting or self._used_s > 0):
            self._armed = True
            self._clock.call_at(now, self._next_iteration)

    def _step(self) -> None:
        """Run one step of the first generator and move it behind the others."""
        job = self._waiting.popleft()
        try:
            if not job.cancelled:
                next(job.steps)
        except StopIteration as end:
            self._end(job, Outcome(end.value))
        except Exception as error:
            self._end(job, Outcome(error=error))
        else:
            if job.cancelled:
                job.steps.close()
            else:
                self._waiting.append(job)

    def _end(self, job: Slice, outcome: Outcome) -> None:
        job.ended = True
        if not job.cancelled:
            call_guarded(self._raised, job.done, (outcome,))


def visit_in_slices(
    clock: Clock, items: Sequence[Item], visit: Callable[[Item], object], done: Callable[[], object] | None = None
) -> None:
    """Visit every item, at most VISITS_PER_SLICE in VISITS_S per loop iteration: for periodic work over all logs.

    An exception of a visit goes to the caller of its slice; the remaining items are visited all the same.

    Arguments:
        clock: of the loop; each slice after the first is a timer.
        items: in the order of their visits.
        visit: called with each item.
        done: called after the last visit.
    """

    def run(at: int) -> None:
        until = clock.monotonic() + VISITS_S
        end = min(at + VISITS_PER_SLICE, len(items))
        try:
            while at < end:
                at += 1
                visit(items[at - 1])
                if clock.monotonic() > until:
                    break
        finally:
            if at < len(items):
                clock.call_at(clock.monotonic(), run, at)
            elif done is not None:
                done()

    run(0)
