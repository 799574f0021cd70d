"""Checks the invariants of storage/README.md offline, on the files of a log directory; nothing is changed.

1. Every violation is reported with the number of the invariant, the file and the byte; the check then continues.
2. What a crash may leave above the recovery point (a torn tail, old indexes) is reported, too: the invariants are those
   of a log that is open or was closed cleanly. A start repairs it.
3. The caller holds the lock of the directory.

Sources: DumpLogSegments.scala, LogLoader.java (what a start requires).
"""

import os
from collections.abc import Callable, Iterator, Sequence, Set

from kafkalite._speedups.storage.file import Disk
from kafkalite.model import TopicPartition
from kafkalite.storage import checkpoints, names
from kafkalite.storage.dirs.log_directory import DirectoryError, LogDirectory
from kafkalite.storage.verify.verify_files import (
    check_aborted,
    check_epochs,
    check_offset_index,
    check_snapshot,
    check_time_index,
)
from kafkalite.storage.verify.verify_producers import check_kept, check_producers
from kafkalite.storage.verify.verify_segments import (
    NOWHERE,
    OFFSET_MAX,
    Advance,
    Batches,
    SegmentReader,
    Violation,
    base_offset,
)
from kafkalite.storage.verify.verify_swaps import check_swaps
from kafkalite.storage.verify.verify_transaction_state import TRANSACTION_STATE, check_transaction_states

START_POINT_END = 1
DIRECTORY_IS_KNOWN = 9
NO_LEFTOVERS = 10
IDS_AGREE = 14
CHECKPOINTS_READ = 15
COMPACTED_TOPICS = ("__consumer_offsets", TRANSACTION_STATE)
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
WORK_SUFFIXES = (names.CLEANED, names.SWAP, names.WORK)


def verify_log(
    disk: Disk,
    directory: str,
    *,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    below_end: Sequence[tuple[str, int]] = (),
    compacted: bool = False,
    gaps_until: int = OFFSET_MAX,
    clean: bool = False,
    advance: Advance = lambda _bytes: None,
) -> list[Violation]:
    """Check the directory of one partition.

    Arguments:
        recovery_point, log_start_offset: the checkpointed offsets; None for no entry.
        below_end: other checkpointed offsets that may not be beyond the log end, with their names.
        compacted: gaps between offsets are normal.
        gaps_until: where it is compacted, gaps between segments are normal below this offset only.
        clean: the broker stopped cleanly, so there is no unfinished work and every index is on the disk.
        advance: called with the bytes read, for a progress bar.

    Returns the violations in the order of the files. Raises OSError.
    """
    check = _LogCheck(disk, directory, compacted=compacted, gaps_until=gaps_until, clean=clean, advance=advance)
    offsets_to_check = [("recovery point", recovery_point), ("log start", log_start_offset), *below_end]
    return [*check.segments(), *check.others(log_start_offset or 0), *check.offsets_to_check(dict(offsets_to_check))]


