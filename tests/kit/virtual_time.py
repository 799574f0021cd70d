"""A clock over the time of an event loop, for code that gets its clock as a parameter."""

import asyncio
from collections.abc import Callable

from kafkalite.clock import Timer
from kafkalite.testing.virtual_clock import START_WALL_MS


class LoopTime:
    """The clock of a loop.

    Arguments:
        loop: of virtual time; None = the running one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, as `virtual_wall_ms`."""
        return START_WALL_MS + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        """Return the seconds of the loop."""
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call back at a time of the loop."""
        return self._loop.call_at(when, callback, *args)
