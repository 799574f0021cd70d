"""Checks whether a journal is older than its log directory: a clean shutdown records the journal's last transaction.

After an unclean shutdown there is no record, and an older journal shows only by the topics that it lacks.
"""

import os

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import checkpoints


def older_journal(disk: Disk, path: str, zxid: int) -> list[str]:
    """Return a warning where the journal is older than the last clean shutdown of its log directory. Raises OSError.

    Arguments:
        disk: holds both.
        path: of the journal.
        zxid: the last transaction of the journal.
    """
    noted = checkpoints.read_broker_epoch(disk, os.path.dirname(path))
    if zxid >= noted:
        return []
    return [
        f"{path}: an older copy: its last change is {zxid:,}, at the last shutdown it was "
        f"{noted:,}. Topics and settings that were changed since are missing; put the newer file back, see "
        "docs/operations.md, Restore"
    ]
