"""Finds and recovers the partitions of the log directories at the start, in parallel.

1. The mark of a clean stop is read once, and removed before any log is opened.
2. An unreadable checkpoint means an unclean start, with a log line; it never ends the start.
3. Directories with other names are left unchanged, with a log line; `-delete` directories are deleted.
4. Every log directory has its own threads, so that a slow disk does not delay the others. An error affects its log
   directory only.
5. A log directory with a clean stop has one thread: two threads with small reads and little Python between them compete
   for the GIL at every read (2,000 partitions: 0.50 s with two threads, 0.33 s with one).
6. After the first second, the progress is logged once per second.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock

from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.model import TopicPartition
from kafkalite.storage import checkpoints, names
from kafkalite.storage.dirs.log_directory import raise_without_descriptors
from kafkalite.storage.log.flush_job import sync
from kafkalite.storage.log.log import Log
from kafkalite.storage.recovery.recover_log import (
    OFFSET_MAX,
    PartitionDirectory,
    RecoveryError,
    RecoveryReport,
    ignore,
    recover,
)
from kafkalite.storage.transient_errors import is_transient

CLEAN_PART = 64  # partitions per job after a clean stop, a few tenths of a millisecond each
FIRST_LOG = names.file_name(0, names.LOG)
CREATED_FILES = {FIRST_LOG, names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA}


@dataclass(frozen=True, slots=True)
class CreatedPartition:
    """A partition with the files of its creation only."""

    topic_id: bytes


Outcome = (
    tuple[Log, RecoveryReport, bytes | None] | CreatedPartition | OSError | RecoveryError | checkpoints.BadCheckpoint
)
LOGGER = logging.getLogger("kafkalite.storage.recovery.load_logs")


@dataclass(slots=True)
class LoadedDirectory:
    """The content of one log directory; `error` ended the load early. Keys are directories of partitions.

    `created`: topic ids of the partitions without a trace of a record; they are not opened.
    `gone`: partitions in the checkpoints that have no directory. `strays`: directories that an earlier start
    renamed, as their topics were unknown. `unclean`: partitions whose end may have been lost.
    """

    path: str
    clean: bool
    logs: list[Log] = field(default_factory=list)
    topic_ids: dict[str, bytes | None] = field(default_factory=dict)
    to_delete: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    checkpoints_of_rejected: checkpoints.OffsetsByPartition = field(default_factory=dict)
    high_watermarks_of_rejected: checkpoints.Offsets = field(default_factory=dict)
    progress: dict[str, RecoveryReport] = field(default_factory=dict)
    unclean: set[TopicPartition] = field(default_factory=set)
    gone: set[TopicPartition] = field(default_factory=set)
    created: dict[TopicPartition, bytes] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)
    bytes_dropped: int = 0
    error: OSError | None = None


class RecoveryProgress:
    """The progress of recovery; `checked` may be called by any thread."""

    def __init__(self, partitions: int, size: int, advance: Callable[[int], object]) -> None:
        self._advance = advance
        self._partitions = partitions
        self._size = size
        self._checked = 0
        self._began = time.monotonic()
        self._lock = Lock()

    def checked(self, size: int) -> None:
        """Count checked bytes of batches."""
        with self._lock:
            self._checked += size
            self._advance(size)

    def log_progress(self, partitions_done: int) -> None:
        """Log the progress in one line."""
        done, all_of_it = (self._checked, self._size) if self._checked else (partitions_done, self._partitions)
        elapsed = time.monotonic() - self._began
        left = f"about {elapsed * max(all_of_it - done, 0) / done:.0f} s left" if done else "just started"
        LOGGER.info(
            "recovering: %d of %d partitions, %d of at most %d MiB checked, %s",
            partitions_done, self._partitions, self._checked >> 20, self._size >> 20, left,
        )  # fmt: skip


def load_directories(
    disk: Disk,
    paths: Sequence[str],
    config_of: Callable[[str], TopicConfig],
    threads: int,
    *,
    log_every_s: float = 1.0,
    advance: Callable[[int], object] = ignore,
) -> list[LoadedDirectory]:
    """Recover every partition of the log directories; blocks. Raises DirectoryError: see also `LoadedDirectory.error`.

    Arguments:
        disk: has the files.
        paths: of the log directories.
        config_of: returns the config of a topic name.
        threads: number for each directory whose batches are checked.
        log_every_s: seconds between log lines with the progress.
        advance: called with the bytes checked.
    """
    found = [_begin(disk, path, config_of) for path in paths]
    work = [partition_dir for _, partition_dirs in found for partition_dir in partition_dirs]
    watch = RecoveryProgress(len(work), sum(_size_to_check(partition_dir) for partition_dir in work), advance)
    for partition_dir in work:
        partition_dir.advance = watch.checked
    with ExitStack() as stack:
        pools = {
            loaded.path: stack.enter_context(
                ThreadPoolExecutor(1 if loaded.clean else threads, thread_name_prefix="recovery")
            )
            for loaded, partition_dirs in found
            if partition_dirs
        }
        running = {
            pools[loaded.path].submit(_try_recover_all, loaded, part): (loaded, part)
            for loaded, partition_dirs in found
            for part in _parts(loaded, partition_dirs)
        }
        _wait({future: len(part) for future, (_, part) in running.items()}, watch, log_every_s)
    for future, (loaded, part) in running.items():
        for partition_dir, outcome in zip(part, future.result(), strict=True):
            _add_outcome(loaded, partition_dir, outcome)
    return [loaded for loaded, _ in found]


def _parts(loaded: LoadedDirectory, partition_dirs: Sequence[PartitionDirectory]) -> list[Sequence[PartitionDirectory]]:
    """The partitions in the portions that a thread recovers: one by one where batches are checked."""
    size = CLEAN_PART if loaded.clean else 1
    return [partition_dirs[begin : begin + size] for begin in range(0, len(partition_dirs), size)]


def _begin(
    disk: Disk, path: str, config_of: Callable[[str], TopicConfig]
) -> tuple[LoadedDirectory, list[PartitionDirectory]]:
    try:
        unclean = checkpoints.take_clean_shutdown(disk, path)
        loaded = LoadedDirectory(path, unclean is not None, unclean=unclean or set())
        partition_dirs = _partition_dirs(disk, loaded, config_of)
        if disk.exists(os.path.join(path, names.FAILED_FSYNC)):
            _write_again(disk, path, partition_dirs)
        return loaded, partition_dirs
    except OSError as error:
        raise_without_descriptors(path, error)
        return LoadedDirectory(path, False, error=error), []


def _write_again(disk: Disk, path: str, partition_dirs: Sequence[PartitionDirectory]) -> None:
    """Write again what was not flushed in a log directory whose disk has failed. Raises OSError."""
    from kafkalite.storage.dirs import failed_fsync  # most starts do not need it

    files = [file for partition_dir in partition_dirs for file in _files_to_check(partition_dir)]
    size = sum(failed_fsync.write_again(disk, file) for file in files)
    failed_fsync.unmark(disk, path)
    LOGGER.warning(
        "%s: its disk has failed before this start; %d bytes that were not flushed are written again", path, size
    )


def _size_to_check(partition_dir: PartitionDirectory) -> int:
    """Bytes of the segments that are not below the recovery point; recovery reports unreadable ones."""
    try:
        return sum(map(partition_dir.disk.size, _files_to_check(partition_dir)))
    except OSError:
        return 0


def _files_to_check(partition_dir: PartitionDirectory) -> list[str]:
    """The files of batches that are not below the recovery point; none after a clean stop. Raises OSError."""
    if partition_dir.clean:
        return []
    named = [names.parse_file_name(name) for name in partition_dir.disk.list(partition_dir.directory)]
    bases = sorted(found[0] for found in named if found is not None and found[1] == names.LOG)
    first = max((base for base in bases if base <= partition_dir.recovery_point), default=0)
    files = [names.file_name(base, names.LOG) for base in bases if base >= first]
    return [os.path.join(partition_dir.directory, name) for name in files]


def _wait(running: Mapping[Future[list[Outcome]], int], watch: RecoveryProgress, log_every_s: float) -> None:
    """Wait for all; the values are numbers of partitions."""
    waiting = set(running)
    done_count = 0
    while waiting:
        done, waiting = wait(waiting, timeout=log_every_s)
        done_count += sum(running[future] for future in done)
        if waiting:
            watch.log_progress(done_count)


def _offsets(disk: Disk, loaded: LoadedDirectory, name: str) -> checkpoints.Offsets:
    try:
        return checkpoints.read_offsets(disk, os.path.join(loaded.path, name))
    except checkpoints.BadCheckpoint as error:
        LOGGER.warning("%s; every batch is checked", error)
        loaded.clean = False
        return {}


def _cleaned(disk: Disk, loaded: LoadedDirectory) -> checkpoints.Offsets | None:
    """The cleaner checkpoint; None if it cannot be read, so that every log may have been compacted."""
    try:
        return checkpoints.read_offsets(disk, os.path.join(loaded.path, checkpoints.CLEANER_OFFSETS))
    except checkpoints.BadCheckpoint as error:
        LOGGER.warning("%s; gaps between offsets are accepted", error)
        return None


def _high_watermarks(disk: Disk, loaded: LoadedDirectory) -> checkpoints.Offsets:
    """The checkpoint of high watermarks; one that cannot be read has none, and followers begin at their log starts."""
    try:
        return checkpoints.read_offsets(disk, os.path.join(loaded.path, checkpoints.HIGH_WATERMARKS), empty=True)
    except checkpoints.BadCheckpoint as error:
        LOGGER.warning("%s; ignored", error)
        return {}


def _partition_dirs(
    disk: Disk, loaded: LoadedDirectory, config_of: Callable[[str], TopicConfig]
) -> list[PartitionDirectory]:
    recovery_points = _offsets(disk, loaded, checkpoints.RECOVERY_POINTS)
    starts = _offsets(disk, loaded, checkpoints.LOG_STARTS)
    watermarks = _high_watermarks(disk, loaded)
    cleaned = _cleaned(disk, loaded)
    partition_dirs = []
    for name in disk.list(loaded.path):
        directory = os.path.join(loaded.path, name)
        if not disk.is_dir(directory):
            continue
        if names.is_deleted_directory(name):
            loaded.to_delete.append(directory)
        elif names.parse_stray_directory_name(name) is not None:
            loaded.strays.append(directory)
        elif names.parse_future_directory_name(name) is not None:
            continue  # `log_move.interrupted_moves` has decided what happens to it
        elif (found := names.parse_directory_name(name)) is None:
            LOGGER.warning("%s: not a partition directory, ignored", directory)
        else:
            topic, partition = found
            partition_dirs.append(
                PartitionDirectory(
                    disk, directory, topic, partition, config_of(topic),
                    loaded.clean and found in recovery_points and found not in loaded.unclean,
                    recovery_points.get(found, 0), starts.get(found, 0),
                    gaps_until=OFFSET_MAX if cleaned is None else cleaned.get(found, 0),
                    high_watermark=watermarks.get(found, -1),
                )
            )  # fmt: skip
    _forget_others(
        disk,
        loaded,
        {TopicPartition(partition_dir.topic, partition_dir.partition) for partition_dir in partition_dirs},
        recovery_points,
        starts,
        watermarks,
    )
    return partition_dirs


def _forget_others(
    disk: Disk,
    loaded: LoadedDirectory,
    present: set[TopicPartition],
    recovery_points: checkpoints.Offsets,
    starts: checkpoints.Offsets,
    watermarks: checkpoints.Offsets,
) -> None:
    """Remove deleted partitions from the checkpoints: the entries must not apply to new partitions. Raises OSError."""
    loaded.gone = (recovery_points.keys() | starts.keys()) - present
    try:
        for name, offsets in (
            (checkpoints.RECOVERY_POINTS, recovery_points),
            (checkpoints.LOG_STARTS, starts),
            (checkpoints.HIGH_WATERMARKS, watermarks),
        ):
            if offsets.keys() - present:
                kept = {key: offset for key, offset in offsets.items() if key in present}
                checkpoints.write_offsets(disk, os.path.join(loaded.path, name), kept)
    except OSError as error:  # a full disk: the creation of a partition of that name removes the entry
        if not is_transient(error):
            raise
        LOGGER.warning("%s: cannot remove deleted partitions from the checkpoints: %s", loaded.path, error)


def _try_recover_all(loaded: LoadedDirectory, partition_dirs: Sequence[PartitionDirectory]) -> list[Outcome]:
    return [_try_recover(loaded, partition_dir) for partition_dir in partition_dirs]


def _try_recover(loaded: LoadedDirectory, partition_dir: PartitionDirectory) -> Outcome:
    if loaded.error is not None:  # no further partition of a failed directory is read
        return loaded.error
    try:
        topic_id = checkpoints.read_topic_id(partition_dir.disk, partition_dir.directory)
        if topic_id is not None and _never_opened(partition_dir):
            return CreatedPartition(topic_id)
        log, progress = recover(partition_dir)
        if not partition_dir.clean and partition_dir.config.flush_messages == 1:  # its end may be read at once
            plan = log.plan_flush()
            sync(partition_dir.disk, [plan])
            log.apply_flush(plan)
        return log, progress, topic_id
    except OSError as error:
        if is_transient(error):  # no space or descriptors: the other partitions are recovered
            return RecoveryError(f"{partition_dir.directory}: {error}; the next start tries again")
        loaded.error = error
        return error
    except (RecoveryError, checkpoints.BadCheckpoint) as error:
        return error


def _never_opened(partition_dir: PartitionDirectory) -> bool:
    """Whether a partition has the files of its creation only, and no checkpoint has an offset above 0 for it."""
    if (
        partition_dir.recovery_point
        or partition_dir.log_start_offset
        or set(partition_dir.disk.list(partition_dir.directory)) != CREATED_FILES
    ):
        return False
    path = os.path.join(partition_dir.directory, names.LEADER_EPOCH_CHECKPOINT)
    try:
        epochs = checkpoints.read_epochs(partition_dir.disk, path)
    except checkpoints.BadCheckpoint:  # a first append rewrote it and its batch was lost; recovery repairs it
        return False
    if any(offset for _, offset in epochs):  # of a batch that was lost, or of DeleteRecords; recovery removes them
        return False
    return partition_dir.disk.size(os.path.join(partition_dir.directory, FIRST_LOG)) == 0


def _add_outcome(loaded: LoadedDirectory, partition_dir: PartitionDirectory, outcome: Outcome) -> None:
    if isinstance(outcome, OSError):
        return  # `loaded.error` has it
    if isinstance(outcome, CreatedPartition):
        loaded.created[TopicPartition(partition_dir.topic, partition_dir.partition)] = outcome.topic_id
        if not loaded.clean:  # its records may have been lost
            loaded.unclean.add(TopicPartition(partition_dir.topic, partition_dir.partition))
        return
    if isinstance(outcome, ValueError):
        loaded.rejected[partition_dir.directory] = str(outcome)
        loaded.checkpoints_of_rejected[TopicPartition(partition_dir.topic, partition_dir.partition)] = (
            partition_dir.recovery_point,
            partition_dir.log_start_offset,
        )
        if partition_dir.high_watermark >= 0:
            key = TopicPartition(partition_dir.topic, partition_dir.partition)
            loaded.high_watermarks_of_rejected[key] = partition_dir.high_watermark
        return
    log, progress, topic_id = outcome
    loaded.logs.append(log)
    loaded.progress[partition_dir.directory] = progress
    if not partition_dir.clean:
        loaded.unclean.add(TopicPartition(partition_dir.topic, partition_dir.partition))
    loaded.topic_ids[partition_dir.directory] = topic_id
    loaded.bytes_dropped += progress.bytes_dropped
