"""Time, chance and jobs: the real ones on both loops, and their virtual twins."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace

import pytest
import uvloop

from kafkalite import clock as clock_module
from kafkalite.clock import COMPACT_AT, LoopClock, Outcome, SystemRandom, ThreadOffload, TimerHeap, uuid_from
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock

Main = Callable[[], Coroutine[None, None, None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run(main: Main) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main(), 30))

    return run


class TestLoopClock:
    def test_callbacks_that_are_due_at_once_share_a_budget_per_iteration(
        self, run: Callable[[Main], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clock_module, "FIRE_BUDGET_S", 0)  # one callback per iteration

        async def main() -> None:
            loop = asyncio.get_running_loop()
            clock, fired, done = LoopClock(loop), [], asyncio.Event()
            seen: list[int] = []

            def other_work() -> None:
                seen.append(len(fired))
                if not done.is_set():
                    loop.call_soon(other_work)

            now = clock.monotonic()
            for name in range(5):
                clock.call_at(now, fired.append, name)
            clock.call_at(now, done.set)
            other_work()
            await done.wait()
            assert fired == [0, 1, 2, 3, 4]
            assert {1, 2, 3, 4, 5} <= set(seen), "other work waited for several callbacks"

        run(main)

    def test_timers_fire_in_order_and_never_early(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            clock, late, done = LoopClock(asyncio.get_running_loop()), [], asyncio.Event()
            start = clock.monotonic()
            for name, delay in (("c", 0.03), ("a", 0.0101), ("b", 0.0203), ("a2", 0.0101)):
                due = start + delay
                clock.call_at(due, lambda name=name, due=due: late.append((name, clock.monotonic() >= due)))
            clock.call_at(start + 0.031, done.set)
            await done.wait()
            assert late == [("a", True), ("a2", True), ("b", True), ("c", True)]

        run(main)

    def test_a_cancelled_timer_does_not_fire_and_cancelling_twice_does_nothing(
        self, run: Callable[[Main], None]
    ) -> None:
        async def main() -> None:
            clock, fired, done = LoopClock(asyncio.get_running_loop()), [], asyncio.Event()
            timer = clock.call_at(clock.monotonic() + 0.005, fired.append, "cancelled")
            timer.cancel()
            timer.cancel()
            last = clock.call_at(clock.monotonic() + 0.01, done.set)
            await done.wait()
            last.cancel()
            assert fired == []

        run(main)

    def test_timer_in_the_past_set_by_a_timer_does_not_block_the_loop(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            loop, order, done = asyncio.get_running_loop(), [], asyncio.Event()
            clock = LoopClock(loop)

            def again() -> None:
                if not order:
                    loop.call_soon(order.append, 0)
                order.append(1)
                if len(order) < 50:
                    clock.call_at(0.0, again)
                else:
                    done.set()

            clock.call_at(0.0, again)
            await done.wait()
            assert order.index(0) < 10, "the loop had its turn in between"

        run(main)

    def test_raising_callback_is_reported_and_others_run(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            loop, reported, done = asyncio.get_running_loop(), [], asyncio.Event()
            loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
            clock = LoopClock(loop)
            clock.call_at(0.0, [].pop)
            clock.call_at(0.0, done.set)
            await done.wait()
            assert [type(error) for error in reported] == [IndexError]

        run(main)

    def test_only_one_timer_of_the_loop_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Time stands still: on a busy machine it would pass between two lines.
        monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
        monkeypatch.setattr(LoopClock, "monotonic", staticmethod(lambda: 1000.0))

        class Loop:
            def __init__(self) -> None:
                self.armed: list[float] = []
                self.cancelled = 0

            def call_later(self, delay: float, callback: Callable[[], None]) -> "Loop":
                self.armed.append(delay)
                return self

            def cancel(self) -> None:
                self.cancelled += 1

        loop = Loop()
        clock = LoopClock(loop)  # type: ignore[arg-type]
        for delay in (50, 60, 70, 40):
            clock.call_at(clock.monotonic() + delay, print)
        assert len(loop.armed) - loop.cancelled == 1 and len(loop.armed) == 2
        clock.call_at(clock.monotonic() + 0.0015, print)
        assert loop.armed[-1] in (0.001, 0.002), "whole milliseconds, not rounded down: else it fires early and spins"
        assert all(delay * 1000 == pytest.approx(round(delay * 1000)) for delay in loop.armed)
        assert loop.armed[0] == 50
        clock.close()
        assert loop.cancelled == len(loop.armed)


def test_cancelled_timers_do_not_pile_up() -> None:
    heap = TimerHeap()
    keep = heap.add(1e9, print, ())
    for when in range(10 * COMPACT_AT):
        heap.add(float(when), print, ()).cancel()
    assert len(heap) == 1 and len(heap._timers) <= 2 * COMPACT_AT + 2
    assert heap.next_when() == keep.when


def test_system_uuids_are_version_4_and_never_look_like_an_option() -> None:
    uuids = [SystemRandom().uuid() for _ in range(300)]
    assert len(set(uuids)) == 300
    assert all(one[6] >> 4 == 4 and one[8] >> 6 == 2 and one[0] >> 2 != 62 for one in uuids)
    draws = iter([b"\xf8" + bytes(15), b"\x01" * 16])
    assert uuid_from(lambda size: next(draws))[0] == 1


def test_system_chance_reaches_every_number_below_the_limit() -> None:
    chance = SystemRandom()
    assert {chance.below(5) for _ in range(500)} == set(range(5)) and chance.below(1) == 0
    with pytest.raises(ValueError, match="below 0"):
        chance.below(0)
    assert len(chance.bytes(7)) == 7


class TestThreadOffload:
    def test_results_and_errors_arrive_on_the_loop(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            loop, here = asyncio.get_running_loop(), threading.get_ident()
            offload, received, done = ThreadOffload(loop, 2), [], asyncio.Event()

            def note(outcome: Outcome) -> None:
                received.append((threading.get_ident() == here, outcome))
                if len(received) == 2:
                    done.set()

            offload.run(threading.get_ident, done=note)
            offload.run(int, "no number", done=note)
            assert received == [], "never from inside run"
            await done.wait()
            assert all(on_loop for on_loop, _ in received)
            values = [outcome for _, outcome in received if outcome.error is None]
            errors = [outcome for _, outcome in received if outcome.error is not None]
            assert values[0].result() != here
            with pytest.raises(ValueError, match="no number"):
                errors[0].result()
            offload.close()

        run(main)

    def test_jobs_that_exit_do_not_end_anything(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            offload, received = ThreadOffload(asyncio.get_running_loop()), asyncio.Queue[Outcome]()
            offload.run(exit, 3, done=received.put_nowait)
            assert isinstance((await received.get()).error, SystemExit)
            offload.close()

        run(main)

    def test_close_waits_for_jobs_and_applies_what_they_found(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            offload, gate, received = ThreadOffload(asyncio.get_running_loop(), 1), threading.Event(), []
            offload.run(gate.wait, 10, done=lambda outcome: received.append(outcome.value))
            offload.run(str, 5, done=lambda outcome: received.append(outcome.value))
            gate.set()
            offload.close()
            assert received == [True, "5"]
            with pytest.raises(RuntimeError):
                offload.run(str, 1, done=received.append)

        run(main)

    def test_raising_done_is_reported_and_other_outcomes_are_applied(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            loop, reported, received = asyncio.get_running_loop(), [], []
            loop.set_exception_handler(lambda _, context: reported.append(type(context["exception"])))
            offload = ThreadOffload(loop, 1)
            offload.run(str, 1, done=lambda outcome: [].pop())
            offload.run(str, 2, done=lambda outcome: received.append(outcome.value))
            offload.close()
            assert reported == [IndexError] and received == ["2"]

        run(main)

    def test_thousands_of_jobs_lose_nothing(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            offload, received, done = ThreadOffload(asyncio.get_running_loop(), 4), [], asyncio.Event()

            def note(outcome: Outcome) -> None:
                received.append(outcome.value)
                if len(received) == 5000:
                    done.set()

            for number in range(5000):
                offload.run(abs, number, done=note)
            await done.wait()
            assert sorted(received) == list(range(5000))
            offload.close()

        run(main)

    def test_long_outcomes_are_spread_over_loop_iterations(
        self, run: Callable[[Main], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clock_module, "OUTCOMES_S", -1.0)

        async def main() -> None:
            loop, gate, received, done = asyncio.get_running_loop(), threading.Event(), [], asyncio.Event()
            offload = ThreadOffload(loop, 1)

            def note(outcome: Outcome) -> None:
                received.append(outcome.value)
                loop.call_soon(received.append, "another callback")
                if outcome.value == 3:
                    loop.call_soon(done.set)

            for number in (1, 2, 3):
                offload.run(lambda number=number: number, done=note)
            offload.run(gate.set, done=lambda outcome: None)
            gate.wait()
            await done.wait()
            assert received == [1, "another callback", 2, "another callback", 3, "another callback"]
            offload.close()

        run(main)

    def test_a_thread_is_prepared_before_its_first_job(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            loop, prepared = asyncio.get_running_loop(), []
            offload = ThreadOffload(loop, 1, prepare=lambda: prepared.append(threading.get_ident()))
            received: asyncio.Queue[Outcome] = asyncio.Queue()
            for _ in range(2):
                offload.run(threading.get_ident, done=received.put_nowait)
            assert [(await received.get()).result(), (await received.get()).result()] == prepared * 2
            offload.close()

        run(main)


class TestVirtualClock:
    def test_virtual_time_moves_only_by_advance(self) -> None:
        clock, seen = VirtualClock(wall_ms=1000), []
        for delay in (0.5, 0.1):
            clock.call_at(delay, lambda: seen.append((clock.monotonic(), clock.wall_ms())))
        clock.advance(99)
        assert seen == [] and clock.timers == 2
        clock.advance(901)
        assert seen == [(0.1, 1100), (0.5, 1500)]
        assert clock.monotonic() == 1.0

    def test_timer_set_by_a_timer_fires_within_the_same_advance(self) -> None:
        clock, seen = VirtualClock(), []

        def tick() -> None:
            seen.append(clock.monotonic())
            clock.call_at(clock.monotonic() + 1, tick)

        clock.call_at(1, tick)
        clock.advance(3500)
        assert seen == [1, 2, 3]

    def test_the_wall_clock_jumps_alone(self) -> None:
        clock = VirtualClock(wall_ms=10_000)
        clock.jump_wall(-3000)
        assert (clock.wall_ms(), clock.monotonic()) == (7000, 0)

    def test_call_soon_runs_with_the_next_advance(self) -> None:
        clock, seen = VirtualClock(), list[int]()
        for ms in range(1, 20_000):
            clock.advance(1)
            clock.call_soon(seen.append, ms)
            clock.advance(0)
            assert seen.pop() == ms == round(clock.monotonic() * 1000)


def test_the_same_seed_gives_the_same_chance() -> None:
    one, other = SeededRandom(7), SeededRandom(7)
    assert [one.uuid(), one.below(1000), one.bytes(5)] == [other.uuid(), other.below(1000), other.bytes(5)]
    assert SeededRandom(8).uuid() != SeededRandom(7).uuid()


def test_inline_jobs_are_applied_later_and_can_be_held() -> None:
    clock, received = VirtualClock(), []
    offload = InlineOffload(clock.call_soon)
    offload.run(str, 1, done=lambda outcome: received.append(outcome.value))
    assert received == []
    clock.advance(0)
    offload.held = True
    offload.run(int, "x", done=lambda outcome: received.append(type(outcome.error)))
    clock.advance(1000)
    assert received == ["1"] and offload.waiting == 1
    offload.release()
    clock.advance(0)
    assert received == ["1", ValueError]
