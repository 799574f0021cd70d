"""Removes deleted files and directories in the background, many per job.

1. One removal job runs at a time. It removes everything that is due when it starts, up to `BATCH`.
2. A log directory is synced once per job, before anything is removed from it: after a power cut no partition directory
   has its old name again with a part of its files.
3. What cannot be removed is logged, and the next start removes it.

The delay, file.delete.delay.ms, is Kafka's (LogManager.deleteLogs, LocalLog.deleteSegmentFiles).
"""

import heapq
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Clock, Offload, Outcome, Timer

BATCH = 100  # directories and files per job; a stop waits for one job
LOGGER = logging.getLogger("kafkalite.storage.file_removal")


class PendingRemoval(NamedTuple):
    """A file or a partition directory that was renamed and is to be removed; `root`: of a directory."""

    path: str
    root: str | None = None


class FileRemover:
    """Keeps deleted files and directories until it removes them.

    Arguments:
        disk: the disk of the files.
        clock: for the delays.
        offload: runs the jobs; a thread of its own, so that no other job waits behind removals.
    """

    def __init__(self, disk: Disk, clock: Clock, offload: Offload) -> None:
        self._disk = disk
        self._clock = clock
        self._offload = offload
        self._later: list[tuple[float, int, PendingRemoval]] = []
        self._sequence = itertools.count()
        self._due: deque[PendingRemoval] = deque()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._busy = False
        self._closed = False
        self._waiting: list[Callable[[], object]] = []

    def __len__(self) -> int:
        return len(self._later) + len(self._due)

    def add(self, paths: Sequence[str], delay_ms: int, *, directories: bool = False) -> None:
        """Remove files, or partition directories, after `delay_ms`."""
        when = self._clock.monotonic() + delay_ms / 1000
        for path in paths:
            doomed = PendingRemoval(path, os.path.dirname(path) if directories else None)
            if delay_ms > 0:
                heapq.heappush(self._later, (when, next(self._sequence), doomed))
            else:
                self._due.append(doomed)
        self._arm()
        self._begin()

    def when_done(self, then: Callable[[], object]) -> None:
        """Call `then` once everything that is due has been removed, perhaps at once."""
        if self._busy:
            self._waiting.append(then)
        else:
            then()

    def close(self) -> None:
        """Start no further job; the next start removes the remaining files."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if not self._later or self._closed:
            return
        when = self._later[0][0]
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._clock.call_at(when, self._fire), when

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            self._due.append(heapq.heappop(self._later)[2])
        self._arm()
        self._begin()

    def _begin(self) -> None:
        if self._busy or self._closed or not self._due:
            return
        self._busy = True
        batch = [self._due.popleft() for _ in range(min(len(self._due), BATCH))]
        self._offload.run(remove_batch, self._disk, batch, done=self._removed)

    def _removed(self, outcome: Outcome) -> None:
        self._busy = False
        try:
            if isinstance(outcome.error, OSError):
                LOGGER.error("cannot remove deleted files, the next start removes them: %s", outcome.error)
            else:
                outcome.result()
        finally:
            self._begin()
            if not self._busy:
                waiting, self._waiting = self._waiting, []
                call_all(*waiting)


def remove_batch(disk: Disk, batch: Sequence[PendingRemoval]) -> None:
    """Job: remove files and directories; missing ones are ignored.

    Raises the first OSError after the others were tried; directories of a root that cannot be synced stay.
    """
    roots = dict.fromkeys(doomed.root for doomed in batch if doomed.root is not None)
    call_each(lambda root: _remove_from(disk, root, [doomed.path for doomed in batch if doomed.root == root]), roots)
    call_each(lambda doomed: remove_file(disk, doomed.path), [doomed for doomed in batch if doomed.root is None])


def _remove_from(disk: Disk, root: str, directories: Sequence[str]) -> None:
    try:
        disk.sync_dir(root)
    except FileNotFoundError:
        return
    call_each(lambda path: remove_tree(disk, path), directories)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory with its files; a missing one is ignored. Raises OSError."""
    try:
        disk.remove_tree(path)
    except FileNotFoundError:
        return


def remove_file(disk: Disk, path: str) -> None:
    """Remove a file; a missing one is ignored. Raises OSError."""
    try:
        disk.remove(path)
    except FileNotFoundError:
        return
