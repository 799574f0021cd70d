"""The recovery points and log starts of all logs, as the lines of their checkpoints.

Laws:
1. A checkpoint is written by one job at a time: two would rename each other's file. What comes meanwhile is written
   after it, the newest only; after `close` it is left to whoever writes all of them at the end.
2. Partitions that are not served keep their entries.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial

from kafkalite._speedups.file import Disk
from kafkalite.clock import Offload, Outcome
from kafkalite.storage import checkpoints
from kafkalite.storage.log import Log

POINT, START = 0, 1


class PointFiles:
    """Writes the checkpoints as jobs.

    Arguments:
        disk, offload: where, and how it leaves the loop.
        settled: told of the log directory and of how a job ended.
    """

    def __init__(self, disk: Disk, offload: Offload, settled: Callable[[str, Outcome], object]) -> None:
        self._disk = disk
        self._offload = offload
        self._settled = settled
        self._writing: set[str] = set()
        self._next: dict[str, tuple[str, str, list[str]]] = {}
        self._closed = False

    def close(self) -> None:
        """Write nothing any more that has to wait."""
        self._closed = True
        self._next.clear()

    def write(self, path: str, name: str, lines: list[str]) -> None:
        """Replace the checkpoint `name` of the log directory `path`."""
        target = os.path.join(path, name)
        if target in self._writing:
            if not self._closed:
                self._next[target] = path, name, lines
        else:
            self._writing.add(target)
            done = partial(self._written, path, target)
            self._offload.run(checkpoints.write_lines, self._disk, target, lines, done=done)

    def _written(self, path: str, target: str, outcome: Outcome) -> None:
        self._writing.discard(target)
        waiting = self._next.pop(target, None)
        if waiting is not None and outcome.error is None:
            self.write(*waiting)
        self._settled(path, outcome)


def both_lines(others: checkpoints.Points, logs: Iterable[Log]) -> list[tuple[str, list[str]]]:
    """(name, lines) of both checkpoints of a log directory."""
    points, starts = others_lines(others, POINT), others_lines(others, START)
    for log in logs:
        points.append(point_line(log))
        starts += start_lines(log)
    return [(checkpoints.RECOVERY_POINTS, points), (checkpoints.LOG_STARTS, starts)]


def write_both(disk: Disk, path: str, others: checkpoints.Points, logs: Iterable[Log]) -> None:
    """Both checkpoints of a log directory; blocks. Raises OSError."""
    for name, lines in both_lines(others, logs):
        checkpoints.write_lines(disk, os.path.join(path, name), lines)


def others_lines(others: checkpoints.Points, which: int) -> list[str]:
    """The entries of partitions that are not served: their recovery points or their log starts, where they have one."""
    return [checkpoints.line(*key, offsets[which]) for key, offsets in others.items() if offsets[which] or not which]


def point_line(log: Log) -> str:
    """A log's entry in the checkpoint of recovery points."""
    return checkpoints.line(log.topic, log.partition, log.synced)


def start_lines(log: Log) -> list[str]:
    """A log's entry in the checkpoint of log starts; none where it begins with its first segment."""
    start = min(log.log_start_offset, log.synced)
    if start <= log.segments[0].base_offset:
        return []
    return [checkpoints.line(log.topic, log.partition, start)]
