"""Truncates logs, as a follower does after a divergence, or restarts them empty: the checkpoints are lowered first.

With a recovery point above the flushed offset, a start after a crash would not check the batches that were appended
after the truncation, or would reject them as damaged. So the steps are:
1. The recovery points are lowered in memory, and no flush raises them again (`Log.begin_truncation`, `begin_restart`).
2. The checkpoints are written and synced. If there is no space for them, nothing is truncated.
3. Once no flush of the log runs, and no copy replaces it, its files are truncated, or its segments are replaced in
   memory by an empty one. The caller has no append in progress, and begins none before `done`.
4. A job syncs the files and reads the producers, or replaces the files. Until its end the log counts as being flushed.

Sources: LogManager.truncateTo, which writes the checkpoints after the truncation; truncateFullyAndStartAt.
"""

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from kafkalite._speedups.storage.file import Disk
from kafkalite.callbacks import call_all, call_each
from kafkalite.clock import Offload, Outcome, Then
from kafkalite.storage.checkpoint_writer import CheckpointWriter
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.flush.flushes_in_progress import FlushesInProgress
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.truncation_jobs import finish_truncation, restart

Job = Callable[[], Any]


class TruncatedLogs(Protocol):
    """The part of the log manager that truncation uses."""

    disk: Disk
    holds: DirectoriesInUse

    def find(self, topic: str, partition: int) -> Log | None: ...


class TruncationsInProgress:
    """The logs that are being truncated or restarted: from the request on, also before anything has changed."""

    def __init__(self) -> None:
        self._waiting: dict[Log, list[Callable[[], object]]] = {}
        self._number: Counter[Log] = Counter()

    def begin(self, log: Log) -> None:
        """A change of a log was requested."""
        self._number[log] += 1

    def end(self, log: Log) -> None:
        """A change of a log has ended; after the last one, those that wait for it continue."""
        self._number[log] -= 1
        if not self._number[log]:
            del self._number[log]
            call_each(lambda then: then(), self._waiting.pop(log, ()))

    def when_ended(self, log: Log, then: Callable[[], object]) -> None:
        """Call `then` when the log is not being changed, perhaps at once."""
        if log in self._number:
            self._waiting.setdefault(log, []).append(then)
        else:
            then()


class TruncationPorts(NamedTuple):
    """What truncations use.

    Attributes:
        logs: the log manager.
        files: writes the checkpoints.
        offload: runs the jobs.
        exclusion: the logs that are being flushed.
        in_progress: the logs that are being truncated or restarted.
    """

    logs: TruncatedLogs
    files: CheckpointWriter
    offload: Offload
    exclusion: FlushesInProgress
    in_progress: TruncationsInProgress


class Change(Protocol):
    """What happens to one log."""

    log: Log

    def lower(self) -> bool:
        """Lower the recovery point in memory; False where no checkpoint has to be written. Raises OSError."""

    def change(self) -> Job | None:
        """Change the log; the result is executed as a job, None where nothing is left to do. Raises OSError."""

    def finish(self, result: Any) -> None:
        """Apply the result of the job."""


class TruncatedLog:
    """The truncation of a log to a new end offset."""

    def __init__(self, log: Log, offset: int) -> None:
        self.log = log
        self._offset = offset

    def lower(self) -> bool:
        if self._offset >= self.log.log_end_offset:
            return False
        self._offset = self.log.begin_truncation(self._offset)
        return True

    def change(self) -> Job | None:
        plan = self.log.truncate_files(self._offset)
        return None if plan is None else partial(finish_truncation, self.log.disk, plan)

    def finish(self, result: Any) -> None:
        self.log.end_truncation_with(result)


class RestartedLog:
    """The restart of a log at an offset, with the log start of the leader."""

    def __init__(self, log: Log, offset: int, log_start_offset: int | None) -> None:
        self.log = log
        self._offset = offset
        self._log_start_offset = log_start_offset

    def lower(self) -> bool:
        self.log.begin_restart(self._offset)
        return True

    def change(self) -> Job | None:
        plan = self.log.restart_files(self._offset, self._log_start_offset)
        return partial(restart, self.log.disk, plan)

    def finish(self, _result: Any) -> None:
        self.log.end_restart(self._offset)


