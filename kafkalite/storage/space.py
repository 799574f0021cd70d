"""The free space of the log directories: a line before they are full, and one when there is room again.

Law: one line per change for the worse, at 10 % and again at 1 GiB; one when all is well. Room must come back by a tenth
above the mark, so that a directory at the mark does not fill the log.
"""

import logging
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from kafkalite._speedups.file import Disk
from kafkalite.clock import Offload, Outcome

LOW_SHARE = 0.10
SCARCE_BYTES = 1024**3
RECOVERED = 1.1
logger = logging.getLogger(__name__)


class Level(IntEnum):
    """How much is left."""

    ENOUGH = 0
    LOW = 1
    SCARCE = 2


def level_of(free: int, total: int, factor: float = 1.0) -> Level:
    """Where `free` of `total` bytes stand, the marks raised by `factor`."""
    if free < SCARCE_BYTES * factor:
        return Level.SCARCE
    return Level.LOW if free < total * LOW_SHARE * factor else Level.ENOUGH


class SpaceWatch:
    """Looks at the free space of directories, as jobs.

    Arguments:
        disk, offload: how it is asked for.
        failed: told of the directory and the error where the file system does not answer.
    """

    def __init__(self, disk: Disk, offload: Offload, failed: Callable[[str, OSError], None]) -> None:
        self._disk = disk
        self._offload = offload
        self._failed = failed
        self._levels: dict[str, Level] = {}

    def look(self, path: str) -> None:
        """Ask for the space of a directory; its line comes when the answer does."""
        self._offload.run(self._disk.free_bytes, path, done=partial(self._found, path))

    def _found(self, path: str, outcome: Outcome) -> None:
        if isinstance(outcome.error, OSError):
            self._failed(path, outcome.error)
            return
        free, total = outcome.result()
        before, now = self._levels.get(path, Level.ENOUGH), level_of(free, total)
        if now > before:
            self._levels[path] = now
            logger.warning("%s: %d MiB free, %d %%", path, free >> 20, 100 * free // max(total, 1))
        elif now < before and level_of(free, total, RECOVERED) is Level.ENOUGH:
            self._levels[path] = Level.ENOUGH
            logger.warning("%s: there is room again, %d MiB free", path, free >> 20)