class _LogCheck:
    """Checks the directory of one partition."""

    def __init__(
        self, disk: Disk, directory: str, *, compacted: bool, gaps_until: int, clean: bool, advance: Advance
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._compacted = compacted
        self._clean = clean
        self._advance = advance
        self._reader = SegmentReader(disk, compacted=compacted, gaps_until=gaps_until, advance=advance)
        self._names = sorted(disk.list(directory))
        self._read: list[Batches] = []

    @property
    def log_end(self) -> int:
        return max((batches.next_offset for batches in self._read), default=0)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def segments(self) -> Iterator[Violation]:
        """Check every segment with its indexes."""
        logs = [name for name in self._names if name.endswith(names.LOG) and names.parse_file_name(name)]
        if not logs:
            yield Violation(NO_LEFTOVERS, self._directory, NOWHERE, "has no segment")
        for name in logs:
            batches = Batches(self._path(name), base_offset(name))
            self._read.append(batches)
            yield from self._reader.read(batches.path, batches)
            yield from self._indexes(batches, closed=name != logs[-1])

    def _indexes(self, batches: Batches, *, closed: bool) -> Iterator[Violation]:
        for suffix in names.INDEXES:
            name = names.file_name(batches.base_offset, suffix)
            path, stable = self._path(name), closed or self._clean
            if name not in self._names:
                if stable and suffix != names.TXN_INDEX and batches.size:
                    yield Violation(NO_LEFTOVERS, path, NOWHERE, "is missing")
            elif suffix == names.INDEX:
                yield from check_offset_index(self._disk, path, batches, preallocated=not stable)
            elif suffix == names.TIME_INDEX:
                yield from check_time_index(self._disk, path, batches, closed=stable, preallocated=not stable)
            else:
                yield from check_aborted(self._disk, path, batches)

    def others(self, log_start: int) -> Iterator[Violation]:
        """Check snapshots, leader epochs, the topic id, and files that should not exist."""
        bases = {batches.base_offset for batches in self._read}
        snapshots: dict[int, str] = {}
        for name in self._names:
            path, found = self._path(name), names.parse_file_name(name)
            if self._clean and name.endswith(WORK_SUFFIXES):
                yield Violation(NO_LEFTOVERS, path, NOWHERE, "unfinished work, though the last end was clean")
            elif found is not None and found[1] in names.INDEXES and found[0] not in bases:
                yield Violation(NO_LEFTOVERS, path, NOWHERE, f"an index without its {found[0]:020d}{names.LOG}")
            elif found is not None and found[1] == names.SNAPSHOT:
                snapshots[found[0]] = path
                yield from check_snapshot(self._disk, path, self.log_end)
            elif name == names.LEADER_EPOCH_CHECKPOINT:
                yield from check_epochs(self._disk, path, self._read, log_start, self.log_end)
        if self._clean:
            yield from check_kept(snapshots, bases)
        else:
            yield from check_swaps(self._disk, self._directory, self._names, self._advance)
        yield from check_producers(self._disk, self._directory, self._read, snapshots, compacted=self._compacted)
        yield from check_transaction_states(self._disk, self._directory, self._read)
        yield from self._topic_id()

    def _topic_id(self) -> Iterator[Violation]:
        try:
            checkpoints.read_topic_id(self._disk, self._directory)
        except checkpoints.BadCheckpoint as error:
            path = self._path(names.PARTITION_METADATA)
            yield Violation(IDS_AGREE, path, NOWHERE, str(error).removeprefix(f"{path}: "))

    def offsets_to_check(self, offsets_to_check: dict[str, int | None]) -> Iterator[Violation]:
        """Check the checkpointed offsets against the log."""
        for name, offset in offsets_to_check.items():
            if offset is not None and not 0 <= offset <= self.log_end:
                text = f"its {name} is {offset}, but the log ends at {self.log_end}"
                yield Violation(START_POINT_END, self._directory, NOWHERE, text)
        start, recovery_point_offset = offsets_to_check["log start"], offsets_to_check["recovery point"]
        if start is not None and recovery_point_offset is not None and start > recovery_point_offset:
            text = f"its log start {start} is above the recovery point {recovery_point_offset}"
            yield Violation(START_POINT_END, self._directory, NOWHERE, text)


def verify_directory(
    disk: Disk,
    log_dir: str,
    *,
    only: str | None = None,
    compacted: bool = False,
    compacted_topics: Set[str] = frozenset(),
    advance: Advance = lambda _bytes: None,
) -> list[Violation]:
    """Check a log directory: its own files, and every partition in it.

    Arguments:
        disk: has the files.
        log_dir: path of the directory.
        only: the name of one partition's directory: check nothing but this one.
        compacted: gaps between offsets are normal everywhere, not only where a cleaner was.
        compacted_topics: topics with cleanup.policy=compact: gaps are normal there, without a checkpoint, too.
        advance: called with the bytes read.

    Raises OSError.
    """
    offsets: dict[str, checkpoints.Offsets] = {}
    found = list(_own_files(disk, log_dir, offsets))
    if only is not None:
        found = [violation for violation in found if violation.number == CHECKPOINTS_READ]
    cleaned = offsets[CLEANER_OFFSETS]
    compacted_topics = compacted_topics | set(COMPACTED_TOPICS)

    def gaps_until(key: TopicPartition) -> int | None:
        if compacted or (key not in cleaned and key[0] in compacted_topics):
            return OFFSET_MAX
        return cleaned.get(key)

    return [*found, *_partitions(disk, log_dir, offsets, only, gaps_until, advance)]


def _own_files(disk: Disk, log_dir: str, offsets: dict[str, checkpoints.Offsets]) -> Iterator[Violation]:
    try:
        found = LogDirectory(disk, log_dir)
        found.format_version(fresh=found.identity() is None)
    except DirectoryError as error:
        yield Violation(DIRECTORY_IS_KNOWN, log_dir, NOWHERE, str(error))
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS, CLEANER_OFFSETS):
        path = os.path.join(log_dir, name)
        try:
            offsets[name] = checkpoints.read_offsets(disk, path, empty=True)
        except checkpoints.BadCheckpoint as error:
            offsets[name] = {}
            yield Violation(CHECKPOINTS_READ, path, NOWHERE, str(error).removeprefix(f"{path}: "))


def _partitions(
    disk: Disk,
    log_dir: str,
    offsets: dict[str, checkpoints.Offsets],
    only: str | None,
    gaps_until: Callable[[TopicPartition], int | None],
    advance: Advance,
) -> Iterator[Violation]:
    """Check partitions; `gaps_until`: below which offset gaps between segments are normal, None for no gap anywhere."""
    unclean = checkpoints.read_clean_shutdown(disk, log_dir)
    others = checkpoints.HIGH_WATERMARKS, CLEANER_OFFSETS
    ids: dict[str, tuple[bytes, str]] = {}
    for name in sorted(disk.list(log_dir)) if only is None else [only]:
        directory, key = os.path.join(log_dir, name), names.parse_directory_name(name)
        if key is None or names.is_deleted_directory(name) or not disk.is_dir(directory):
            continue
        until = gaps_until(key)
        yield from verify_log(
            disk,
            directory,
            recovery_point=offsets[checkpoints.RECOVERY_POINTS].get(key),
            log_start_offset=offsets[checkpoints.LOG_STARTS].get(key),
            below_end=[(n, offsets[n][key]) for n in others if key in offsets[n]],
            compacted=until is not None,
            gaps_until=OFFSET_MAX if until is None else until,
            clean=unclean is not None and key not in unclean,
            advance=advance,
        )
        yield from _same_id(disk, directory, key[0], ids)


def _same_id(disk: Disk, directory: str, topic: str, ids: dict[str, tuple[bytes, str]]) -> Iterator[Violation]:
    try:
        topic_id = checkpoints.read_topic_id(disk, directory)
    except checkpoints.BadCheckpoint:
        return  # reported by verify_log
    if topic_id is None:
        return
    known, where = ids.setdefault(topic, (topic_id, directory))
    if known != topic_id:
        yield Violation(IDS_AGREE, directory, NOWHERE, f"has another topic id than {where}")
