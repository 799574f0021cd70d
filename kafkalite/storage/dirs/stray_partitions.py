"""Renames and keeps stray partitions: directories of topics that the coordination service does not have.

A stray partition keeps its checkpoint entries in checkpoints in its own directory, so that it can be adopted later,
even if another partition has its name by then. They also contain the full name of the topic, which the directory name
may lack.

Sources: LogManager.loadLog and LogManager.asyncDelete (Kafka renames strays and never deletes them).
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.model import TopicPartition
from kafkalite.storage import checkpoints, names

CheckpointOffsets = tuple[int, int]  # recovery point and log start


class Stray(NamedTuple):
    """A stray directory.

    `topic_id` is None where partition.metadata is missing or damaged; `size` are the bytes of its segments; `cleaned`
    is the offset up to which the cleaner compacted it, None for never.
    """

    directory: str
    topic: str
    partition: int
    topic_id: bytes | None
    recovery_point: int
    log_start_offset: int
    size: int
    cleaned: int | None

    @property
    def name(self) -> str:
        """The name of the directory."""
        return os.path.basename(self.directory)


def rename(
    disk: Disk, directory: str, key: TopicPartition, offsets: CheckpointOffsets, unique: str, cleaned: int | None
) -> str:
    """Make the directory of a partition a stray; the caller syncs the log directory. Raises OSError.

    Arguments:
        disk: has the directory.
        directory: its path.
        key: topic and partition.
        offsets: of the partition in the checkpoints.
        unique: 32 hex digits.
        cleaned: its entry in the cleaner's checkpoint, None for none.

    Result: the new path.
    """
    recovery_point, log_start = offsets
    own = {checkpoints.RECOVERY_POINTS: recovery_point, checkpoints.LOG_STARTS: log_start}
    if cleaned is not None:
        own[checkpoints.CLEANER_OFFSETS] = cleaned
    for name, offset in own.items():
        checkpoints.write_offsets(disk, os.path.join(directory, name), {key: offset}, sync=bool(offset))
    renamed = os.path.join(os.path.dirname(directory), names.stray_directory_name(*key, unique))
    disk.rename(directory, renamed)
    return renamed


def find(disk: Disk, log_dir: str) -> list[Stray]:
    """The strays in a log directory, by name, those too whose adoption was interrupted. Raises OSError."""
    found = []
    for name in sorted(disk.list(log_dir)):
        directory = os.path.join(log_dir, name)
        key = names.parse_stray_directory_name(name) or _interrupted(disk, directory, name)
        if key is not None and disk.is_dir(directory):
            found.append(_read(disk, directory, key))
    return found


def with_offsets(disk: Disk, directories: Iterable[str], key: TopicPartition, topic_id: bytes) -> Stray | None:
    """Return a stray of a partition that has records, or has had some; None = there is none.

    Arguments:
        directories: of strays.
        key, topic_id: of the partition.

    Raises OSError.
    """
    for directory in directories:
        named = names.parse_stray_directory_name(os.path.basename(directory))
        if named is None or named[1] != key[1] or not key[0].startswith(named[0]):
            continue  # the topic may be shortened in the name
        stray = _read(disk, directory, named)
        if stray.topic_id == topic_id and (stray.size or stray.recovery_point or stray.log_start_offset):
            return stray
    return None


def _interrupted(disk: Disk, directory: str, name: str) -> TopicPartition | None:
    """Topic and partition of a stray whose adoption was interrupted; partitions of other brokers lack checkpoints."""
    if name.endswith(names.ADOPTING) and disk.exists(os.path.join(directory, checkpoints.RECOVERY_POINTS)):
        return names.parse_directory_name(name.removesuffix(names.ADOPTING))
    return None


def forget(disk: Disk, directory: str) -> None:
    """Remove the checkpoints of a stray that was adopted. Raises OSError."""
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.CLEANER_OFFSETS):
        path = os.path.join(directory, name)
        if disk.exists(path):
            disk.remove(path)


def _read(disk: Disk, directory: str, named: TopicPartition) -> Stray:
    offsets = _offsets(disk, directory, checkpoints.RECOVERY_POINTS)
    key = next((key for key in offsets if key[1] == named[1] and key[0].startswith(named[0])), named)
    starts = _offsets(disk, directory, checkpoints.LOG_STARTS)
    cleaned = _offsets(disk, directory, checkpoints.CLEANER_OFFSETS)
    try:
        topic_id = checkpoints.read_topic_id(disk, directory)
    except checkpoints.BadCheckpoint:
        topic_id = None
    size = bytes_in(disk, directory)
    return Stray(directory, *key, topic_id, offsets.get(key, 0), starts.get(key, 0), size, cleaned.get(key))


def _offsets(disk: Disk, directory: str, name: str) -> checkpoints.Offsets:
    """A checkpoint of a stray. Strays of Apache Kafka have none; a damaged one counts as missing: all is checked."""
    try:
        return checkpoints.read_offsets(disk, os.path.join(directory, name))
    except checkpoints.BadCheckpoint:
        return {}


def bytes_in(disk: Disk, directory: str) -> int:
    """Bytes of the segments in a partition's directory. Raises OSError."""
    logs = [name for name in disk.list(directory) if name.endswith(names.LOG)]
    return sum(disk.size(os.path.join(directory, name)) for name in logs)
