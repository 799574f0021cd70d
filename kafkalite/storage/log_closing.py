"""Closes the logs of a log directory: writes all files, then syncs them together.

1. Logs without a change since a clean start, or since they were closed, are skipped.
2. If many files are due, one call (`File.sync_all`) syncs the whole file system: 5,000 partitions have 25,000 files. An
   error counts for this log directory, because the call does not report whose write failed.
3. Producer snapshots are written when everything else is on the disk: for recovery a snapshot means that the indexes up
   to its offset are on the disk. Short logs without producers have none, and need no second sync.
"""

from collections.abc import Sequence

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.storage import file_operations
from kafkalite.storage.log.flush_job import FlushPlan, sync, write_snapshots
from kafkalite.storage.log.log import Log
from kafkalite.storage.transient_errors import lacks_descriptors

LOGS_TOGETHER = 256  # bounds the memory for their files
MANY_FILES = 200  # from about here on one call is quicker, whatever else waits for the disk


class FailedSyncError(OSError):
    """A sync has failed: records may be lost that were written before it."""


def close_logs(disk: Disk, logs: Sequence[Log], opened: File, many_files: int = MANY_FILES) -> None:
    """Write and sync all files of these logs of one log directory; blocks.

    Arguments:
        disk: the disk of the logs.
        logs: of one log directory.
        opened: a file of the same file system that was opened before the first write, for the errors of `sync_all`.
        many_files: from this number of files on, one call syncs the whole file system.

    Raises: FailedSyncError; OSError for a write or a file that cannot be opened without a free descriptor, after which
    the page cache still has all records.
    """
    changed = [log for log in logs if not log.complete]
    plans = _finish(disk, changed)
    try:
        if sum(len(plan.files) + len(plan.paths) for plan in plans) < many_files or not _sync_all(disk, plans, opened):
            sync(disk, plans)
    except OSError as error:
        if lacks_descriptors(error):  # of an open: no sync has failed
            raise
        raise FailedSyncError(error.errno, error.strerror, error.filename) from error
    for log, plan in zip(changed, plans, strict=True):
        log.apply_flush(plan)
        log.note_complete()


def _finish(disk: Disk, logs: Sequence[Log]) -> list[FlushPlan]:
    """Write the files of all logs, those of many logs in one call. Raises OSError."""
    plans = []
    for at in range(0, len(logs), LOGS_TOGETHER):
        finished = [log.finish() for log in logs[at : at + LOGS_TOGETHER]]
        file_operations.apply_all(disk, [each for _, writes in finished for each in writes])
        plans += [plan for plan, _ in finished]
    return plans


def _sync_all(disk: Disk, plans: Sequence[FlushPlan], opened: File) -> bool:
    """Sync the file system; False, with nothing done, where that does not report errors. Raises OSError."""
    if not opened.sync_all():
        return False
    due = [plan for plan in plans if plan.snapshots]
    for plan in due:
        write_snapshots(disk, plan, sync=False)
    return not due or opened.sync_all()
