"""Slices that end after a few steps: in virtual time, which does not move while code runs, each would run to its end.

Half of the seeds have them, so that messages, timers and ends of terms fall between the steps of long work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from kafkalite.clock import Clock, Raised, Timer
from kafkalite.server.process import resources
from kafkalite.slicing import BUDGET_S, Slicer, group_steps

STEPS = (None, None, 1, 3)  # per loop iteration; None = all
PAUSE_S = 0.002  # until the next slice: more than some messages of the network take


class StepClock:
    """The clock of a slicer: each look at the time costs a part of its budget; the next slice begins after a pause.

    Arguments:
        clock: the virtual clock.
        step_s: the cost.
    """

    def __init__(self, clock: Clock, step_s: float) -> None:
        self._clock = clock
        self._step_s = step_s
        self._spent_s = 0.0
        self.wall_ms = clock.wall_ms

    def monotonic(self) -> float:
        """Seconds."""
        self._spent_s += self._step_s
        return self._clock.monotonic() + self._spent_s

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call after the pause."""
        self._spent_s = 0.0
        return self._clock.call_at(self._clock.monotonic() + PAUSE_S, callback, *args)


@contextmanager
def short_slices(seed: int) -> Iterator[None]:
    """Give the brokers that are created in the block the slices of a seed."""
    steps = Random(f"slices {seed}").choice(STEPS)
    if steps is None:
        yield
        return
    step_s = BUDGET_S / steps

    def slicer(clock: Clock, raised: Raised) -> Slicer:
        return Slicer(StepClock(clock, step_s), raised)

    with patch.object(resources, "Slicer", slicer), patch.object(group_steps, "__defaults__", (1,)):
        yield
