"""The mark of a complete copy: the file `MARK` in the future directory of a partition.

While it exists, the copy has every record of the current log: the mark is created while appends wait, and removed
before an append goes to the current log again. So a start may use the copy if the current log has no directory any
more: the swap was interrupted between its two renames.
"""

import os

from kafkalite._speedups.storage.file import Disk, File

MARK = "kafkalite.complete"
TEXT = b"This copy of the partition is complete: it replaces the directory that is being renamed to -delete.\n"


def is_marked(disk: Disk, directory: str) -> bool:
    """Whether a future directory has the mark."""
    return disk.exists(os.path.join(directory, MARK))


def mark(disk: Disk, directory: str, active: str) -> File:
    """Job: create the mark, on the disk when this returns. Returns the file `active`, opened. Raises OSError."""
    opened = disk.open(active)
    disk.write_atomic(os.path.join(directory, MARK), TEXT, sync=True)
    return opened


def unmark(disk: Disk, directory: str) -> None:
    """Job: remove the mark, if there is one; on the disk when this returns. Raises OSError.

    A directory that is missing was renamed: then its new name is synced.
    """
    path = os.path.join(directory, MARK)
    try:
        if disk.exists(path):
            disk.remove(path)
        disk.sync_dir(directory)
    except FileNotFoundError:
        disk.sync_dir(os.path.dirname(directory))


def sync_and_unmark(disk: Disk, directory: str) -> None:
    """Job: sync the final name of a copy, then remove its mark. Raises OSError."""
    disk.sync_dir(os.path.dirname(directory))
    unmark(disk, directory)
