"""Finds whether the logs of a broker may lack records that were written before its start, but not flushed.

1. After a clean stop they have all: each log directory has the mark of the clean shutdown. A directory that is new, or
   whose partitions the controller has not named yet, and that has none, needs no mark. Any other one without partitions
   does: a power failure may have removed directories that were not flushed.
2. After a kill they have all, too: the page cache is that of the same boot of the machine.
3. Otherwise the start is unclean: the power failed, or the machine was booted before the broker could stop.
4. An unclean start is followed by another one, until the controller has answered the controlled shutdown: before that
   it may not have noticed. A kill leaves this in `saved_session`, beside the boot id, a stop in the mark.

Not detected: a log directory that was replaced by an older copy of itself, with its mark.
"""

import os
from collections.abc import Iterable

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import checkpoints, names


def was_stopped(disk: Disk, directories: Iterable[str]) -> bool:
    """Whether every log directory has the mark of a clean shutdown, or is new; read before the logs are loaded."""
    return all(_was_stopped(disk, path) for path in directories)


def _was_stopped(disk: Disk, path: str) -> bool:
    try:
        if checkpoints.read_clean_shutdown(disk, path) is not None:
            return not checkpoints.read_unclean_start(disk, path)
        return _is_new(disk, path) and not any(_is_partition(disk, path, name) for name in disk.list(path))
    except OSError:  # reported by the load
        return False


def _is_new(disk: Disk, path: str) -> bool:
    claimed = disk.exists(os.path.join(path, checkpoints.META_PROPERTIES))
    return not claimed or disk.exists(os.path.join(path, names.UNCONFIRMED))


def _is_partition(disk: Disk, path: str, name: str) -> bool:
    return names.parse_directory_name(name) is not None and disk.is_dir(os.path.join(path, name))
