"""Decides which segments of a log expire, and removes them from the log.

1. Decisions have no side effects. Deletion renames the files to `.deleted` at once and removes them after
   file.delete.delay.ms.
2. Only whole segments are deleted, from the log start on, and never beyond the high watermark.
3. Without "delete" in cleanup.policy, only segments below the log start are deleted.
4. While a config that decides about deletion cannot be read, nothing is deleted.

A policy of the application may delete further segments: `user_retention_policy`.

Sources: UnifiedLog.deleteOldSegments, LocalLog.deleteSegmentFiles.
"""

import itertools
import os

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.transient_errors import is_transient


def count_expired(log: Log, now_ms: int | None, high_watermark: int) -> int:
    """Number of first segments of `log` that are expired.

    Arguments:
        log: whose config is used.
        now_ms: wall time, None = no segment expires by its age.
        high_watermark: a segment that ends above it stays.
    """
    if log.config.unreadable:
        return 0
    excess = log.size - log.config.retention_bytes if log.config.retention_bytes >= 0 else -1
    count = 0
    for segment, following in itertools.pairwise([*log.segments, None]):
        end = log.log_end_offset if following is None else following.base_offset
        if end > high_watermark or (following is None and segment.size == 0):
            break
        by_size = excess >= segment.size
        if not (_below_start(log, following) or (_policy(log) and (by_size or _too_old(log, segment, now_ms)))):
            break
        excess -= segment.size
        count += 1
    return count


def _policy(log: Log) -> bool:
    return "delete" in log.config.cleanup_policy


def _below_start(log: Log, following: Segment | None) -> bool:
    return following is not None and following.base_offset <= log.log_start_offset


def _too_old(log: Log, segment: Segment, now_ms: int | None) -> bool:
    if now_ms is None or log.config.retention_ms < 0:
        return False
    newest = segment.max_timestamp
    if newest < 0:  # no record has a timestamp: rare enough for a system call
        newest = segment.disk.modified_ms(segment.path(names.LOG))
    return now_ms - newest > log.config.retention_ms


def take_first(log: Log, count: int) -> list[Segment]:
    """Remove the first segments from `log`; a new one is rolled in place of the active one. Raises OSError.

    Arguments:
        log: whose segments they are.
        count: how many; all of them end at the high watermark or below.
    """
    if count == 0:
        return []
    if count == len(log.segments):
        try:
            log.roll(log.log_end_offset)
        except OSError as error:  # on a full disk the closed segments are deleted nevertheless
            if not is_transient(error):
                raise
            count -= 1
    return log.drop_first(count) if count else []


def mark_deleted(segments: list[Segment]) -> list[str]:
    """Job: rename the files to `.deleted`; return their paths. Raises OSError."""
    return [path for segment in segments for path in segment.mark_deleted()]


def remove_directory(disk: Disk, path: str) -> None:
    """Job: remove a partition's directory that was renamed before; a missing one is ignored. Raises OSError.

    The new name is synced first: a power cut must not restore the old name with half of the files.
    """
    try:
        disk.sync_dir(os.path.dirname(path))
        disk.remove_tree(path)
    except FileNotFoundError:
        return


def remove_now(disk: Disk, directory: str, deleted: str) -> None:
    """Job: remove the directory of a partition on a disk without space to rename it to `-delete`. Raises OSError.

    The first removals free space, so the rename is tried again. Until then a segment and the topic id stay: a start
    after a kill identifies the topic, and continues.
    """
    found = [] if os.path.islink(directory) else disk.list(directory)  # the files behind a link are not the broker's
    first = next((name for name in found if name.endswith(names.LOG)), None)
    for name in found:
        if name not in (first, names.PARTITION_METADATA):
            disk.remove(os.path.join(directory, name))
    try:
        disk.rename(directory, deleted)
    except OSError as error:
        if not is_transient(error):
            raise
        deleted = directory
    remove_directory(disk, deleted)
