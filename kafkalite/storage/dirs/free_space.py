"""Logs a warning before the file system of a log directory is full.

One line is logged when free space falls below 10 %, again below the smaller of 5 % and 1 GiB, and one
when there is enough space again: a tenth above the threshold, so that free space around it does not repeat the lines.
"""

import logging
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Offload, Outcome

LOW_SHARE = 0.10
SCARCE_SHARE = 0.05
SCARCE_BYTES = 1024**3
RECOVERED = 1.1
LOGGER = logging.getLogger("kafkalite.storage.dirs.free_space")


class Level(IntEnum):
    """Levels of free space."""

    ENOUGH = 0
    LOW = 1
    SCARCE = 2


def level_of(free: int, total: int, factor: float = 1.0) -> Level:
    """The level of `free` of `total` bytes, the thresholds multiplied by `factor`."""
    if free < min(SCARCE_BYTES, total * SCARCE_SHARE) * factor:
        return Level.SCARCE
    return Level.LOW if free < total * LOW_SHARE * factor else Level.ENOUGH


class SpaceWatch:
    """Checks the free space of directories, as jobs.

    Arguments:
        disk, offload: the disk, and the executor of the jobs.
        failed: called with the directory and the error if the file system returns one.
    """

    def __init__(self, disk: Disk, offload: Offload, failed: Callable[[str, OSError], None]) -> None:
        self._disk = disk
        self._offload = offload
        self._failed = failed
        self._levels: dict[str, Level] = {}

    def look(self, path: str) -> None:
        """Start a job that checks the space of a directory; its result is logged."""
        self._offload.run(self._disk.free_bytes, path, done=partial(self._found, path))

    def _found(self, path: str, outcome: Outcome) -> None:
        if isinstance(outcome.error, OSError):
            self._failed(path, outcome.error)
            return
        free, total = outcome.result()
        before, now = self._levels.get(path, Level.ENOUGH), level_of(free, total)
        if now > before:
            self._levels[path] = now
            share = 100 * free // max(total, 1)
            LOGGER.warning(
                "%s: the file system has %d of %d MiB free (%d %%); produce requests fail when it is full",
                path, free >> 20, total >> 20, share,
            )  # fmt: skip
        elif now < before and level_of(free, total, RECOVERED) is Level.ENOUGH:
            self._levels[path] = Level.ENOUGH
            LOGGER.warning("%s: the file system has enough space again, %d MiB free", path, free >> 20)
