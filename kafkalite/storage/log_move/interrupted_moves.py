"""Decides at a start what happens to the future directories of partitions, before any log is loaded.

| the future directory of a partition | what happens |
|---|---|
| that has its directory in a log directory | is removed; the move begins again, unless it is in the same one |
| that has none, marked as complete (`complete_mark`) | becomes its directory: the swap was interrupted |
| that has none, not marked | becomes a stray: perhaps its only records |
| while a log directory is offline, without the partition in another | is left as it is, with a log line |

A future directory that is removed is renamed on the disk before this returns: its partition accepts appends then.
"""

import logging
import os
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Random
from kafkalite.model import TopicPartition
from kafkalite.storage import names
from kafkalite.storage.dirs import stray_partitions
from kafkalite.storage.dirs.directory_set import DirectorySet
from kafkalite.storage.dirs.log_directory import raise_without_descriptors
from kafkalite.storage.log_move import complete_mark
from kafkalite.storage.transient_errors import is_transient

LOGGER = logging.getLogger("kafkalite.storage.log_move.interrupted_moves")


class InterruptedMove(NamedTuple):
    """A move that a start begins again: of a partition, to the log directory `target`."""

    key: TopicPartition
    target: str


class FutureDirectory(NamedTuple):
    """The future directory of a partition in the log directory `root`."""

    key: TopicPartition
    root: str
    directory: str


def finish_interrupted(disk: Disk, logs: DirectorySet, random: Random) -> list[InterruptedMove]:
    """Handle every future directory; blocks. An OSError takes its log directory offline.

    Arguments:
        disk: of the log directories.
        logs: the log directories, claimed and not loaded.
        random: for names of directories.

    Returns the moves to begin again when the logs are loaded. Raises DirectoryError.
    """
    current: dict[TopicPartition, str] = {}
    futures: list[FutureDirectory] = []
    for root in logs.online():
        try:
            _list(disk, root, current, futures)
        except OSError as error:
            _failed(logs, root, error)
    again: dict[TopicPartition, str] = {}
    for future in futures:
        if not logs.is_online(future.root):
            continue
        try:
            _handle(disk, logs, random, future, current, again)
        except OSError as error:
            _failed(logs, future.root, error)
    logs.see_one_online()
    return [InterruptedMove(key, target) for key, target in again.items() if logs.is_online(target)]


def _list(disk: Disk, root: str, current: dict[TopicPartition, str], futures: list[FutureDirectory]) -> None:
    for name in disk.list(root):
        path = os.path.join(root, name)
        future, key = names.parse_future_directory_name(name), names.parse_directory_name(name)
        if future is not None and disk.is_dir(path):
            futures.append(FutureDirectory(future, root, path))
        elif key is not None and disk.is_dir(path):
            current[key] = root


def _handle(
    disk: Disk,
    logs: DirectorySet,
    random: Random,
    future: FutureDirectory,
    current: dict[TopicPartition, str],
    again: dict[TopicPartition, str],
) -> None:
    """Raises OSError."""
    if future.key in current:
        _remove(disk, future, random)
        if current[future.key] != future.root:
            again[future.key] = future.root
    elif len(logs.online()) < len(logs.directories()):
        text = "%s is not used: the partition may be in a log directory that is offline"
        LOGGER.error(text, future.directory)
    elif complete_mark.is_marked(disk, future.directory):
        final = os.path.join(future.root, names.directory_name(*future.key))
        disk.rename(future.directory, final)
        complete_mark.sync_and_unmark(disk, final)
        current[future.key] = future.root
        LOGGER.warning("%s: completed the interrupted move of this partition", final)
    else:
        renamed = stray_partitions.rename(disk, future.directory, future.key, (0, 0), random.bytes(16).hex(), None)
        disk.sync_dir(future.root)
        LOGGER.error("%s: the incomplete copy of a partition that has no directory; it is kept", renamed)


def _remove(disk: Disk, future: FutureDirectory, random: Random) -> None:
    """Rename a copy, so that no start uses it; the load deletes it. Without space it only loses its mark."""
    name = names.deleted_directory_name(*future.key, random.bytes(16).hex())
    try:
        disk.rename(future.directory, os.path.join(future.root, name))
        disk.sync_dir(future.root)
    except OSError as error:
        if not is_transient(error):
            raise
        complete_mark.unmark(disk, future.directory)


def _failed(logs: DirectorySet, root: str, error: OSError) -> None:
    raise_without_descriptors(root, error)
    logs.mark_offline(root, error)
    LOGGER.error("%s: cannot use this log directory, it stays offline: %s", root, error)
