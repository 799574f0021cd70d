"""Adopts partitions from the log directory of another broker: finds, copies or moves, and recovers them.

The steps for one partition; the directory is synced after each, and after a kill each can be repeated:
1. `fetch`: its files are copied to `<topic>-<partition>.fetching`, which is renamed to `.adopting` once all of them are
   on the disk. A move renames the directory to `.adopting` at once.
2. `make_ready`: it is recovered there, and left as after a clean stop, with its topic id.
3. `write_checkpoints`: its offsets are added to the checkpoints. The caller registers its topic.
4. `install`: `.adopting` is removed from the name. After a start before that, the partition is offline, never empty;
   directories with such names are left unchanged.

Sources: LogManager.scala (contents of a log directory), PartitionMetadata.java.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from kafkalite._speedups.storage.file import Disk
from kafkalite.config.topic import TopicConfig
from kafkalite.model import TopicPartition
from kafkalite.records.batch_header import MAGIC_AT
from kafkalite.storage import checkpoints, names
from kafkalite.storage.dirs.log_directory import DirectoryError
from kafkalite.storage.dirs.stray_partitions import Stray
from kafkalite.storage.recovery.largest_producer_id import largest_of
from kafkalite.storage.recovery.recover_log import PartitionDirectory, RecoveryError, recover

FETCHING = ".fetching"
ADOPTING = names.ADOPTING
CHUNK_BYTES = 1 << 20
NOT_FETCHED = (names.DELETED, names.CLEANED, names.WORK)
LEFT_OUT = ("__cluster_metadata", "__share_group_state")


class AdoptionError(Exception):
    """A partition cannot be adopted; the message is one line with its path and the reason."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition that is to be adopted.

    Attributes:
        source: its directory at the other broker, also after a move.
        clean, recovery_point, log_start_offset: from the checkpoints of the other broker.
        cleaned: up to which offset a cleaner compacted it, None for never.
    """

    topic: str
    partition: int
    source: str
    topic_id: bytes | None
    clean: bool
    recovery_point: int
    log_start_offset: int
    cleaned: int | None = None

    @property
    def name(self) -> str:
        return names.directory_name(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Ready:
    """Result of `make_ready`: the log, the leader epoch after all epochs of the log, and its largest producer id.

    `cleaned` is the offset up to which the log is compacted, None where no cleaner worked on it.
    """

    log_start_offset: int
    log_end_offset: int
    next_epoch: int
    bytes_dropped: int
    cleaned: int | None
    largest_producer_id: int


def find(disk: Disk, source: str, data: str) -> tuple[list[Candidate], list[str]]:
    """The partitions in a log directory of Apache Kafka, also those that an interrupted move has renamed.

    Returns the partitions and the names of the ignored directories. Raises AdoptionError, OSError.
    """
    unclean = checkpoints.read_clean_shutdown(disk, source)
    recovery_points, starts, cleaned = _checkpoints(disk, source)
    moved = [name.removesuffix(ADOPTING) for name in disk.list(data) if name.endswith(ADOPTING)]
    found, left_out = [], []
    for name in sorted({*disk.list(source), *moved}):
        directory, key = os.path.join(source, name), names.parse_directory_name(name)
        if name not in moved and not disk.is_dir(directory):
            continue
        if key is None or key[0] in LEFT_OUT:
            left_out.append(name)
            continue
        partition_dirs = (directory, os.path.join(data, name + ADOPTING), os.path.join(data, name))
        try:
            ids = [checkpoints.read_topic_id(disk, partition_dir) for partition_dir in partition_dirs]
        except checkpoints.BadCheckpoint as error:
            raise AdoptionError(str(error)) from error
        topic_id = next((one for one in ids if one is not None), None)
        believed = unclean is not None and key not in unclean and key in recovery_points
        candidate = Candidate(
            *key, directory, topic_id, believed, recovery_points.get(key, 0), starts.get(key, 0), cleaned.get(key)
        )
        found.append(candidate)
    return found, left_out


def _checkpoints(disk: Disk, source: str) -> list[checkpoints.Offsets]:
    """The recovery points, log starts and cleaner offsets of another broker. Raises AdoptionError, OSError."""
    files = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.CLEANER_OFFSETS)
    try:
        return [checkpoints.read_offsets(disk, os.path.join(source, name), empty=True) for name in files]
    except checkpoints.BadCheckpoint as error:
        raise AdoptionError(f"{error}; restore the file, or start and stop the broker of {source} once") from error


def of_strays(found: list[Stray]) -> list[Candidate]:
    """Return strays as candidates; all their batches above their recovery points are checked."""
    return [
        Candidate(
            one.topic, one.partition, one.directory, one.topic_id, False, one.recovery_point, one.log_start_offset,
            one.cleaned,
        )
        for one in found
    ]  # fmt: skip


def with_ids(found: list[Candidate], fresh: Callable[[], bytes]) -> list[Candidate]:
    """Add missing topic ids: that of the topic's other partitions, or a fresh one. Raises AdoptionError."""
    ids: dict[str, bytes] = {}
    for candidate in found:
        if candidate.topic_id is not None and ids.setdefault(candidate.topic, candidate.topic_id) != candidate.topic_id:
            raise AdoptionError(f"{candidate.source}: the topic id differs from that of the topic's other partitions")
    for candidate in found:
        if candidate.topic not in ids:
            ids[candidate.topic] = fresh()
    return [replace(candidate, topic_id=ids[candidate.topic]) for candidate in found]


