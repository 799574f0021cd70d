"""Creates the files of new partitions, many together, so that they inherit nothing from a deleted log.

Each step begins after the previous one has succeeded:
1. The last job that uses one of the directories by name has ended (`dirs_in_use`).
2. The checkpoints contain none of the partitions: otherwise, after a kill, their entries would apply to the new log.
3. The files are created and synced. Where the tree records the partition afterwards, in any order: without the record
   the files are created again. Otherwise `partition.metadata` gets its name last, when the others are on the disk.

A created partition has no open file and no `Log`: `open_created` creates it at the first append.

Source: LogManager.getOrCreateLog.
"""

import errno
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Offload, Outcome, Then
from kafkalite.config.topic import TopicConfig
from kafkalite.model import TopicPartition
from kafkalite.storage import checkpoints, file_operations, names, retention
from kafkalite.storage.checkpoint_writer import CheckpointWriter
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.file_operations import CREATE_EMPTY, MAKE_DIRECTORY, RENAME, WRITE_FILE, FileOperation
from kafkalite.storage.flush.fsync_threads import sync_new
from kafkalite.storage.log.leader_epoch_cache import LeaderEpochCache
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.log_closing import MANY_FILES
from kafkalite.storage.log_deletion import LogDeleter

SYNCS_EACH = 3  # the files with contents, and the directory
PORTION = 256  # partitions whose changes are prepared, with the GIL, before they are made without it

Failures = dict[TopicPartition, OSError]


class NewPartition(NamedTuple):
    """A partition whose files are to be created."""

    topic: str
    partition: int
    topic_id: bytes
    leader_epoch: int = 0  # that begins at offset 0; -1: none, the first batches of its leader bring it

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def directory(self, path: str) -> str:
        """Its directory in the log directory `path`."""
        return os.path.join(path, names.directory_name(self.topic, self.partition))


class LogCreator:
    """Creates the files of new partitions.

    Arguments:
        disk, offload: the disk, and the executor of the jobs.
        holds, deletions, files: directories used by jobs, deleted logs, and checkpoints.
    """

    def __init__(
        self,
        disk: Disk,
        offload: Offload,
        holds: DirectoriesInUse,
        deletions: LogDeleter,
        files: CheckpointWriter,
    ) -> None:
        self._disk = disk
        self._offload = offload
        self._holds = holds
        self._deletions = deletions
        self._files = files

    def create(
        self,
        path: str,
        wanted: Sequence[NewPartition],
        done: Then,
        many_files: int = MANY_FILES,
        *,
        recorded: bool = False,
    ) -> None:
        """Create the files of new partitions in the log directory `path`.

        Arguments:
            path: of the log directory.
            wanted: the partitions.
            done: called with the outcome: the `Failures` of single partitions, or the error of all.
            many_files, recorded: see `create_files`.
        """
        directories = [new.directory(path) for new in wanted]

        def create() -> None:
            left = {directory for directory in directories if self._deletions.is_left(directory)}
            job = partial(create_files, many_files=many_files, recorded=recorded)
            self._offload.run(job, self._disk, path, wanted, left, done=created)

        def created(outcome: Outcome) -> None:
            try:
                if outcome.error is None:
                    for new in wanted:
                        if new.key not in outcome.value:
                            self._deletions.removed(new.directory(path))
            finally:
                done(outcome)

        def forget() -> None:
            self._forget(path, [new.key for new in wanted], create, done)

        self._when_free(directories, forget)

    def _when_free(self, directories: Sequence[str], then: Callable[[], object]) -> None:
        """Call `then` when no job uses any of the directories."""
        for at, directory in enumerate(directories):
            if self._holds.is_in_use(directory):  # earlier directories may be in use again by then
                self._holds.when_free(directory, partial(self._when_free, directories[at:], then))
                return
        then()

    def _forget(self, path: str, keys: Iterable[TopicPartition], then: Callable[[], object], failed: Then) -> None:
        """Remove these partitions from the checkpoints of a log directory."""
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


def create_files(
    disk: Disk,
    path: str,
    wanted: Sequence[NewPartition],
    left: set[str],
    many_files: int = MANY_FILES,
    *,
    recorded: bool = False,
) -> Failures:
    """Job: create and sync the files of new partitions in a log directory.

    Arguments:
        disk: gets the files.
        path: of the log directory.
        wanted: the partitions.
        left: directories that still contain the files of a deleted log.
        many_files: from this number on the whole file system is synced by one call.
        recorded: whether the tree records the partitions afterwards: then one sync is enough.

    Returns the errors of single partitions; raises the OSError of a sync, which fails all partitions.
    """
    opened = disk.open_dir(path)  # before the first write: the sync of everything reports the errors since then
    together = opened if len(wanted) * SYNCS_EACH >= many_files else None
    try:
        failed: Failures = {}
        made: list[NewPartition] = []
        for at in range(0, len(wanted), PORTION):
            part = _make_directories(disk, path, wanted[at : at + PORTION], left, failed)
            files = [_files(new.directory(path), new, recorded) for new in part]
            made += _apply_each(disk, part, files, failed, sync_soon=together is None)
        if not recorded:
            sync_new(disk, _contents(path, made, recorded), [], together)
            renames = [[_final_rename(new.directory(path))] for new in made]
            made = _apply_each(disk, made, renames, failed)
        if made:
            directories = [*(new.directory(path) for new in made), path]
            sync_new(disk, _contents(path, made, recorded) if recorded else [], directories, together)
        return failed
    finally:
        opened.close()


