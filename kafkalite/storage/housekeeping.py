"""Runs the periodic work for all logs: checkpoints, retention, `flush.ms`, producer expiration, free space.

1. Each task visits the logs in slices (`visit_in_slices`), and skips those that were deleted meanwhile.
2. A checkpoint contains the logs that exist when it is written.
3. An exception of one visit ends neither the task nor its next run.

Sources: LogManager.scala (startup, cleanupLogs, flushDirtyLogs, checkpointLogRecoveryOffsets).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.clock import PAUSE_MS, Clock, ClockWatch, Offload, Outcome, Timer
from kafkalite.slicing import visit_in_slices
from kafkalite.storage import checkpoints, retention
from kafkalite.storage.checkpoint_writer import CheckpointWriter
from kafkalite.storage.compaction.cleaner import CleanerLogs
from kafkalite.storage.dirs.free_space import SpaceWatch
from kafkalite.storage.dirs.log_directory import is_linked
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.log import Log

HighWatermark = Callable[[Log], int]
CountExpired = Callable[[Log, int | None, int], int]
NEVER_MS = 2**63 - 1
SPACE_CHECK_MS = 10_000
LOGGER = logging.getLogger("kafkalite.storage.housekeeping")


class HousekeptLogs(CleanerLogs, Protocol):
    """The part of the log manager that housekeeping uses, in addition to that of the cleaner."""

    def find(self, topic: str, partition: int) -> Log | None: ...
    def is_cleaned_now(self, log: Log) -> bool: ...
    def named_lock(self, path: str) -> File: ...
    def lock_checked(self, path: str, lock: File, outcome: Outcome) -> None: ...


def ignore(log: Log) -> None:
    """Do nothing."""


class Housekeeping:
    """The periodic work of a broker's logs.

    Arguments:
        logs: the log manager.
        disk, clock, offload: its.
        removals: runs the jobs that rename deleted segments.
        unhurried: flushes logs that no request waits for; closed: flushes their closed segments only.
        files: writes the checkpoints.
    """

    def __init__(
        self,
        logs: HousekeptLogs,
        disk: Disk,
        clock: Clock,
        offload: Offload,
        removals: Offload,
        *,
        unhurried: Flusher,
        closed: Flusher,
        files: CheckpointWriter,
    ) -> None:
        self.on_log_start: Callable[[Log], object] = ignore
        self.producer_silent_ms = 0  # given by `start`; may be assigned
        self._logs = logs
        self._clock = clock
        self._offload = offload
        self._removals = removals
        self._unhurried = unhurried
        self._closed = closed
        self._files = files
        self._timers: list[Timer] = []
        self._clock_watch = ClockWatch(clock)
        self._space_watch = SpaceWatch(disk, offload, logs.report_disk_error)

    def start(
        self,
        high_watermark_of: HighWatermark,
        *,
        checkpoint_ms: int = 60_000,
        starts_ms: int = 60_000,
        retention_ms: int = 300_000,
        flush_check_ms: int = NEVER_MS,
        initial_ms: int = 30_000,
        high_watermarks_ms: int = NEVER_MS,
        jump_pause_ms: int = PAUSE_MS,
        producer_check_ms: int = 600_000,
        producer_silent_ms: int = 86_400_000,
        on_log_start: Callable[[Log], object] = ignore,
        count_expired: CountExpired = retention.count_expired,
    ) -> None:
        """Start all timers.

        Arguments:
            high_watermark_of: returns the high watermark of a partition.
            checkpoint_ms: interval of the checkpoints of recovery points, in ms.
            starts_ms: interval of those of log starts, in ms.
            retention_ms: interval of the checks of retention, in ms.
            flush_check_ms: interval of the checks for due flushes, in ms; NEVER_MS = none.
            high_watermarks_ms: interval of the checkpoints of high watermarks, in ms; NEVER_MS = none.
            initial_ms: delay before the first run, in ms.
            jump_pause_ms: pause of retention after a jump of the clock, in ms.
            producer_check_ms: interval of the checks for silent producers, in ms.
            producer_silent_ms: a producer without appends is forgotten after this time, in ms.
            on_log_start: called with a log whose start retention has moved.
            count_expired: decides how many segments of a log retention deletes, as `retention.count_expired`.
        """
        self.on_log_start = on_log_start
        self._clock_watch = ClockWatch(self._clock, jump_pause_ms, logs_steps=True)
        self._repeat(0, SPACE_CHECK_MS, self.check_space)
        self._repeat(SPACE_CHECK_MS, SPACE_CHECK_MS, self.check_locks)
        self._repeat(initial_ms, checkpoint_ms, self.checkpoint)
        self._repeat(initial_ms, starts_ms, self.checkpoint_starts)
        if high_watermarks_ms < NEVER_MS:
            self._repeat(initial_ms, high_watermarks_ms, self.checkpoint_high_watermarks)
        if flush_check_ms < NEVER_MS:
            self._repeat(initial_ms, flush_check_ms, self.flush_due)
        self._repeat(initial_ms, retention_ms, lambda: self.check_retention(high_watermark_of, count_expired))
        self.producer_silent_ms = producer_silent_ms
        self._repeat(producer_check_ms, producer_check_ms, lambda: self.check_producers(self.producer_silent_ms))

    def close(self) -> None:
        """Stop all timers."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _repeat(self, first_ms: int, every_ms: int, work: Callable[[], None]) -> None:
        slot = len(self._timers)

        def run() -> None:
            self._timers[slot] = self._clock.call_at(self._clock.monotonic() + max(every_ms, 1) / 1000, run)
            work()

        self._timers.append(self._clock.call_at(self._clock.monotonic() + first_ms / 1000, run))

    def _is_here(self, log: Log) -> bool:
        return self._logs.find(log.topic, log.partition) is log

    def _walk(self, visit: Callable[[Log], object], then: Callable[[], object] | None = None) -> None:
        """Visit every log that is still here when its turn comes."""

        def guarded(log: Log) -> None:
            if self._is_here(log):
                visit(log)

        visit_in_slices(self._clock, self._logs.all(), guarded, then)

    # Retention.

    def check_retention(
        self, high_watermark_of: HighWatermark, count_expired: CountExpired = retention.count_expired
    ) -> None:
        """Remove expired segments from every log and delete their files in the background."""
        now_ms = self._clock_watch.look()
        self._walk(lambda log: self._retain(log, lambda: count_expired(log, now_ms, high_watermark_of(log))))

    def _retain(self, log: Log, count: Callable[[], int]) -> None:
        if log.failed or log.pending_bytes or log.moving or log.holds_appends or self._logs.is_cleaned_now(log):
            return
        try:
            segments = retention.take_first(log, count())
        except OSError as error:
            self._logs.report_disk_error(log.root, error)
            return
        if segments:
            self.on_log_start(log)
            release = self._logs.holds.enter(log.directory)
            self._removals.run(retention.mark_deleted, segments, done=partial(self._marked, log, release))

    def _marked(self, log: Log, release: Callable[[], None], outcome: Outcome) -> None:
        release()
        if isinstance(outcome.error, FileNotFoundError) and not self._is_here(log):
            return  # the whole directory was renamed meanwhile
        if isinstance(outcome.error, OSError):
            self._logs.report_disk_error(log.root, outcome.error)
            return
        paths = outcome.result()
        LOGGER.info("%s: deleting %d files, log start offset %d", log.directory, len(paths), log.log_start_offset)
        self._logs.remove_later(log, paths)

    # Checkpoints.

    def checkpoint(self) -> None:
        """Flush closed segments, and write the recovery points, all as jobs."""

        def visit(log: Log) -> None:
            self._files.note(log, checkpoints.RECOVERY_POINTS)
            if log.rolled:
                self._closed.request_flush(log)

        def then() -> None:
            self._closed.begin()
            self._write(checkpoints.RECOVERY_POINTS)

        self._walk(visit, then)

    def checkpoint_starts(self) -> None:
        """Write the log start offsets that are above the base of the first segment, as jobs."""

        def visit(log: Log) -> None:
            self._files.note(log, checkpoints.LOG_STARTS)
            if log.log_start_offset > log.synced:  # it is written the next time, once the records up to it are synced
                self._unhurried.request_flush(log)
                self._unhurried.begin()

        self._walk(visit, partial(self._write, checkpoints.LOG_STARTS))

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of the logs that have one, as jobs (ReplicaManager.checkpointHighWatermarks)."""

        def then() -> None:
            for path in filter(self._logs.is_online, self._logs.directories()):
                if self._files.has_high_watermarks(path):
                    self._files.write_high_watermarks(path)

        def visit(log: Log) -> None:
            if self._files.has_other_watermark(log) and self._is_here(log):
                self._files.note(log, checkpoints.HIGH_WATERMARKS)

        visit_in_slices(self._clock, self._logs.all(), visit, then)

    def _write(self, name: str) -> None:
        for path in filter(self._logs.is_online, self._logs.directories()):
            self._files.write(path, name)

    # Flushes, producers and free space.

    def flush_due(self) -> None:
        """Flush the logs that have had unflushed records for longer than their flush.ms."""
        now = self._clock.monotonic()

        def visit(log: Log) -> None:
            if log.log_end_offset > log.synced and (now - log.last_flush) * 1000 >= log.config.flush_ms:
                self._unhurried.request_flush(log)

        self._walk(visit, self._unhurried.begin)

    def check_producers(self, silent_ms: int) -> None:
        """Remove the idempotent producers that appended nothing for `silent_ms` from every log."""
        now_ms = int(self._clock.monotonic() * 1000)
        self._walk(lambda log: log.expire_producers(now_ms, silent_ms))

    def check_locks(self) -> None:
        """Lock the log directories again whose lock files were removed; one that another broker uses goes offline."""
        for path in filter(self._logs.is_online, self._logs.directories()):
            lock = self._logs.named_lock(path)
            self._offload.run(is_linked, lock, done=partial(self._logs.lock_checked, path, lock))

    def check_space(self) -> None:
        """Log a warning when a log directory is nearly full."""
        for path in filter(self._logs.is_online, self._logs.directories()):
            self._space_watch.look(path)
