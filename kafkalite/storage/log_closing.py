"""How the logs of a log directory are closed: all files are written, then synced together.

Invariants:
1. Logs that did not change since they were loaded after a clean end, or closed, are left as they are.
2. Where many files are due, the whole file system is synced by one call (`File.sync_all`) instead of file after file:
   5,000 partitions have 25,000 files. An error counts as one of this log directory: the call does not say whose it was.
3. Producer snapshots are written when everything else is on the disk: recovery takes a snapshot as a sign that the
   indexes up to its offset are there.
"""

from collections.abc import Sequence

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.storage.log.flush_job import FlushPlan, sync, write_snapshots
from kafkalite.storage.log.log import Log

MANY_FILES = 200  # from about here on one call is quicker, whatever else waits for the disk


def close_logs(disk: Disk, logs: Sequence[Log], opened: File, many_files: int = MANY_FILES) -> None:
    """Write and sync everything of these logs of one log directory; blocks.

    Arguments:
        disk: what the logs are on.
        logs: of one log directory.
        opened: a file of the same file system that was opened before the first write, for the errors of `sync_all`.
        many_files: from this number on all is synced together.

    Raises OSError, which is final.
    """
    changed = [log for log in logs if not log.complete]
    plans = [log.finish() for log in changed]
    if sum(len(plan.files) + len(plan.paths) for plan in plans) < many_files or not _sync_all(disk, plans, opened):
        sync(disk, plans)
    for log, plan in zip(changed, plans, strict=True):
        log.flushed(plan)
        log.note_complete()


def _sync_all(disk: Disk, plans: Sequence[FlushPlan], opened: File) -> bool:
    """Sync the file system; False, with nothing done, where that does not report errors. Raises OSError."""
    if not opened.sync_all():
        return False
    for plan in plans:
        write_snapshots(disk, plan, sync=False)
    return opened.sync_all()
