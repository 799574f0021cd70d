"""Replaces segments with their compacted segment, so that a crash at any step leaves either of them complete.

The directory is synced after each step, so that no step is on the disk before the previous one:
1. The cleaned files are complete and synced as `.cleaned` (`cleaning_jobs`).
2. `make_ready`: `.cleaned` -> `.swap`, the `.log` last: a `.log.swap` means that all files of the new segment exist.
3. `retire`: the old files -> `.deleted`. From here on, readers use the new segment.
4. `swap_in`: `.swap` -> no suffix, the `.log` last: while a `.log.swap` exists, `finish` can repeat 3 and 4.
The `.deleted` files are removed after file.delete.delay.ms, or at the next start.

Sources: LogLoader.java, LocalLog.replaceSegments.
"""

import logging
import os

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.recovery_scan import scan
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names
from kafkalite.storage.log.segment import Segment

SUFFIXES = (*names.INDEXES, names.LOG)  # the log last: see above
STAGES = (names.CLEANED, names.SWAP)
WorkFile = tuple[int, str, str]  # base offset, suffix, stage
LOGGER = logging.getLogger("kafkalite.storage.log.segment_swap")


class SwapError(ValueError):
    """An interrupted swap cannot be completed; the message contains the path and the reason."""


def make_ready(cleaned: Segment) -> None:
    """Step 2. Raises OSError."""
    _rename(cleaned, names.CLEANED, names.SWAP)


def retire(old: list[Segment]) -> list[str]:
    """Step 3. Returns the new paths of the old files. Raises OSError."""
    return [path for segment in old for path in segment.mark_deleted()]


def swap_in(ready: Segment) -> None:
    """Step 4. Raises OSError."""
    _rename(ready, names.SWAP, "")


def _rename(segment: Segment, old: str, new: str) -> None:
    disk = segment.disk
    for suffix in SUFFIXES:
        name = os.path.join(segment.directory, names.file_name(segment.base_offset, suffix))
        if disk.exists(name + old):
            disk.rename(name + old, name + new)
    segment.suffix = new


def remove(segment: Segment) -> None:
    """Remove the files of a cleaned segment before step 3, with either suffix. Raises OSError."""
    for suffix in reversed(SUFFIXES):
        name = os.path.join(segment.directory, names.file_name(segment.base_offset, suffix))
        for stage in STAGES:
            if segment.disk.exists(name + stage):
                segment.disk.remove(name + stage)


def finish(disk: Disk, directory: str, config: TopicConfig) -> list[str]:
    """Complete, at the start of a broker, the swaps that were ready, and remove the work files of the others.

    A `.swap` at or above a `.cleaned` was not ready, because the renames of step 2 were not complete. An empty `.swap`
    is not from kafkalite and replaces nothing.

    Returns the names in the directory afterwards. Raises SwapError, OSError.
    """
    present = disk.list(directory)
    work = work_files(present)
    if not work:
        return present
    unready = _unready(work)
    for base in ready(work):
        if not _would_empty(disk, directory, base):
            _finish_one(disk, directory, base, config)
    for base, suffix, stage in work_files(disk.list(directory)):
        name = os.path.join(directory, names.file_name(base, suffix))
        # Apache Kafka renames the log first in step 4: perhaps only the indexes are left to rename.
        if stage == names.SWAP and base < unready and not disk.exists(name):
            disk.rename(name + stage, name)
        else:
            disk.remove(name + stage)
    disk.sync_dir(directory)
    return disk.list(directory)


def _would_empty(disk: Disk, directory: str, base: int) -> bool:
    path = os.path.join(directory, names.file_name(base, names.LOG))
    return disk.exists(path) and disk.size(path + names.SWAP) == 0


def _unready(work: list[WorkFile]) -> int:
    """The base offset from which on no segment was ready."""
    return min((base for base, _, stage in work if stage == names.CLEANED), default=2**63)


def ready(work: list[WorkFile]) -> list[int]:
    """Base offsets of the segments that were ready to replace others."""
    logs = sorted(base for base, suffix, stage in work if (suffix, stage) == (names.LOG, names.SWAP))
    return [base for base in logs if base < _unready(work)]


def work_files(present: list[str]) -> list[WorkFile]:
    """The `.cleaned` and `.swap` files among the names in a directory."""
    found = []
    for name in present:
        if not name.endswith(STAGES):
            continue
        plain, stage = os.path.splitext(name)
        parsed = names.parse_file_name(plain)
        if parsed is not None and parsed[1] in SUFFIXES:
            found.append((*parsed, stage))
    return found


def _finish_one(disk: Disk, directory: str, base: int, config: TopicConfig) -> None:
    """Repeat steps 3 and 4. The last batch shows which offsets the new segment covers; renames replace old files."""
    ready = Segment(base, directory, disk, config)
    ready.suffix = names.SWAP
    end = _end_of(ready)
    LOGGER.warning("%s: completed the interrupted swap of this compacted segment", ready.path(names.LOG))
    for name in disk.list(directory):
        found = names.parse_file_name(name)
        if found is not None and found[1] in SUFFIXES and base < found[0] < end:
            disk.remove(os.path.join(directory, name))
    transactions = os.path.join(directory, names.file_name(base, names.TXN_INDEX))
    if disk.exists(os.path.join(directory, names.file_name(base, names.LOG))) and disk.exists(transactions):
        disk.remove(transactions)  # the new segment may have none
    disk.sync_dir(directory)
    swap_in(ready)
    disk.sync_dir(directory)


def _end_of(ready: Segment) -> int:
    """The end offset of a segment that was completely synced. Raises SwapError."""
    ready.file = ready.disk.open(ready.path(names.LOG))
    size = ready.file.size()
    ready.empty_indexes()
    found = scan(ready, 0, size, ready.interval)
    ready.unload()
    if not found.whole:
        raise SwapError(f"{ready.path(names.LOG)}: damaged at byte {found.end}, which was flushed; nothing is replaced")
    return found.next_offset
