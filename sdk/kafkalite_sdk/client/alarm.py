"""A timer of the event loop that keeps the earliest of its times."""

import asyncio
from collections.abc import Callable
from math import inf


class Alarm:
    """Calls a function once at the earliest time that was set since its last call.

    Arguments:
        loop: its clock and timers.
        ring: the function.
    """

    __slots__ = ("_at", "_loop", "_ring", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], object]) -> None:
        self._loop = loop
        self._ring = ring
        self._at = inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Ring at a time of the loop's clock, unless it rings before; infinity = nothing to do."""
        if at >= self._at:
            return
        self.cancel()
        self._at = at
        self._timer = self._loop.call_at(at, self._fire)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at = None, inf

    def _fire(self) -> None:
        self._timer, self._at = None, inf
        self._ring()
