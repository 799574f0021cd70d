"""A clock on which each look at the time costs time, so that budgets per loop iteration end."""

from kafkalite.testing.virtual_clock import VirtualClock

__all__ = ["CostlyClock"]


class CostlyClock:
    """The time of a virtual clock and a millisecond for each look at it; timers are those of the virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._spent_s = 0.0
        self.wall_ms, self.call_at = clock.wall_ms, clock.call_at

    def monotonic(self) -> float:
        """Seconds."""
        self._spent_s += 0.001
        return self._clock.monotonic() + self._spent_s
