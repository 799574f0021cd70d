"""Keeps partitions offline whose records may be elsewhere: their files are missing, or their log directory is new.

A log directory gets the file `MARK` before this broker claims it, and when a start finds that partitions with flushed
records have lost their directories in it. While a log directory has that file:

| the controller assigns a partition without files | what happens |
|---|---|
| that is new (`is_new`) | its files are created |
| to this broker as its first leader (leader epoch 0) | they are created: no broker has led it |
| otherwise | it is offline, with KAFKA_STORAGE_ERROR: an empty log would replace its records |

The file is removed when a full LeaderAndIsr request leaves no partition without files. So a new broker has it for a
moment only. An operator who accepts the loss removes it, and starts the broker again.
"""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Offload, Outcome
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.slicing import Steps
from kafkalite.storage import checkpoints, names
from kafkalite.storage.dirs.log_directory import raise_without_descriptors
from kafkalite.storage.manager import LogManager

LOGGER = logging.getLogger("kafkalite.server")
MARK = names.UNCONFIRMED
TEXT = b"""Partitions of this broker may have their records in another directory; those without files are offline.
Restore or mount that directory. To accept the loss, stop the broker, remove this file, and start the broker again.
"""
FIRST_EPOCH = 0
OFFLINE = (
    "%d partition%s offline, the first is %s: the controller says that they existed, but %s has no files of them. "
    "Mount or restore the log directory that has them, and start the broker again. To accept the loss and create them "
    "empty, stop the broker, remove %s, and start it again"
)
CREATED = (
    "%d partition%s created empty, the first is %s: the controller says that they existed. Their creation was "
    "interrupted, or their directories were removed"
)


class MissingLogs:
    """The partitions without files that this broker is assigned.

    Arguments:
        logs: the log directories, loaded.
        offload: removes the marks.
    """

    def __init__(self, logs: LogManager, offload: Offload) -> None:
        self._logs = logs
        self._offload = offload
        self._marked = [path for path in logs.online() if logs.disk.exists(os.path.join(path, MARK))]
        self._offline: list[TopicPartition] = []
        self._created: list[TopicPartition] = []

    @property
    def is_complete(self) -> bool:
        """Whether each log directory has all partitions that it ever had: one without files was never created."""
        return not self._marked

    def may_create(self, key: TopicPartition, leader_epoch: int, *, leads: bool, is_new: bool) -> bool:
        """Whether the files of a partition without files may be created.

        Arguments:
            key, leader_epoch: of the partition.
            leads: whether this broker is to lead it.
            is_new: whether the controller says that it is new.
        """
        if is_new or (leads and leader_epoch == FIRST_EPOCH):
            return True
        (self._offline if self._marked else self._created).append(key)
        return not self._marked

    def report(self) -> None:
        """Log what was decided since the last call: a line for all partitions that are offline, one for the others."""
        offline, self._offline = self._offline, []
        created, self._created = self._created, []
        if offline:
            marks = " and ".join(os.path.join(path, MARK) for path in self._marked)
            LOGGER.error(OFFLINE, *summarize(offline), " and ".join(self._marked), marks)
        if created:
            LOGGER.warning(CREATED, *summarize(created))

    def confirming(self, partitions: Iterable[Partition]) -> Steps:
        """After a full request: remove the marks, in a job, unless a partition without files is offline."""
        if not self._marked:
            return
        for partition in partitions:
            if partition.log is None and partition.error == KafkaErrorCode.KAFKA_STORAGE_ERROR:
                return
            yield
        marked, self._marked = self._marked, []
        self._offload.run(remove_marks, self._logs.disk, marked, done=removed)


def summarize(keys: list[TopicPartition]) -> tuple[int, str, TopicPartition]:
    """The number of partitions, the verb that follows, and the first one."""
    return len(keys), " is" if len(keys) == 1 else "s are", keys[0]


def remove_marks(disk: Disk, paths: list[str]) -> None:
    """Remove the marks of log directories. Raises OSError."""
    for path in paths:
        disk.remove(os.path.join(path, MARK))
        disk.sync_dir(path)


def removed(outcome: Outcome) -> None:
    """The next start removes a mark that is left."""
    if isinstance(outcome.error, OSError):
        LOGGER.warning("cannot remove %s, the next start does it: %s", MARK, outcome.error)
    else:
        outcome.result()


def mark_new(logs: LogManager) -> None:
    """Mark the log directories that no broker owns yet; call it before they are claimed. Raises DirectoryError."""
    for path in logs.online():
        with offline_after_an_error(logs, path):
            if not logs.disk.exists(os.path.join(path, checkpoints.META_PROPERTIES)):
                mark(logs.disk, path)
    logs.see_one_online()


def mark_incomplete(logs: LogManager) -> None:
    """Mark the log directories that have lost partitions; call it before they are loaded. Raises DirectoryError."""
    for path in logs.online():
        with offline_after_an_error(logs, path):
            mark_if_incomplete(logs.disk, path)
    logs.see_one_online()


def mark_if_incomplete(disk: Disk, path: str) -> None:
    """Mark a log directory that has lost partitions, and log how many. Raises OSError."""
    lost = sorted(lost_partitions(disk, path))
    if lost:
        text = "%s: %d directories of partitions with records are missing, the first is %s"
        LOGGER.error(text, path, len(lost), names.directory_name(*lost[0]))
        mark(disk, path)


@contextmanager
def offline_after_an_error(logs: LogManager, path: str) -> Iterator[None]:
    """Take a log directory offline that cannot be read or marked. Raises DirectoryError without free descriptors."""
    try:
        yield
    except OSError as error:
        raise_without_descriptors(path, error)
        logs.mark_offline(path, error)
        LOGGER.error("%s: cannot use this log directory, it stays offline: %s", path, error)


def mark(disk: Disk, path: str) -> None:
    """Create the mark of a log directory, on the disk when this returns. Raises OSError."""
    disk.write_atomic(os.path.join(path, MARK), TEXT, sync=True)


def lost_partitions(disk: Disk, path: str) -> Iterator[TopicPartition]:
    """Yield the partitions with flushed records, by the checkpoint, that a log directory has no more. Those that were
    deleted or renamed to strays are not lost. Raises OSError.
    """
    try:
        offsets = checkpoints.read_offsets(disk, os.path.join(path, checkpoints.RECOVERY_POINTS), empty=True)
    except checkpoints.BadCheckpoint:  # the load reports it
        return
    found = {name.rpartition(".")[0] if is_renamed(name) else name for name in disk.list(path)}
    for key, recovery_point in offsets.items():
        if recovery_point > 0 and names.directory_name(*key) not in found:
            yield key


def is_renamed(name: str) -> bool:
    """Whether this is the directory of a deleted partition, of a stray or of a future replica."""
    parsers = (names.parse_stray_directory_name, names.parse_future_directory_name)
    return names.is_deleted_directory(name) or any(parse(name) is not None for parse in parsers)
