"""Recovers the Log of a partition directory. It runs as a job and uses only its arguments.

1. After a clean stop, only checkpoints and the ends of files are read; the batches are not validated.
2. Otherwise every batch from the segment of the recovery point on is validated; the log ends before the first bad one.
3. Nothing below the recovery point is removed; a missing or corrupt index is rebuilt from the batches.
4. Removed bytes are logged. A segment that overlaps the previous one, or follows missing offsets that were not flushed,
   is renamed to `.aside`: the earlier segment is kept, because no flush is acknowledged before the removals and
   truncations that precede it are on the disk.
5. Producers and transactions are those of the newest valid snapshot and of every batch after it.

Sources: LogLoader.java, LogSegment.recover.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.index import CorruptIndexError
from kafkalite._speedups.storage.producer_state import ProducerState
from kafkalite._speedups.storage.recovery_scan import SegmentScan, scan
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names
from kafkalite.storage.checkpoints import LOG_STARTS, BadCheckpoint
from kafkalite.storage.log import producer_state_loader as producer_states
from kafkalite.storage.log import segment_swap
from kafkalite.storage.log.index_entries import TIME_ENTRY
from kafkalite.storage.log.leader_epoch_cache import EpochRun, LeaderEpochCache, epoch_runs
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.recovery.dry_run import DryDisk
from kafkalite.storage.transient_errors import is_transient

WORK_SUFFIXES = (names.DELETED, names.CLEANED, names.WORK)
SET_ASIDE = ".aside"
NOTHING = -1
OFFSET_MAX = 2**63 - 1
LOGGER = logging.getLogger("kafkalite.storage.recovery.recover_log")


class RecoveryError(ValueError):
    """The log of a directory cannot be recovered; the message contains the file and the reason."""


def ignore(_bytes: int) -> None:
    """Ignore the progress."""


@dataclass(slots=True)
class PartitionDirectory:
    """One partition's directory, and its entries in the checkpoints of the log directory.

    Attributes:
        advance: called with the bytes of the validated batches.
        gaps_until: below this offset a gap between two segments comes from a cleaner, not from a loss.
        high_watermark: its entry in the checkpoint, -1 for none.
        keep_gaps: segments after missing offsets are kept, whatever the recovery point is.
    """

    disk: Disk
    directory: str
    topic: str
    partition: int
    config: TopicConfig
    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    advance: Callable[[int], object] = ignore
    gaps_until: int = 0
    high_watermark: int = -1
    keep_gaps: bool = False


@dataclass(slots=True)
class RecoveryReport:
    """Result of a recovery, for the log line and the tests.

    `gaps`: offsets that are missing between two segments of a log that was never compacted: the first of them, and
    the base offset of the next segment.
    """

    batches_checked: int = 0
    bytes_dropped: int = 0
    segments_scanned: int = 0
    segments_dropped: int = 0
    set_aside: list[str] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    epochs: list[EpochRun] = field(default_factory=list)
    epochs_before: list[EpochRun] = field(default_factory=list)
    epochs_lost: bool = False


def recover(partition_dir: PartitionDirectory) -> tuple[Log, RecoveryReport]:
    """Open the log of a partition. Raises RecoveryError, OSError."""
    recovery = Recovery(partition_dir)
    return recovery.run(), recovery.progress


class Recovery:
    """Recovers the log of one partition's directory.

    Arguments:
        partition_dir: the directory, and the offset from which its batches are checked.
    """

    def __init__(self, partition_dir: PartitionDirectory) -> None:
        self.partition_dir = partition_dir
        self.progress = RecoveryReport()
        self._disk = partition_dir.disk
        self._producers = ProducerState()
        self._producers_from = 0
        self._snapshots: list[int] = []  # offsets of the snapshots in the directory when it was listed

    def run(self) -> Log:
        """The log. Raises RecoveryError, OSError."""
        partition_dir = self.partition_dir
        segments = self._segments()
        if not segments:  # the creation was interrupted, or the files were removed
            raise RecoveryError(f"{partition_dir.directory}: has no segment")
        end = producer_states.readable_until(
            segments, OFFSET_MAX if partition_dir.clean else partition_dir.recovery_point
        )
        self._producers_from = producer_states.load_snapshot(
            self._disk, partition_dir.directory, end, self._producers, self._snapshots
        )
        epochs = self._epochs(segments)
        kept = self._reach_log_start(self._check(segments))
        log = Log(
            partition_dir.disk, partition_dir.directory, partition_dir.topic,
            partition_dir.partition, partition_dir.config, kept, epochs,
            partition_dir.log_start_offset, partition_dir.recovery_point,
        )  # fmt: skip
        if partition_dir.high_watermark >= 0:
            log.high_watermark = min(max(partition_dir.high_watermark, log.log_start_offset), log.log_end_offset)
        self._recover_epochs(log)
        self._recover_producers(log)
        log.may_have_snapshots = bool(self._snapshots)
        ends_there = self._producers_from == log.log_end_offset or not log.needs_snapshot
        if partition_dir.clean and not self.progress.segments_scanned and ends_there:
            log.note_complete()
        return log

    # Finding the segments.

    def _segments(self) -> list[Segment]:
        """The segments in the directory, after finishing or removing what unfinished work left behind."""
        disk, directory = self._disk, self.partition_dir.directory
        try:
            present = segment_swap.finish(disk, directory, self.partition_dir.config)
        except segment_swap.SwapError as error:
            raise RecoveryError(str(error)) from error
        bases: list[tuple[int, str]] = []
        others: list[tuple[int, str]] = []
        for name in present:
            if name.endswith(WORK_SUFFIXES):
                disk.remove(os.path.join(directory, name))
            elif (found := names.parse_file_name(name)) is not None:
                (bases if found[1] == names.LOG else others).append(found)
        known = {base for base, _ in bases}
        for base, suffix in others:
            if suffix in names.INDEXES and base not in known:
                disk.remove(os.path.join(directory, names.file_name(base, suffix)))
        aborts = {base for base, suffix in others if suffix == names.TXN_INDEX}
        self._snapshots = sorted(base for base, suffix in others if suffix == names.SNAPSHOT)
        return [self._segment(base, base in aborts) for base in sorted(known)]

    def _segment(self, base_offset: int, aborts: bool) -> Segment:
        segment = Segment(
            base_offset, self.partition_dir.directory, self._disk, self.partition_dir.config, aborts=aborts
        )
        segment.size = self._disk.size(segment.path(names.LOG))
        return segment

    # Checking the segments.

    def _check(self, segments: list[Segment]) -> list[Segment]:
        """Check or rebuild the indexes of every segment; return the segments that are kept."""
        kept: list[Segment] = []
        waiting = deque(segments)
        while waiting:
            segment = waiting.popleft()
            segment.closed = bool(waiting)
            kept.append(segment)
            if not self._from_recovery_point(waiting):
                self._load_or_scan(segment, waiting)
            elif self._scan(segment):
                self._set_overlap_aside(segment, waiting)
                if self._look_for_gap(segment, waiting):
                    waiting.clear()
            else:
                self._drop(waiting)
                waiting.clear()
            if segment.closed and not waiting:  # the later segments were removed: this segment is active
                segment.closed = False
            if segment.closed:
                segment.unload()
        return kept

    def _from_recovery_point(self, following: Sequence[Segment]) -> bool:
        """Whether the segment before `following` may contain batches that were not flushed when the broker ended."""
        return not self.partition_dir.clean and (
            not following or following[0].base_offset > self.partition_dir.recovery_point
        )

    def _load_or_scan(self, segment: Segment, following: Sequence[Segment]) -> None:
        ended_there = self._ended_synced(following)
        if ended_there and not self._has_snapshot(following[0].base_offset):
            loaded = False
        else:
            loaded = _load_from_indexes(segment, check_times=ended_there)
        if loaded and (following or not self._ends_below_recovery_point(segment)):
            if not following or following[0].base_offset > self._producers_from:
                producer_states.replay(segment, self._producers_from, self._producers)
            if not self.partition_dir.clean and following:
                segment.unload()  # its index counts as far as the batches confirm it
                self._look_for_gap(segment, following, synced=True)
        elif not self._scan(segment, synced=True):
            raise AssertionError("_scan raises RecoveryError for a damaged segment that was synced")
        else:
            self._look_for_gap(segment, following, synced=True)

    def _ended_synced(self, following: Sequence[Segment]) -> bool:
        """Whether a segment may have been synced before it was closed: its indexes need not be on the disk."""
        return (
            bool(following)
            and following[0].base_offset == self.partition_dir.recovery_point
            and not self.partition_dir.clean
        )

    def _has_snapshot(self, offset: int) -> bool:
        """Whether the fsync batch of the segment closed at an offset succeeded: it writes the snapshot last."""
        path = os.path.join(self.partition_dir.directory, names.file_name(offset, names.SNAPSHOT))
        return self._disk.exists(path)

    def _ends_below_recovery_point(self, segment: Segment) -> bool:
        """Whether the last segment ends below the recovery point: damage, or an older copy."""
        return segment.next_offset() < self.partition_dir.recovery_point

    def _scan(self, segment: Segment, *, synced: bool = False) -> bool:
        """Validate a segment and truncate it before the first bad batch; return whether all batches were valid.

        Raises RecoveryError if the bad batch was `synced`.
        """
        found = self._rebuild_indexes(segment, self._producers)
        below = found.next_offset if found.back < 0 else min(found.next_offset, found.back)
        if not found.whole and (synced or below < self.partition_dir.recovery_point):
            path = segment.path(names.LOG)
            raise RecoveryError(f"{path}: damaged at byte {found.end}, which was flushed; the log is not truncated")
        producer_states.take_aborted(segment, self._producers_from, found.aborted)
        self.progress.segments_scanned += 1
        self.progress.batches_checked += found.batches
        self.progress.epochs += epoch_runs(found.epochs, found.next_offset)
        if found.whole and segment.closed:
            segment.finish_if_space(sync=synced)
            return True
        if not found.whole:
            self.progress.bytes_dropped += segment.opened.size() - found.end
            segment.opened.truncate(found.end)
        _write_indexes_if_space(segment)
        return found.whole

    def _look_for_gap(self, segment: Segment, following: Sequence[Segment], *, synced: bool = False) -> bool:
        """Report offsets that are missing between a segment and the next one; set aside what was not synced behind it.

        Returns whether it was. Raises OSError.

        Batches that were not synced may be missing after a power cut: the disk got the next segment, but not the end of
        this one. Below the recovery point a file was lost, and nothing is changed. Kafka does not notice either case.
        Another broker's cleaner may leave gaps; our own leaves none, as the last batch of what it writes stays.
        """
        partition_dir = self.partition_dir
        if not following or (synced and partition_dir.config.may_be_compacted):
            return False
        # Loading a segment would read its whole indexes, 5 MB for 1 GB of batches.
        end = segment.next_offset_unloaded() if segment.file is None else segment.next_offset()
        begin = next((each.base_offset for each in following if each.base_offset >= end), end)
        if begin == end or end < partition_dir.gaps_until:
            return False
        missing = f"{partition_dir.directory}: offsets {end} to {begin - 1} are missing"
        if not synced and not partition_dir.keep_gaps and end >= partition_dir.recovery_point:
            LOGGER.error("%s, and were not flushed; the rest is renamed to %s and not read", missing, SET_ASIDE)
            self._set_aside(following)
            return True
        if not partition_dir.config.may_be_compacted:
            self.progress.gaps.append((end, begin))
            step = f"`kafkalite log truncate {partition_dir.directory} --to {end}` gives up what follows"
            LOGGER.error("%s: a segment was lost; the files are unchanged. Restore it from a backup; %s", missing, step)
        return False

    def _rebuild_indexes(self, segment: Segment, producers: ProducerState | None = None) -> SegmentScan:
        """Validate all batches of a segment and rebuild its indexes in memory."""
        segment.file = self._disk.open(segment.path(names.LOG))
        size = segment.file.size()
        segment.empty_indexes()
        found = scan(segment, 0, size, self.partition_dir.config.index_interval_bytes, producers, self._producers_from)
        self.partition_dir.advance(size)
        return found

    def _set_overlap_aside(self, segment: Segment, following: deque[Segment]) -> None:
        """Rename segments that begin below the end of the previous one to a name that is not read; none is removed.

        The cause is a crash before the removal of a segment was on the disk, or a wrong copy.
        """
        end = segment.next_offset()
        while following and following[0].base_offset < end:
            overlap = following.popleft()
            LOGGER.error(
                "%s: segment overlaps the previous one (ends at %d); renamed to .aside", overlap.path(names.LOG), end
            )
            self._set_aside([overlap])

    def _set_aside(self, segments: Sequence[Segment]) -> None:
        """Rename the files of segments, the last segment first; no crash may restore them beside new records."""
        for segment in reversed(segments):
            for path in segment.files():
                self._disk.rename(path, path + SET_ASIDE)
                self.progress.set_aside.append(path + SET_ASIDE)
        self._disk.sync_dir(self.partition_dir.directory)

    def _drop(self, segments: Iterable[Segment]) -> None:
        """Remove segments, the last ones first; no later crash may restore them beside new records."""
        dropped = list(segments)
        for segment in reversed(dropped):
            self.progress.segments_dropped += 1
            self.progress.bytes_dropped += segment.size
            for path in segment.files():
                self._disk.remove(path)
        if dropped:
            self._disk.sync_dir(self.partition_dir.directory)

    def _reach_log_start(self, kept: list[Segment]) -> list[Segment]:
        """A log that ends before its own start begins again there, empty, as in Apache Kafka.

        A log start above the recovery point is rejected: it is checkpointed after the recovery point.
        """
        start, end = self.partition_dir.log_start_offset, kept[-1].next_offset()
        if start <= end:
            if not self.partition_dir.clean and end < self.partition_dir.recovery_point:
                name = self.partition_dir.directory
                LOGGER.warning(
                    "%s: the log ends at %d, but was flushed up to %d", name, end, self.partition_dir.recovery_point
                )
            return kept
        if start > self.partition_dir.recovery_point:
            starts = os.path.join(os.path.dirname(self.partition_dir.directory), LOG_STARTS)
            text = (
                f"the log ends at {end}, but starts at {start} by {starts}, which was never synced; nothing is removed"
            )
            raise RecoveryError(f"{self.partition_dir.directory}: {text}")
        LOGGER.warning(
            "%s: the log end offset %d is below the log start offset: the log is empty from %d on",
            self.partition_dir.directory,
            end,
            start,
        )
        self._drop(kept)
        producer_states.load_snapshot(self._disk, self.partition_dir.directory, NOTHING, self._producers)
        return [Segment(start, self.partition_dir.directory, self._disk, self.partition_dir.config).create()]

    # Leader epochs and producers.

    def _epochs(self, segments: list[Segment]) -> LeaderEpochCache:
        path = os.path.join(self.partition_dir.directory, names.LEADER_EPOCH_CHECKPOINT)
        try:
            epochs = LeaderEpochCache.load(self._disk, path)
            missing = self._before_epochs(epochs, segments)
        except BadCheckpoint as error:
            LOGGER.warning("%s; the leader epochs are rebuilt from the batches", error)
            epochs, missing = LeaderEpochCache(self._disk, path), segments
            self.progress.epochs_lost = True
        for segment in missing:
            found = self._rebuild_indexes(segment)
            self.progress.epochs_before += epoch_runs(found.epochs, found.next_offset)
            segment.unload()
        return epochs

    def _before_epochs(self, epochs: LeaderEpochCache, segments: list[Segment]) -> list[Segment]:
        """Segments older than the first known epoch: a crash restored an earlier log start."""
        known_from = epochs.entries[0][1] if epochs.entries else 0
        if self.partition_dir.clean or known_from <= max(self.partition_dir.log_start_offset, segments[0].base_offset):
            return []
        return [segment for segment in segments if segment.base_offset < known_from]

    def _recover_epochs(self, log: Log) -> None:
        """Rebuild the leader epochs from the checkpoint and the batches, within the log."""
        runs = [*self.progress.epochs_before, *self.progress.epochs]
        log.epochs.recover(runs, log.log_start_offset, log.log_end_offset, lost=self.progress.epochs_lost)
        log.set_epoch(log.epochs.latest)
        if self.progress.bytes_dropped and not isinstance(
            self.partition_dir.disk, DryDisk
        ):  # the command prints the changes itself
            LOGGER.warning(
                "%s-%d: truncated %d bytes and %d segments from offset %d on",
                log.topic, log.partition, self.progress.bytes_dropped, self.progress.segments_dropped,
                log.log_end_offset,
            )  # fmt: skip

    def _recover_producers(self, log: Log) -> None:
        """Give the log its producers; a snapshot beyond the log end is not used."""
        if self._producers_from > log.log_end_offset:
            log.active.transactions.truncate(log.log_end_offset)
            producer_states.rebuild(log.disk, log.directory, log.segments, log.log_end_offset, self._producers)
        if len(self._snapshots) > 1:
            producer_states.remove_stray(log.disk, log.directory, log.bases())
        log.producers = self._producers


def _write_indexes_if_space(segment: Segment) -> None:
    """Write the indexes of the active segment; on a full disk they stay in memory until it is rolled."""
    try:
        segment.write_indexes()
    except OSError as error:
        if not is_transient(error):
            raise


def _load_from_indexes(segment: Segment, *, check_times: bool) -> bool:
    """Load a segment from its indexes; return False if they do not fit the file.

    check_times: the segment may have been synced before it was closed, so the last time index entry may be missing.
    """
    try:
        if segment.closed:
            segment.max_timestamp, segment.max_timestamp_offset = _last_time(segment)
            if check_times:
                _complete_times(segment)
            return segment.disk.exists(segment.path(names.INDEX))
        segment.file = segment.disk.open(segment.path(names.LOG))
        segment.read_indexes(segment.size)
    except (CorruptIndexError, FileNotFoundError):
        segment.unload()
        return False
    segment.resume()
    begin = segment.indexes[0].look_up(segment.base_offset + 2**31)
    tail = segment.batches(begin)
    return (tail[-1].position + tail[-1].size if tail else begin) == segment.size


def _complete_times(segment: Segment) -> None:
    """Add the last entry to the time index of a closed segment if it is missing. Raises CorruptIndexError, OSError."""
    found = segment.max_timestamp
    segment.file = segment.disk.open(segment.path(names.LOG))
    segment.read_indexes(segment.size)
    segment.resume()
    if segment.max_timestamp != found:
        segment.finish_if_space(sync=True)


def _last_time(segment: Segment) -> tuple[int, int]:
    """The last entry of a time index file. Raises CorruptIndexError, OSError."""
    file = segment.disk.open(segment.path(names.TIME_INDEX), read_only=True)
    size = TIME_ENTRY.size
    entry = file.pread(size, file.size() - size) if file.size() >= size else b""
    if file.size() % size or (not entry and segment.size):
        raise CorruptIndexError("no whole entries")
    if not entry:
        return -1, segment.base_offset
    timestamp, relative_offset = TIME_ENTRY.unpack(entry)
    return timestamp, segment.base_offset + relative_offset
