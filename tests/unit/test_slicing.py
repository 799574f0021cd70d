"""`kafkalite.slicing`: generators share a time budget per loop iteration."""

from collections.abc import Callable, Iterator

import pytest

from kafkalite.clock import Outcome
from kafkalite.slicing import VISITS_PER_SLICE, Slicer, visit_in_slices
from kafkalite.testing.virtual_clock import VirtualClock

STEP_S = 0.001


class CostlyClock(VirtualClock):
    """A clock on which each step takes `spend`."""

    def __init__(self) -> None:
        super().__init__()
        self.spent_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.spent_s

    def spend(self) -> None:
        self.spent_s += STEP_S


class Bench:
    """A slicer, and generators that note each of their steps."""

    def __init__(self) -> None:
        self.clock = CostlyClock()
        self.raised: list[BaseException] = []
        self.slicer = Slicer(self.clock, lambda _callback, error: self.raised.append(error), budget_s=3.5 * STEP_S)
        self.steps: list[str] = []
        self.outcomes: dict[str, Outcome] = {}

    def work(self, name: str, steps: int, then: Callable[[], object] = lambda: None) -> Iterator[None]:
        for _ in range(steps):
            self.steps.append(name)
            self.clock.spend()
            yield
        then()
        return name

    def run(self, name: str, steps: int, then: Callable[[], object] = lambda: None):
        return self.slicer.run(self.work(name, steps, then), lambda outcome: self.outcomes.update({name: outcome}))

    def iterate(self) -> None:
        self.clock.advance(1)  # the timer was set at most a few steps ahead
        self.clock.advance(50)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_short_generator_ends_inside_run(bench: Bench) -> None:
    bench.run("a", 2)
    assert bench.outcomes["a"].result() == "a"


def test_long_generator_stops_at_the_budget_and_continues_later(bench: Bench) -> None:
    bench.run("a", 6)
    assert bench.steps == ["a"] * 4 and not bench.outcomes
    bench.iterate()
    assert bench.steps == ["a"] * 6 and bench.outcomes["a"].result() == "a"


def test_budget_is_shared_by_all_generators_of_an_iteration(bench: Bench) -> None:
    for name in "abcd":
        bench.run(name, 3)
    assert len(bench.steps) == 4
    bench.iterate()
    assert set(bench.outcomes) == set("abcd")


def test_generators_run_alternately(bench: Bench) -> None:
    bench.run("a", 6)
    bench.run("b", 1)
    bench.iterate()
    assert bench.steps[4:] == ["a", "b", "a"]
    assert list(bench.outcomes) == ["b", "a"]


def test_exception_of_a_generator_is_the_error_of_its_outcome(bench: Bench) -> None:
    bench.run("a", 1, then=lambda: 1 // 0)
    assert isinstance(bench.outcomes["a"].error, ZeroDivisionError) and not bench.raised


def test_exception_of_done_is_reported_and_others_go_on(bench: Bench) -> None:
    bench.slicer.run(bench.work("a", 1), lambda _outcome: 1 // 0)
    bench.run("b", 1)
    bench.iterate()
    assert [type(error) for error in bench.raised] == [ZeroDivisionError] and "b" in bench.outcomes


def test_cancelled_generator_is_closed_and_its_done_is_not_called(bench: Bench) -> None:
    job = bench.run("a", 6)
    job.cancel()
    bench.iterate()
    assert bench.steps == ["a"] * 4 and not bench.outcomes and job.steps.gi_frame is None


def test_generator_that_cancels_itself_is_closed_after_its_step(bench: Bench) -> None:
    jobs = []

    def work() -> Iterator[None]:
        yield
        jobs[0].cancel()
        yield
        bench.steps.append("never")

    bench.run("a", 4)  # uses the budget up, so that `jobs` is set before the first step
    jobs.append(bench.slicer.run(work(), lambda outcome: bench.outcomes.update(work=outcome)))
    bench.iterate()
    assert "never" not in bench.steps and "work" not in bench.outcomes


def test_generator_started_by_a_done_runs_in_the_same_budget(bench: Bench) -> None:
    bench.slicer.run(bench.work("a", 1), lambda _outcome: bench.run("b", 1))
    assert bench.steps == ["a", "b"] and "b" in bench.outcomes


def test_close_ends_all_generators_without_done(bench: Bench) -> None:
    bench.run("a", 6)
    bench.run("b", 6)
    bench.slicer.close()
    bench.iterate()
    assert not bench.outcomes and bench.steps == ["a"] * 4


def test_every_generator_ends_inside_run_on_a_virtual_clock() -> None:
    ended: list[object] = []
    Slicer(VirtualClock(), print).run((None for _ in range(100_000)), ended.append)
    assert len(ended) == 1


def test_visits_continue_in_the_next_loop_iteration_after_a_slice() -> None:
    clock, seen, ends = VirtualClock(), list[int](), list[int]()
    visit_in_slices(clock, range(VISITS_PER_SLICE * 2 + 1), seen.append, lambda: ends.append(len(seen)))
    assert len(seen) == VISITS_PER_SLICE and clock.timers == 1
    clock.advance(0)
    assert seen == list(range(VISITS_PER_SLICE * 2 + 1)) and ends == [len(seen)]


def test_slow_visits_end_their_slice_early() -> None:
    class Slow(VirtualClock):
        def monotonic(self) -> float:
            self.advance(0.2)
            return super().monotonic()

    clock, seen = Slow(), list[int]()
    visit_in_slices(clock, range(30), seen.append)
    assert 0 < len(seen) < 10


def test_visit_that_raises_does_not_end_the_others() -> None:
    clock, seen = VirtualClock(), list[int]()

    def visit(item: int) -> None:
        seen.append(item)
        if item == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        visit_in_slices(clock, range(6), visit)
    clock.advance(0)
    assert seen == list(range(6))
