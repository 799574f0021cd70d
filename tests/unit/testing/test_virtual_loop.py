"""The event loop in virtual time."""

import asyncio
import math
import selectors
from collections.abc import Callable
from random import Random

import pytest

from kafkalite.testing.virtual_loop import VirtualLoop, VirtualTimeError, pass_time, run_virtually
from tests.kit.seeds import chosen_seed

TIMERS = 3_000


class SelectedTime(selectors.SelectSelector):
    """Moves the time by the timeouts of asyncio."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None
        self.now_s += max(0.0, timeout)
        return []


class ReferenceLoop(asyncio.SelectorEventLoop):
    """The loop of asyncio itself, with a selector that does not wait."""

    def __init__(self) -> None:
        self._time = SelectedTime()
        super().__init__(self._time)

    def time(self) -> float:
        return self._time.now_s

    @property
    def _clock_resolution(self) -> float:
        return math.ulp(self._time.now_s)

    @_clock_resolution.setter
    def _clock_resolution(self, _: float) -> None:
        """Ignore the resolution of the real clock."""


def calls_of(create: Callable[[], asyncio.AbstractEventLoop], seed: int) -> list[tuple[float, int]]:
    """Time and number of each call in a run with timers of equal times, of which some are cancelled."""
    random = Random(seed)
    calls: list[tuple[float, int]] = []
    timers: list[asyncio.TimerHandle] = []
    loop = create()

    def call(number: int) -> None:
        calls.append((loop.time(), number))
        if len(timers) >= TIMERS:
            return
        for _ in range(random.choice((0, 1, 1, 2, 40))):
            when = loop.time() + random.choice((0.0, 0.001, 0.001, 1.0, random.random(), 200_000.0))
            timers.append(loop.call_at(when, call, len(timers)))
        for timer in random.sample(timers, min(len(timers), random.choice((0, 1, 30)))):
            timer.cancel()
        loop.call_soon(call, -1)

    loop.call_soon(call, -1)
    loop.call_at(1_000_000.0, loop.stop)
    try:
        loop.run_forever()
    finally:
        loop.close()
    return calls


def test_calls_are_those_of_asyncio_in_the_same_order() -> None:
    """Also among timers of the same time, and where most timers are cancelled."""
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    calls = calls_of(VirtualLoop, seed)
    assert calls == calls_of(ReferenceLoop, seed)
    assert len({when for when, _ in calls}) > TIMERS / 20
    assert len(calls) > TIMERS / 2


def test_timers_are_called_at_their_time_and_not_a_rounding_error_before() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        called: list[float] = []
        for when in (1.6011999999999997, 1.6012):
            loop.call_at(when, lambda: called.append(loop.time()))
        await pass_time(2.0)
        return called

    assert run_virtually(main)[0] == [1.6011999999999997, 1.6012]


def test_code_that_would_wait_for_ever_fails() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1.0, print).cancel()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(VirtualTimeError, match="no timer is set"):
        run_virtually(main)


def test_pending_timers_are_those_that_are_not_cancelled() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        timers = [loop.call_later(1.0, print) for _ in range(3)]
        timers[1].cancel()
        assert set(loop.pending_timers) == {timers[0], timers[2]}

    run_virtually(main)
