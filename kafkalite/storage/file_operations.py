"""Runs many changes of names and small files in order; on the plain disk without the GIL (`_speedups`).

Any other disk receives each change separately.
"""

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.file_operations import CREATE_EMPTY, MAKE_DIRECTORY, RENAME, WRITE_FILE, apply_changes

__all__ = ["CREATE_EMPTY", "MAKE_DIRECTORY", "RENAME", "WRITE_FILE", "FileOperation", "apply", "apply_all"]


class FileOperation(NamedTuple):
    """One change.

    MAKE_DIRECTORY, CREATE_EMPTY: a directory or file that does not exist. WRITE_FILE: a file with `data`, new or
    replaced in place, and removed where it cannot be written whole. RENAME: `path` gets the name `new`.
    """

    kind: int
    path: str
    data: bytes = b""
    new: str = ""


def apply(disk: Disk, changes: Sequence[FileOperation], *, sync_soon: bool = False) -> dict[int, OSError]:
    """Job: apply all changes; a failed change does not stop the later ones.

    Arguments:
        sync_soon: start the writeback at once, because the caller syncs the files one by one afterwards.

    Returns the errors of the failed changes, by their index in `changes`.
    """
    if type(disk) is Disk:
        encoded = [
            (kind, os.fsencode(path), os.fsencode(new) if kind == RENAME else data) for kind, path, data, new in changes
        ]
        return apply_changes(encoded, sync_soon)
    failed = {}
    for index, change in enumerate(changes):
        try:
            _apply(disk, change)
        except OSError as error:
            failed[index] = error
    return failed


def apply_all(disk: Disk, changes: Sequence[FileOperation]) -> None:
    """Apply all changes; raises the OSError of the first one that failed."""
    failed = apply(disk, changes)
    if failed:
        raise failed[min(failed)]


def _apply(disk: Disk, change: FileOperation) -> None:
    if change.kind == RENAME:
        disk.rename(change.path, change.new)
    elif change.kind == WRITE_FILE:
        _write(disk, change.path, change.data)
    elif disk.exists(change.path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), change.path)
    elif change.kind == MAKE_DIRECTORY:
        disk.make_dir(change.path)
    else:
        disk.open(change.path, create=True).close()


def _write(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
    except OSError:
        disk.remove(path)
        raise
    finally:
        file.close()
