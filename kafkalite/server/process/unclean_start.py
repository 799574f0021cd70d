"""Finds whether the logs of a broker may lack records that were written before its start, but not flushed.

1. After a clean stop they have all: each log directory has the mark of the clean shutdown. A directory that is new, or
   whose partitions the controller has not named yet, and that has none, needs no mark. Any other one without partitions
   does: a power failure may have removed directories that were not flushed.
2. After a kill, or a stop that could not close the logs on a full disk, they have all, too: the page cache is that of
   the same boot of the machine.
3. After a failed fsync, the page cache may lack what was not flushed (`storage.dirs.failed_fsync`).
4. Otherwise the start is unclean: the power failed, or the machine was booted before the broker could stop.

The boot id of the earlier process is in `saved_session`. The controller may not notice an unclean start before the
broker stops or is killed. So later registrations name the first one since the last unclean start: the states of the
controller say whether a replica was complete since then. A kill leaves that epoch in `saved_session`, a stop in the
mark.

Not detected: a log directory that was replaced by an older copy of itself, with its mark.
"""

import os
from collections.abc import Iterable, Sequence

from kafkalite._speedups.storage.file import Disk
from kafkalite.server.process.saved_session import EarlierProcess
from kafkalite.storage import checkpoints, names
from kafkalite.storage.dirs import failed_fsync


def find_unclean_since(disk: Disk, directories: Sequence[str], earlier: EarlierProcess) -> int:
    """The broker epoch of the first registration since the last unclean start; read before the logs are loaded.

    Arguments:
        disk: has the log directories.
        directories: that are online.
        earlier: the process that had them last.

    Returns 0: there was none since, for example because this start is unclean. -1: there was no unclean start.
    """
    if any(failed_fsync.is_marked(disk, path) for path in directories):
        return 0
    if not was_stopped(disk, directories):
        return earlier.unclean_since if earlier.has_page_cache else 0
    marks = [since for each in directories if (since := checkpoints.read_unclean_since(disk, each)) >= 0]
    return 0 if 0 in marks else max(marks, default=-1)


def was_stopped(disk: Disk, directories: Iterable[str]) -> bool:
    """Whether every log directory has the mark of a clean shutdown, or is new; read before the logs are loaded."""
    return all(_was_stopped(disk, path) for path in directories)


def _was_stopped(disk: Disk, path: str) -> bool:
    try:
        if checkpoints.read_clean_shutdown(disk, path) is not None:
            return True
        return _is_new(disk, path) and not any(_is_partition(disk, path, name) for name in disk.list(path))
    except OSError:  # reported by the load
        return False


def _is_new(disk: Disk, path: str) -> bool:
    claimed = disk.exists(os.path.join(path, checkpoints.META_PROPERTIES))
    return not claimed or disk.exists(os.path.join(path, names.UNCONFIRMED))


def _is_partition(disk: Disk, path: str, name: str) -> bool:
    return names.parse_directory_name(name) is not None and disk.is_dir(os.path.join(path, name))
