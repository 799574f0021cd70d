"""Writes the checkpoints of recovery points, log start offsets and high watermarks of all logs.

1. One job at a time writes a checkpoint, because two would rename each other's file. Of the changes meanwhile, only the
   newest content is written after it. After `close`, the last write of all checkpoints includes them, and no callback
   is called: what it would begin has no executor any more.
2. Partitions that are not served keep their entries.
3. The line of each log is kept and replaced separately: a change of one log needs no work for the others. A kept line
   may be below the flushed offset, but never above it: every decrease of a recovery point calls `note`.
4. A deleted partition is remembered until both checkpoints of its log directory were written without it.
5. High watermarks are those that the roles of partitions assign to their logs (`Log.high_watermark`). Partitions with
   one replica have none: then their checkpoint is not written. It is due every 5 s, and only changes are written.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Offload, Outcome, Then
from kafkalite.model import TopicPartition
from kafkalite.storage import checkpoints
from kafkalite.storage.log.log import Log

RECOVERY, START = 0, 1
WHICH = {checkpoints.RECOVERY_POINTS: RECOVERY, checkpoints.LOG_STARTS: START}
NAMES = (*WHICH, checkpoints.HIGH_WATERMARKS)
Make = Callable[[], list[str]]
NO_WATERMARK = -1
UNKNOWN = [""]  # no lines of a checkpoint are these


class CheckpointWriter:
    """Writes the checkpoints as jobs.

    Arguments:
        disk, offload: the disk, and the executor of the jobs.
        job_ended: called with the log directory and the outcome of a job.

    `note` keeps the lines of a log that is served, `drop` removes them.
    `others`, `other_high_watermarks`: by log directory, the entries of partitions that are not served.
    `deleted`: by log directory, the deleted partitions, each with the checkpoints that may still name it.
    """

    def __init__(self, disk: Disk, offload: Offload, job_ended: Callable[[str, Outcome], object]) -> None:
        self.others: dict[str, checkpoints.OffsetsByPartition] = defaultdict(dict)
        self.other_high_watermarks: dict[str, checkpoints.Offsets] = defaultdict(dict)
        self.deleted: dict[str, dict[TopicPartition, frozenset[str]]] = defaultdict(dict)
        self._served: dict[str, dict[str, dict[Log, str]]] = {name: defaultdict(dict) for name in NAMES}
        self._disk = disk
        self._offload = offload
        self._job_ended = job_ended
        self._writing: set[str] = set()
        self._next: dict[str, tuple[str, str, Make, list[Then]]] = {}
        self._closed = False
        self._noted_watermarks: dict[Log, int] = {}
        self._written_watermarks: dict[str, list[str]] = {}  # by log directory that has, or had, high watermarks

    def close(self) -> None:
        """Drop all pending writes; neither their callbacks nor those of the running jobs are called."""
        self._closed = True
        self._next.clear()

    def note(self, log: Log, *names: str) -> None:
        """Update the lines of a log in the checkpoints `names`, by default in all."""
        for name in names or NAMES:
            line = LINES[name](log)
            if line is None:
                self._remove(log, name)
            else:
                self._served[name][log.root][log] = line
                if name == checkpoints.HIGH_WATERMARKS:
                    self._written_watermarks.setdefault(log.root, UNKNOWN)
                    self._noted_watermarks[log] = written_watermark(log)

    def _remove(self, log: Log, name: str) -> None:
        self._served[name][log.root].pop(log, None)
        if name == checkpoints.HIGH_WATERMARKS:
            self._noted_watermarks.pop(log, None)

    def has_other_watermark(self, log: Log) -> bool:
        """Whether the high watermark of a log differs from the one in its line."""
        return self._noted_watermarks.get(log, NO_WATERMARK) != written_watermark(log)

    def drop(self, log: Log) -> None:
        """Remove the lines of a log that is not served any more."""
        for name in NAMES:
            self._remove(log, name)

    def note_deleted(self, path: str, key: TopicPartition) -> None:
        """A partition of the log directory `path` was deleted; its checkpoints may name it."""
        self.deleted[path][key] = frozenset(WHICH)

    def write(self, path: str, name: str, make: Make | None = None, then: Then | None = None) -> None:
        """Replace the checkpoint `name` of the log directory `path` by the lines that are current when the job starts.

        `make`: returns other lines. `then`: called with the outcome once these lines, or newer ones, are on the disk.
        """
        target = os.path.join(path, name)
        make = make or partial(self.lines, path, name)
        then_all = [] if then is None else [then]
        if target not in self._writing:
            self._run(path, name, make, then_all)
        elif not self._closed:
            waiting = self._next[target][3] if target in self._next else []
            self._next[target] = path, name, make, [*waiting, *then_all]

    def write_high_watermarks(self, path: str) -> None:
        """Replace the checkpoint of high watermarks of a log directory, unless it has the present lines already."""
        name = checkpoints.HIGH_WATERMARKS
        is_written = self._written_watermarks.get(path) == self.lines(path, name)
        if not is_written or os.path.join(path, name) in self._writing:
            self.write(path, name)

    def write_both(self, path: str, then: Then) -> None:
        """Both checkpoints of a log directory; `then` gets the first error, once both were tried."""
        outcomes: list[Outcome] = []

        def one_more(outcome: Outcome) -> None:
            outcomes.append(outcome)
            if len(outcomes) == len(WHICH):
                then(next((each for each in outcomes if each.error is not None), outcome))

        for name in WHICH:
            self.write(path, name, None, one_more)

    def lines(self, path: str, name: str) -> list[str]:
        """All lines of a checkpoint of a log directory."""
        return [*self.others_lines(path, name), *self._served[name][path].values()]

    def others_lines(self, path: str, name: str) -> list[str]:
        """The lines of the partitions that are not served: a recovery point each, the others where they have one."""
        if name == checkpoints.HIGH_WATERMARKS:
            return [checkpoints.line(*key, offset) for key, offset in self.other_high_watermarks[path].items()]
        which = WHICH[name]
        others = self.others[path].items()
        return [
            checkpoints.line(*key, offsets[which]) for key, offsets in others if offsets[which] or which == RECOVERY
        ]

    def write_now(self, path: str, logs: Iterable[Log]) -> None:
        """All checkpoints of a log directory, with these logs as they are now; blocks. Raises OSError."""
        for log in logs:
            self.note(log)
        for name in NAMES if self.has_high_watermarks(path) else WHICH:
            checkpoints.write_lines(self._disk, os.path.join(path, name), self.lines(path, name))

    def has_high_watermarks(self, path: str) -> bool:
        """Whether a partition of a log directory has, or had, a high watermark in the checkpoint."""
        return path in self._written_watermarks or bool(self.other_high_watermarks[path])

    def _run(self, path: str, name: str, make: Make, then: list[Then]) -> None:
        target = os.path.join(path, name)
        lines = make()
        self._writing.add(target)
        unnamed = [key for key, names in self.deleted[path].items() if name in names]
        done = partial(self._written, path, name, lines, unnamed, then)
        self._offload.run(checkpoints.write_lines, self._disk, target, lines, done=done)

    def _written(
        self,
        path: str,
        name: str,
        lines: list[str],
        unnamed: list[TopicPartition],
        then: list[Then],
        outcome: Outcome,
    ) -> None:
        target = os.path.join(path, name)
        self._writing.discard(target)
        waiting = self._next.pop(target, None)
        if name == checkpoints.HIGH_WATERMARKS:
            self._written_watermarks[path] = lines if outcome.error is None else UNKNOWN
        try:
            if outcome.error is None:
                self._forget_deleted(path, name, unnamed)
            self._job_ended(path, outcome)
        finally:
            if waiting is not None:
                self._after_another(*waiting, outcome)
            if not self._closed:
                for each in then:
                    each(outcome)

    def _forget_deleted(self, path: str, name: str, unnamed: list[TopicPartition]) -> None:
        """A checkpoint was written without these deleted partitions."""
        deleted = self.deleted[path]
        for key in unnamed:
            if names := deleted.pop(key, frozenset()) - {name}:
                deleted[key] = names

    def _after_another(self, path: str, name: str, make: Make, then: list[Then], before: Outcome) -> None:
        """Write the pending content; after a failure only if a callback waits for it."""
        if before.error is None or then:
            self._run(path, name, make, then)


def recovery_line(log: Log) -> str:
    """A log's entry in the checkpoint of recovery points."""
    return checkpoints.line(log.topic, log.partition, log.synced)


def start_line(log: Log) -> str | None:
    """A log's entry in the checkpoint of log starts; none where it begins with its first segment."""
    start = min(log.log_start_offset, log.synced)
    if start <= log.segments[0].base_offset:
        return None
    return checkpoints.line(log.topic, log.partition, start)


def high_watermark_line(log: Log) -> str | None:
    """A log's entry in the checkpoint of high watermarks; none for a partition with one replica."""
    offset = written_watermark(log)
    return None if offset < 0 else checkpoints.line(log.topic, log.partition, offset)


def written_watermark(log: Log) -> int:
    """The high watermark that the checkpoint has for a log; negative = none."""
    return min(log.high_watermark, log.log_end_offset)


LINES: dict[str, Callable[[Log], str | None]] = {
    checkpoints.RECOVERY_POINTS: recovery_line,
    checkpoints.LOG_STARTS: start_line,
    checkpoints.HIGH_WATERMARKS: high_watermark_line,
}