def truncation_to(log: Log, offset: int) -> Change:
    """The truncation of a log to an end offset.

    Below its first segment there is nothing to keep, and a segment has no offsets below its own: the log restarts empty
    at the offset (UnifiedLog.truncateTo). So it is behind a leader that was elected uncleanly and is shorter than the
    records that retention has left here.
    """
    return RestartedLog(log, offset, None) if offset < log.segments[0].base_offset else TruncatedLog(log, offset)


class Truncation:
    """Truncates or restarts some logs together.

    Arguments:
        changes: one for each log.
        ports: what it uses.
        done: called with the first error after all have ended.
    """

    def __init__(self, changes: Sequence[Change], ports: TruncationPorts, done: Then) -> None:
        self._changes = changes
        self._ports = ports
        self._done = done
        self._unfinished = len(changes)
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin; `done` may be called before this returns."""
        if not self._changes:
            self._done(Outcome())
        for change in self._changes:
            self._ports.in_progress.begin(change.log)
        by_root: dict[str, list[Change]] = {}
        for change in self._changes:
            try:
                lowered = change.lower()
            except OSError as error:
                self._ended(change, error)
                continue
            if lowered:
                self._ports.files.note(change.log)
                by_root.setdefault(change.log.root, []).append(change)
            else:
                self._change(change)
        for root, changes in by_root.items():
            self._ports.files.write_both(root, partial(self._lowered, changes))

    def _lowered(self, changes: list[Change], outcome: Outcome) -> None:
        """The checkpoints of a log directory are on the disk, or there was no space for them."""
        if outcome.error is not None:
            self._error = self._error or outcome.error
            call_each(self._leave, changes)
        else:
            call_each(self._change, changes)

    def _is_here(self, log: Log) -> bool:
        return not log.failed and self._ports.logs.find(log.topic, log.partition) is log

    def _change(self, change: Change) -> None:
        log = change.log
        if not self._is_here(log):  # deleted, or offline
            self._leave(change)
        elif self._ports.exclusion.is_busy(log):
            self._ports.exclusion.when_idle(log, partial(self._change, change))
        else:
            try:
                job = change.change()
            except OSError as error:
                self._ended(change, error)
                return
            if job is None:
                self._leave(change)
            else:
                self._run(change, job)

    def _run(self, change: Change, job: Job) -> None:
        self._ports.exclusion.begin([change.log])
        release = self._ports.logs.holds.enter(change.log.directory)
        self._ports.offload.run(job, done=partial(self._changed, change, release))

    def _changed(self, change: Change, release: Callable[[], None], outcome: Outcome) -> None:
        log = change.log
        self._ports.exclusion.end([log])
        try:
            if outcome.error is None:
                change.finish(outcome.value)
                self._leave(change)
            elif self._is_here(log):
                self._failed(change, outcome.error)
            else:  # the directory of a deleted log has another name
                self._leave(change)
        finally:
            call_all(release, partial(self._ports.exclusion.start_waiting, log.root))

    def _failed(self, change: Change, error: BaseException) -> None:
        """The job has failed: what is on the disk is unknown, so the log fails, also after an unexpected exception."""
        change.log.fail()
        if isinstance(error, OSError):
            self._ended(change, error)
            return
        self._ended(change, OSError(errno.EIO, f"a truncation ended with {error!r}"))
        raise error

    def _ended(self, change: Change, error: OSError) -> None:
        self._error = self._error or error
        try:
            change.log.on_error(change.log, error)
        finally:
            self._leave(change)

    def _leave(self, change: Change) -> None:
        """One log less is waited for."""
        change.log.end_truncation()
        self._unfinished -= 1
        # The caller first: those that wait, as for a leadership, find what it derives from the new offsets.
        done = [] if self._unfinished else [partial(self._done, Outcome(error=self._error))]
        call_all(*done, partial(self._ports.in_progress.end, change.log))
