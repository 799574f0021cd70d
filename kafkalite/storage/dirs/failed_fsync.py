"""Marks a log directory whose disk has failed, so that the next start does not trust the page cache.

1. After a failed writeback Linux takes the pages for clean: they are read until their memory is needed, and a later
   fsync returns 0 without writing them (fsync(2), errseq_t). A restarted broker would flush such records, acknowledge
   others behind them, and lose both with the power.
2. A start that finds the mark writes all bytes again that were not flushed before, flushes them, and removes the mark.
   Then it recovers the logs as after a kill: the records that could still be read are on the disk.
3. Records that could not be read any more are lost as in a power failure, so the start counts as an unclean one
   (`server.process.unclean_start`).
4. The mark itself needs no fsync: without power there is no page cache either.
"""

import logging
import os

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import names

WRITTEN_AT_ONCE = 1024 * 1024  # bytes
LOGGER = logging.getLogger("kafkalite.storage.dirs.failed_fsync")


def mark(disk: Disk, directory: str) -> None:
    """Mark a log directory. A failure is logged: the file system accepts no new file, and mostly no start either."""
    try:
        disk.open(os.path.join(directory, names.FAILED_FSYNC), create=True).close()
    except OSError as error:
        LOGGER.error("%s: cannot be marked as failed: %s; copy its files before the next start", directory, error)


def is_marked(disk: Disk, directory: str) -> bool:
    """Whether the disk of a log directory failed while the last broker used it."""
    return bool(disk.exists(os.path.join(directory, names.FAILED_FSYNC)))


def unmark(disk: Disk, directory: str) -> None:
    """Remove the mark. Raises OSError."""
    disk.remove(os.path.join(directory, names.FAILED_FSYNC))


def write_again(disk: Disk, path: str) -> int:
    """Write the bytes of a file again, and flush them. Returns their number. Raises OSError."""
    file = disk.open(path)
    try:
        size = file.size()
        for offset in range(0, size, WRITTEN_AT_ONCE):
            file.pwrite(file.pread_outside(min(WRITTEN_AT_ONCE, size - offset), offset), offset)
        file.sync()
    finally:
        file.close()
    return size
