"""Jobs that change the files of a log: the end of a truncation, and the restart at another offset.

A job gets a plan, and uses nothing of the log. Appends, retention, flushes and moves of the log wait meanwhile
(`storage.truncation`); reads do not.

Sources: UnifiedLog.truncateTo, truncateFullyAndStartAt; ProducerStateManager.truncateFullyAndStartAt.
"""

import os
from dataclasses import dataclass

from kafkalite._speedups.storage.file import Disk, File
from kafkalite._speedups.storage.producer_state import ProducerState
from kafkalite._speedups.storage.recovery_scan import note_producers
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import checkpoints, names
from kafkalite.storage.log import producer_state_loader
from kafkalite.storage.log.producer_snapshots import snapshot_offsets
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.transient_errors import lacks_descriptors


@dataclass(slots=True)
class TruncationPlan:
    """What is left to do after the batches of a log were removed.

    Attributes:
        directory, config: of the partition.
        end_offset: the new log end.
        segments_removed: whether names in the directory have changed.
        active: the file of the last segment.
        segments: (base offset, bytes) of each segment, oldest first.
    """

    directory: str
    config: TopicConfig
    end_offset: int
    segments_removed: bool
    active: File
    segments: list[tuple[int, int]]


def finish_truncation(disk: Disk, plan: TruncationPlan) -> ProducerState:
    """Job: sync the truncated file and the directory; return the producers at the new log end. Raises OSError.

    Without a descriptor for the directory, the next flush syncs it.
    """
    if plan.segments_removed:
        try:
            disk.sync_dir(plan.directory)
        except OSError as error:
            if not lacks_descriptors(error):
                raise
    plan.active.sync()  # otherwise old records could follow those of a new segment
    return read_producers(disk, plan)


def read_producers(disk: Disk, plan: TruncationPlan) -> ProducerState:
    """Job: the producers by the newest snapshot, and the headers of the batches behind it; later snapshots are removed.

    Raises OSError.
    """
    producers = ProducerState()
    from_offset = producer_state_loader.load_snapshot(disk, plan.directory, plan.end_offset, producers)
    ends = [*(base for base, _ in plan.segments[1:]), plan.end_offset]
    for (base_offset, size), end in zip(plan.segments, ends, strict=True):
        if end > from_offset:
            segment = Segment(base_offset, plan.directory, disk, plan.config)
            segment.empty_indexes()
            segment.size = size
            segment.file = disk.open(segment.path(names.LOG), read_only=True)
            try:
                note_producers(segment, from_offset, producers)
            finally:
                segment.file.close()
    return producers


@dataclass(slots=True)
class RestartPlan:
    """The files of a log that restarts empty.

    Attributes:
        directory: of the partition.
        epochs: the path of the leader epochs.
        bases: base offsets of the old segments, oldest first.
        new: the path of the new, empty segment under its work name.
        offset: its base offset.
    """

    directory: str
    epochs: str
    bases: list[int]
    new: str
    offset: int


def restart(disk: Disk, plan: RestartPlan) -> None:
    """Job: replace all segments by the new one. Raises OSError.

    After a crash between any two steps the log is a prefix of the old one, or empty at its start, or empty at the new
    offset; recovery accepts each, as the checkpoints were lowered before. The last segments are removed first. The new
    file then replaces the first one under its name, and gets its own name last, when nothing of the old log is left.
    """

    def path(base_offset: int, suffix: str) -> str:
        return os.path.join(plan.directory, names.file_name(base_offset, suffix))

    first, *others = plan.bases
    for base_offset in reversed(others):
        _remove(disk, [path(base_offset, suffix) for suffix in (names.LOG, *names.INDEXES)])
    disk.sync_dir(plan.directory)
    disk.rename(plan.new, path(first, names.LOG))
    _remove(disk, [path(first, suffix) for suffix in names.INDEXES])
    _remove(disk, [path(offset, names.SNAPSHOT) for offset in snapshot_offsets(disk, plan.directory)])
    checkpoints.write_epochs(disk, plan.epochs, [], sync=True)
    disk.sync_dir(plan.directory)
    if first != plan.offset:
        disk.rename(path(first, names.LOG), path(plan.offset, names.LOG))
        disk.sync_dir(plan.directory)


def _remove(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        if disk.exists(path):
            disk.remove(path)