def _contents(path: str, made: Sequence[NewPartition], recorded: bool) -> list[str]:
    """The files with contents, under the names that they have before the first sync."""
    suffix = "" if recorded else names.WORK
    found = (names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA + suffix)
    return [os.path.join(new.directory(path), name) for new in made for name in found]


def _make_directories(
    disk: Disk, path: str, wanted: Sequence[NewPartition], left: set[str], failed: Failures
) -> list[NewPartition]:
    """Create the directories; return the partitions whose directory exists now and has no file of a log."""
    for new in wanted:
        if (directory := new.directory(path)) in left:
            try:
                retention.remove_directory(disk, directory)
            except OSError as reason:
                failed[new.key] = reason
    wanted = [new for new in wanted if new.key not in failed]
    errors = file_operations.apply(disk, [FileOperation(MAKE_DIRECTORY, new.directory(path)) for new in wanted])
    for index, error in errors.items():
        try:
            if not isinstance(error, FileExistsError):
                raise error
            _clear(disk, wanted[index].directory(path))
        except OSError as reason:
            failed[wanted[index].key] = reason
    return [new for new in wanted if new.key not in failed]


def _apply_each(
    disk: Disk,
    wanted: Sequence[NewPartition],
    each: Sequence[Sequence[FileOperation]],
    failed: Failures,
    *,
    sync_soon: bool = False,
) -> list[NewPartition]:
    """Apply the changes of each partition, equally many for each; return the partitions without an error."""
    errors = file_operations.apply(disk, list(itertools.chain.from_iterable(each)), sync_soon=sync_soon)
    for index in sorted(errors, reverse=True):  # the first error of a partition is reported
        failed[wanted[index // len(each[0])].key] = errors[index]
    return [new for new in wanted if new.key not in failed]


def _files(directory: str, new: NewPartition, recorded: bool) -> list[FileOperation]:
    """An empty segment, the leader epoch (as Kafka writes it at becoming leader: the first append need not), and
    `partition.metadata`, under its work name unless the tree records the partition.
    """
    suffix = "" if recorded else names.WORK
    epochs = checkpoints.epochs_content(first_entries(new.leader_epoch))
    metadata = checkpoints.topic_id_text(new.topic_id)
    return [
        FileOperation(CREATE_EMPTY, os.path.join(directory, names.file_name(0, names.LOG))),
        FileOperation(WRITE_FILE, os.path.join(directory, names.LEADER_EPOCH_CHECKPOINT), epochs),
        FileOperation(WRITE_FILE, os.path.join(directory, names.PARTITION_METADATA + suffix), metadata),
    ]


def _final_rename(directory: str) -> FileOperation:
    """The rename that completes the creation of a partition directory."""
    path = os.path.join(directory, names.PARTITION_METADATA)
    return FileOperation(RENAME, path + names.WORK, new=path)


def _clear(disk: Disk, directory: str) -> None:
    """Remove the files of an interrupted creation, which may have been loaded as an empty log meanwhile.

    Raises FileExistsError, with nothing removed, where there are records: a creation that was completed wrote them.
    """
    found = [os.path.join(directory, name) for name in disk.list(directory) if names.parse_file_name(name) is not None]
    for path in found:
        if path.endswith(names.LOG) and disk.size(path):
            raise FileExistsError(errno.EEXIST, "the directory of a new partition has records of another one", path)
    for path in found:
        disk.remove(path)


def open_created(
    disk: Disk, path: str, key: TopicPartition, config: TopicConfig, leader_epoch: int | None = None
) -> Log:
    """Return the log of a created partition, empty, with its files open. Raises OSError.

    Arguments:
        disk: has the files.
        path: of the log directory.
        key: topic and partition.
        config: of the topic.
        leader_epoch: with which this process created the files, -1 without one; None: read from them, which takes as
            long as the rest.
    """
    directory = os.path.join(path, names.directory_name(*key))
    segment = Segment(0, directory, disk, config)
    segment.file = disk.open(segment.path(names.LOG))
    segment.empty_indexes()
    path = os.path.join(directory, names.LEADER_EPOCH_CHECKPOINT)
    log = Log(disk, directory, *key, config, [segment], _first_epoch(disk, path, leader_epoch))
    log.may_have_snapshots = False
    return log


def _first_epoch(disk: Disk, path: str, leader_epoch: int | None) -> LeaderEpochCache:
    if leader_epoch is not None:
        return LeaderEpochCache(disk, path, first_entries(leader_epoch))
    try:
        return LeaderEpochCache.load(disk, path)
    except checkpoints.BadCheckpoint:  # the first append writes it
        return LeaderEpochCache(disk, path)


def first_entries(leader_epoch: int) -> list[tuple[int, int]]:
    """The leader epochs of a new log: the one that begins at offset 0, or none (-1)."""
    return [] if leader_epoch < 0 else [(leader_epoch, 0)]
