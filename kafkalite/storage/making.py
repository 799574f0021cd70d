"""How the files of new partitions are created, many together, so that they inherit nothing from a deleted log.

The steps, each after the one before has succeeded:
1. The last job that works in one of the directories by name has ended (`holds`).
2. The checkpoints name none of the partitions: a kill at any later moment would take what they say for the new log's.
3. The files are created and synced: first their contents, then their names, with one sync of the log directory.

A created partition has no open file and no `Log`: that is made by `open_created`, at its first append.

Source: LogManager.getOrCreateLog.
"""

import errno
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kafkalite._speedups.file import Disk, File
from kafkalite.clock import Offload, Outcome
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import checkpoints, names, retention
from kafkalite.storage.deletion import Deletions
from kafkalite.storage.epochs import LeaderEpochCache
from kafkalite.storage.holds import Holds
from kafkalite.storage.lanes import sync_new
from kafkalite.storage.log import Log
from kafkalite.storage.points import PointFiles
from kafkalite.storage.segment import Segment

Key = tuple[str, int]
Failures = dict[Key, OSError]


class NewPartition(NamedTuple):
    """A partition whose files are to be created."""

    topic: str
    partition: int
    topic_id: bytes
    leader_epoch: int = 0

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    def directory(self, path: str) -> str:
        """Its directory in the log directory `path`."""
        return os.path.join(path, names.directory_name(self.topic, self.partition))


class LogMaker:
    """Makes logs.

    Arguments:
        disk, offload: where, and how it leaves the loop.
        holds, deletions, files: what happens in the directories besides.
    """

    def __init__(
        self,
        disk: Disk,
        offload: Offload,
        holds: Holds,
        deletions: Deletions,
        files: PointFiles,
    ) -> None:
        self._disk = disk
        self._offload = offload
        self._holds = holds
        self._deletions = deletions
        self._files = files

    def create(self, path: str, wanted: Sequence[NewPartition], done: Callable[[Outcome], object]) -> None:
        """Create the files of new partitions in the log directory `path`.

        Arguments:
            done: called with the outcome: the `Failures` of single partitions, or the error of all.
        """
        directories = [new.directory(path) for new in wanted]

        def create() -> None:
            left = {directory for directory in directories if self._deletions.is_left(directory)}
            self._offload.run(create_files, self._disk, path, wanted, left, done=created)

        def created(outcome: Outcome) -> None:
            if outcome.error is None:
                for new in wanted:
                    if new.key not in outcome.value:
                        self._deletions.removed(new.directory(path))
            done(outcome)

        def forget() -> None:
            self._forget(path, [new.key for new in wanted], create, done)

        self._when_free(directories, forget)

    def _when_free(self, directories: Sequence[str], then: Callable[[], object]) -> None:
        """Call `then` when no job is at work in any of the directories."""
        if not directories:
            then()
        else:
            self._holds.when_free(directories[0], partial(self._when_free, directories[1:], then))

    def _forget(
        self, path: str, keys: Iterable[Key], then: Callable[[], object], failed: Callable[[Outcome], object]
    ) -> None:
        """Have the checkpoints of a log directory name these partitions no more."""
        named = False
        for key in keys:
            if self._files.others[path].pop(key, None) is not None:
                self._files.note_deleted(path, key)
            named = named or key in self._files.deleted[path]
        if not named:
            then()
            return

        def forgotten(outcome: Outcome) -> None:
            if outcome.error is not None:
                failed(outcome)
            else:
                then()

        self._files.write_both(path, forgotten)


def create_files(disk: Disk, path: str, wanted: Sequence[NewPartition], left: set[str]) -> Failures:
    """Job: create and sync the files of new partitions in a log directory.

    Arguments:
        left: directories in which the files of a deleted log are still there.

    Returns what failed for single partitions; raises the OSError of a sync, which counts for all.
    """
    failed: Failures = {}
    opened: dict[NewPartition, list[File]] = {}
    try:
        for new in wanted:
            directory = new.directory(path)
            try:
                if directory in left:
                    retention.remove_directory(disk, directory)
                opened[new] = _create(disk, directory, new)
            except OSError as error:
                failed[new.key] = error
        sync_new(disk, [file for files in opened.values() for file in files], [])
        for new, (metadata, _) in opened.items():
            try:
                disk.rename(metadata.path, metadata.path.removesuffix(names.WORK))
            except OSError as error:
                failed[new.key] = error
        if opened:
            sync_new(disk, [], [*(new.directory(path) for new in opened), path])
    finally:
        for file in itertools.chain.from_iterable(opened.values()):
            file.close()
    return failed


def _create(disk: Disk, directory: str, new: NewPartition) -> list[File]:
    """Create the directory, an empty segment, the leader epoch (as Kafka does at becoming leader, which spares the
    first append the file) and `partition.metadata` under its work name. Returns the last two, metadata first, open.
    """
    if disk.exists(directory):
        _clear(disk, directory)
    disk.make_dir(directory)
    disk.open(os.path.join(directory, names.file_name(0, names.LOG)), create=True).close()
    epochs = _write(
        disk, os.path.join(directory, names.LEADER_EPOCH_CHECKPOINT), f"0\n1\n{new.leader_epoch} 0\n".encode()
    )
    path = os.path.join(directory, names.PARTITION_METADATA + names.WORK)
    return [_write(disk, path, checkpoints.topic_id_text(new.topic_id)), epochs]


def _write(disk: Disk, path: str, data: bytes) -> File:
    """Write a small file, which is not kept where that fails. Raises OSError."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
    except OSError:
        file.close()
        disk.remove(path)
        raise
    return file


def _clear(disk: Disk, directory: str) -> None:
    """Remove what an interrupted creation left, which may have been loaded as an empty log meanwhile.

    Raises FileExistsError, with nothing removed, where there are records: a creation that was completed wrote them.
    """
    found = [os.path.join(directory, name) for name in disk.list(directory) if names.parse_file_name(name) is not None]
    for path in found:
        if path.endswith(names.LOG) and disk.size(path):
            raise FileExistsError(errno.EEXIST, "the directory of a new partition has records of another one", path)
    for path in found:
        disk.remove(path)


def open_created(disk: Disk, path: str, key: Key, config: TopicConfig) -> Log:
    """The log of a created partition, empty, with its files open. Raises OSError."""
    directory = os.path.join(path, names.directory_name(*key))
    segment = Segment(0, directory, disk, config)
    segment.file = disk.open(segment.path(names.LOG))
    segment.empty_indexes()
    path = os.path.join(directory, names.LEADER_EPOCH_CHECKPOINT)
    try:
        epochs = LeaderEpochCache.load(disk, path)
    except checkpoints.BadCheckpoint:  # the first append writes it
        epochs = LeaderEpochCache(disk, path)
    return Log(disk, directory, *key, config, [segment], epochs)
