"""A timer of the event loop that keeps the earliest of its times."""

import asyncio
from collections.abc import Callable
from math import inf


class Alarm:
    """Calls a function once at the earliest time that was set since its last call.

    Arguments:
        loop: its clock and timers.
        ring: the function.
        failed: called with an exception of the function.

    Attributes:
        at: when it is called; infinity = it is not.
    """

    __slots__ = ("_failed", "_loop", "_ring", "_timer", "at")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ring: Callable[[], object], failed: Callable[[Exception], object]
    ) -> None:
        self._loop = loop
        self._failed = failed
        self._ring = ring
        self.at = inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Ring at a time of the loop's clock, unless it rings before; infinity = nothing to do."""
        if at >= self.at:
            return
        self.cancel()
        self.at = at
        self._timer = self._loop.call_at(at, self._fire)

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.at = None, inf

    def _fire(self) -> None:
        self._timer, self.at = None, inf
        try:
            self._ring()
        except Exception as error:
            self._failed(error)