def fetch(disk: Disk, candidate: Candidate, data: str, *, move: bool, advance: Callable[[int], object]) -> None:
    """Step 1; does nothing if it was done before. Raises AdoptionError, OSError.

    Arguments:
        disk: has both directories.
        candidate: the directory of the partition that is adopted.
        data: path of the log directory.
        move: it is renamed, not copied.
        advance: called with the number of bytes copied.
    """
    staged, partial = (os.path.join(data, candidate.name + suffix) for suffix in (ADOPTING, FETCHING))
    if disk.exists(partial):
        disk.remove_tree(partial)
    if disk.exists(staged):
        return
    _refuse_old_format(disk, candidate)
    if move:
        try:
            disk.rename(candidate.source, staged)
        except OSError as error:
            if error.errno == errno.EXDEV:
                text = "is on another file system and cannot be moved; adopt it without --move"
                raise AdoptionError(f"{candidate.source}: {text}") from error
            raise
        disk.sync_dir(os.path.dirname(candidate.source))
    else:
        disk.make_dir(partial)
        for name in disk.list(candidate.source):
            path = os.path.join(candidate.source, name)
            if disk.is_regular(path) and not name.endswith(NOT_FETCHED):
                _copy(disk, path, os.path.join(partial, name), advance)
        disk.sync_dir(partial)
        disk.rename(partial, staged)
    disk.sync_dir(data)


def _refuse_old_format(disk: Disk, candidate: Candidate) -> None:
    """Reject messages of magic 0 and 1, which recovery would treat as damage. Raises AdoptionError, OSError."""
    for name in disk.list(candidate.source):
        if name.endswith(names.LOG) and not candidate.clean:
            path = os.path.join(candidate.source, name)
            file = disk.open(path, read_only=True)
            try:
                magic = file.pread(1, MAGIC_AT)
            finally:
                file.close()
            if magic in (b"\0", b"\1"):
                text = (
                    "has messages of Apache Kafka before 0.11 and was not left cleanly; start and stop its broker once"
                )
                raise AdoptionError(f"{path}: {text}")


def _copy(disk: Disk, source: str, target: str, advance: Callable[[int], object]) -> None:
    read, written, position = disk.open(source, read_only=True), disk.open(target, create=True), 0
    try:
        while data := read.pread(CHUNK_BYTES, position):
            position += written.pwrite(data, position)
            advance(len(data))
        written.sync()
    finally:
        read.close()
        written.close()


def make_ready(disk: Disk, candidate: Candidate, data: str, config: TopicConfig) -> Ready:
    """Step 2. Raises AdoptionError, OSError."""
    assert candidate.topic_id is not None, "ids are given before"
    staged = os.path.join(data, candidate.name + ADOPTING)
    checkpoints.write_topic_id(disk, staged, candidate.topic_id)
    epoch = _last_epoch(disk, candidate.source if disk.exists(candidate.source) else staged)
    partition_dir = PartitionDirectory(
        disk, staged, candidate.topic, candidate.partition, config, candidate.clean, candidate.recovery_point,
        candidate.log_start_offset, gaps_until=candidate.cleaned or 0,
    )  # fmt: skip
    try:
        log, progress = recover(partition_dir)
    except RecoveryError as error:
        raise AdoptionError(str(error)) from error
    log.close()
    disk.sync_dir(staged)
    epochs = [epoch, log.epochs.latest]
    if log.epochs.latest < 0:
        epochs += [batch.leader_epoch for segment in log.segments for batch in segment.batches()]
    latest = max(epochs)
    for segment in log.segments:
        segment.unload()
    cleaned = None if candidate.cleaned is None else min(candidate.cleaned, log.log_end_offset)
    return Ready(
        log.log_start_offset, log.log_end_offset, latest + 1, progress.bytes_dropped, cleaned,
        largest_of(log.producers),
    )  # fmt: skip


def _last_epoch(disk: Disk, directory: str) -> int:
    """The last epoch in the checkpoint, perhaps without a record yet; -1 if it cannot be read."""
    try:
        entries = checkpoints.read_epochs(disk, os.path.join(directory, names.LEADER_EPOCH_CHECKPOINT))
    except checkpoints.BadCheckpoint:
        return -1  # recovery logs it, and reads the epochs from the batches
    return entries[-1][0] if entries else -1


def write_checkpoints(disk: Disk, data: str, ready: dict[TopicPartition, Ready]) -> None:
    """Step 3: these partitions are flushed to their ends, and compacted as far as before.

    Raises AdoptionError, OSError.
    """
    ends = {key: one.log_end_offset for key, one in ready.items()}
    starts = {key: one.log_start_offset for key, one in ready.items()}
    cleaned = {key: one.cleaned for key, one in ready.items() if one.cleaned is not None}
    files = (
        (checkpoints.RECOVERY_POINTS, ends),
        (checkpoints.LOG_STARTS, starts),
        (checkpoints.CLEANER_OFFSETS, cleaned),
    )
    for name, found in files:
        path = os.path.join(data, name)
        try:
            offsets = checkpoints.read_offsets(disk, path)
        except checkpoints.BadCheckpoint as error:
            raise AdoptionError(str(error)) from error
        checkpoints.write_offsets(disk, path, {**offsets, **found})


def install(disk: Disk, candidate: Candidate, data: str) -> None:
    """Step 4. Raises OSError."""
    final = os.path.join(data, candidate.name)
    disk.rename(final + ADOPTING, final)
    disk.sync_dir(data)


def check_space(disk: Disk, candidates: list[Candidate], data: str) -> int:
    """Return the bytes to copy. Raises DirectoryError if they do not fit, OSError."""
    size = 0
    for candidate in candidates:
        if not disk.exists(os.path.join(data, candidate.name + ADOPTING)):
            for name in disk.list(candidate.source):
                size += disk.size(os.path.join(candidate.source, name))
    free, _total = disk.free_bytes(data)
    if size > free:
        raise DirectoryError(
            f"{data}: {free:,} bytes are free, the copy needs {size:,}; free space, or use --move, which copies nothing"
        )
    return size
