"""The timer of a broker that checks whether followers lag: those that do leave the ISR.

The partitions that this broker leads with followers are checked every half of `replica.lag.time.max.ms`, in slices of
loop iterations: there may be thousands. `state/isr/isr_shrink` decides which followers leave; a late check removes
none. All slices use the time at which the check began: the process may be stopped between two of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite.clock import Clock, Timer
from kafkalite.slicing import visit_in_slices
from kafkalite.state.isr.isr_shrink import LagChecks


class LagChecked(Protocol):
    """A partition whose followers are checked."""

    def check_lag(self, lag_max_ms: int, now_ms: int) -> None:
        """Request the removal of followers that lag at the time of the check."""


class IsrCheckTimer:
    """The checks of all partitions with followers that this broker leads. Without any, there is no timer.

    Arguments:
        clock: of the broker.
        lag_max_ms: returns how long a follower may lag.
    """

    def __init__(self, clock: Clock, lag_max_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._lag_max_ms = lag_max_ms
        self._checked: dict[LagChecked, None] = {}
        self._checks = LagChecks(0)
        self._timer: Timer | None = None

    def add(self, checked: LagChecked) -> None:
        """Check a partition from the next time on."""
        self._checked[checked] = None
        if self._timer is None:
            self._checks = LagChecks(self._now_ms())
            self._set_timer()

    def remove(self, checked: LagChecked) -> None:
        """Check a partition no longer."""
        self._checked.pop(checked, None)
        if not self._checked:
            self.close()

    def close(self) -> None:
        """End the checks."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _set_timer(self) -> None:
        self._timer = self._clock.call_at(self._checks.next_ms(self._lag_max_ms()) / 1000, self._check)

    def _check(self) -> None:
        lag_max_ms, now_ms = self._lag_max_ms(), self._now_ms()
        removes = self._checks.begin(now_ms, lag_max_ms)
        self._set_timer()
        if removes:
            visit_in_slices(self._clock, list(self._checked), partial(self._check_partition, lag_max_ms, now_ms))

    def _check_partition(self, lag_max_ms: int, now_ms: int, checked: LagChecked) -> None:
        if checked in self._checked:
            checked.check_lag(lag_max_ms, now_ms)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
