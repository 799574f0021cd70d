"""Whether the wall clock can be believed: a jump must not make every segment look old.

Law: time since the last look is compared on both clocks; when they differ by more than `JUMP_MS`, retention by time
rests for a while, so that somebody can see the line and set the clock right.
"""

import logging

from kafkalite.clock import Clock

JUMP_MS = 600_000
PAUSE_MS = 3_600_000
logger = logging.getLogger(__name__)


class ClockWatch:
    """Compares the wall clock with the monotonic one.

    Arguments:
        clock: both of them.
        pause_ms: how long the wall clock is not believed after a jump.
    """

    def __init__(self, clock: Clock, pause_ms: int = PAUSE_MS) -> None:
        self.pause_ms = pause_ms
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._monotonic = clock.monotonic()
        self._paused_until = self._monotonic

    def look(self) -> int | None:
        """The wall time in milliseconds, None while it is not believed."""
        wall_ms, monotonic = self._clock.wall_ms(), self._clock.monotonic()
        jump_ms = (wall_ms - self._wall_ms) - round((monotonic - self._monotonic) * 1000)
        self._wall_ms, self._monotonic = wall_ms, monotonic
        if abs(jump_ms) > JUMP_MS:
            self._paused_until = monotonic + self.pause_ms / 1000
            logger.warning(
                "the wall clock jumped by %d s; nothing is deleted for its age in the next %d s",
                round(jump_ms / 1000), round(self.pause_ms / 1000),
            )  # fmt: skip
        return None if monotonic < self._paused_until else wall_ms
