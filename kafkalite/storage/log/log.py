"""The log of one partition: rolls, truncates, deletes and flushes its segments. It belongs to the loop thread.

`_speedups/storage/log_core` decides with each batch whether the segment is rolled.

1. log start <= recovery point <= log end, at all times. When the log start moves, the recovery point moves with it;
   nothing more is on the disk then, so the checkpoints contain `synced`.
2. A closed segment does not change until its deletion; the tuple of segments is replaced, not changed.
3. Work that waits for the disk (fsync, deletion, truncation) is a plan. The caller runs it as a job and applies the
   result here. While files are truncated, or the log restarts at another offset, nothing is appended.

Sources: UnifiedLog.java, LocalLog.java.
"""

import logging
import os
from collections.abc import Callable

from kafkalite._speedups.storage.file import Disk, FileRegion
from kafkalite._speedups.storage.log_core import LogCore
from kafkalite._speedups.storage.page_cache import PageCacheMiss, ReadAttempt
from kafkalite._speedups.storage.producer_state import ProducerState
from kafkalite.clock import Random
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage import file_operations, names
from kafkalite.storage.file_operations import FileOperation
from kafkalite.storage.log import flush_plan, producer_state_loader, timestamp_lookup
from kafkalite.storage.log.flush_job import FlushPlan, sync
from kafkalite.storage.log.leader_epoch_cache import LeaderEpochCache
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.log.segment_cache import SegmentCache
from kafkalite.storage.log.timestamp_lookup import Found
from kafkalite.storage.log.transaction_index import AbortedTransaction
from kafkalite.storage.log.truncation_jobs import RestartPlan, TruncationPlan, finish_truncation

OFFSET_MAX = 2**63 - 1
UNWRITTEN_EPOCH = -2  # of no batch: the next write adds or writes the leader epoch
SMALL_LOG = 64 << 10  # bytes, whose headers a start reads as quickly as a snapshot
LOGGER = logging.getLogger("kafkalite.storage.log.log")


class Log(LogCore):
    """The batches of one partition in its segments.

    Arguments:
        disk: the disk port.
        directory: of the partition; exists.
        topic, partition: the name and index of the partition.
        config: the settings of the topic; assign to replace them.
        segments: from recovery, at least one; appends go to the last one.
        epochs: leader epochs from recovery.
        log_start_offset, recovery_point: from the checkpoints; limited to the range of the segments.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        config: TopicConfig,
        segments: list[Segment],
        epochs: LeaderEpochCache,
        log_start_offset: int = 0,
        recovery_point: int = 0,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.root = os.path.dirname(directory)
        self.topic = topic
        self.partition = partition
        self._random: Random | None = None
        self.before_truncation: Callable[[Log, int], None] = ignore
        self.config = config
        self.epochs = epochs
        self.segments = tuple(segments)
        self.active = segments[-1]
        self.cache: SegmentCache | None = None
        self.truncations = 0
        self.rolls_flushed = 0
        self.last_flush = 0.0  # monotonic seconds
        self.moving = False  # while it is replaced by its copy in another log directory: only `log_move` touches files
        self.due_snapshots: dict[int, bytes] = {}
        self.may_have_snapshots = True  # in its directory
        self.complete_state: tuple[int, ...] | None = None
        self._truncation_offset = OFFSET_MAX
        self._aborts: tuple[tuple[Segment, ...], list[Segment]] | None = None
        self.on_error: Callable[[Log, OSError], object] = report
        self.on_roll: Callable[[Log], object] = nothing
        self.log_start_offset = max(log_start_offset, segments[0].base_offset)
        self.start(max(self.active.next_offset(), self.log_start_offset), epochs.latest)
        self.synced = min(recovery_point, self.log_end_offset)  # everything below it is on the disk
        self.recovery_point = max(self.synced, self.log_start_offset)
        self.rolls = int(self.active.base_offset > self.synced)  # 1: a roll before this start was not flushed

    @property
    def config(self) -> TopicConfig:
        """The settings of the topic."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self.segment_bytes = config.segment_bytes
        self._draw_segment_ms()
        self.index_interval_bytes = config.index_interval_bytes

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def use_random(self, random: Random) -> None:
        """Reduce the age at which each segment rolls by a random time up to `segment.jitter.ms`."""
        self._random = random
        self._draw_segment_ms()

    def _draw_segment_ms(self) -> None:
        jitter_ms = min(self._config.segment_jitter_ms, self._config.segment_ms)
        less_ms = self._random.below(jitter_ms) if jitter_ms > 0 and self._random is not None else 0
        self.segment_ms = self._config.segment_ms - less_ms

    def use_cache(self, cache: SegmentCache) -> None:
        """Let `cache` decide which closed segments stay loaded."""
        self.cache = cache
        for segment in self.segments:
            segment.cache = cache
            if segment.closed and segment.file is not None:
                cache.add(segment)

    # Called by LogCore.

    def roll(self, base_offset: int) -> None:
        """Begin the next segment at `base_offset`. Raises OSError, with the log as it was.

        After another exception, too, the log has either rolled or not.
        """
        self.active.finish()
        segment = Segment(base_offset, self.directory, self.disk, self.config)
        try:
            segment.create()
            packed = self.pack_producers()
        except BaseException:
            segment.remove()  # a later roll may have another offset
            self.rolls += 1  # the next flush syncs the directory
            raise
        segment.cache, before = self.cache, self.active
        self.due_snapshots[base_offset] = packed
        before.closed = True
        self.segments = (*self.segments, segment)
        self.active = segment
        self.rolls += 1
        if self.cache is not None:
            self.cache.add(before)
        self._draw_segment_ms()
        self.on_roll(self)

    def begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Add a new leader epoch before its first batch is written. Raises OSError."""
        self.epochs.begin_write(self.log_end_offset)
        self.epochs.assign(leader_epoch, max(start_offset, self.log_start_offset))
        self.epochs.write_pending()

    def begin_leadership(self, leader_epoch: int) -> None:
        """Add a leader epoch that begins at the log end, before its first batch (Partition.makeLeader).

        It is known in memory, and the next append writes it: an election of thousands of leaders writes no file.
        """
        if leader_epoch > self.epochs.latest:
            self.epochs.begin(leader_epoch, self.log_end_offset)
            self._continue_epochs()

    def _continue_epochs(self) -> None:
        """Continue with the last leader epoch; the next write includes what the file lacks."""
        self.set_epoch(self.epochs.latest if self.epochs.is_written else UNWRITTEN_EPOCH)

    def index_aborted(self, aborted: list[tuple[int, int, int, int]]) -> None:
        """Add aborted transactions to the indexes of the segments with their markers. Raises OSError."""
        self._aborts = None
        for entry in map(AbortedTransaction._make, aborted):
            self.segment_at(entry.last_offset).transactions.append([entry])

    def write_failed(self, error: OSError) -> None:
        """Report the error of a failed write; the appends fail with KAFKA_STORAGE_ERROR."""
        self.on_error(self, error)

    def truncate_segments(self, offset: int) -> None:
        """Undo a write: remove every byte and index entry at or above `offset`, and the epochs that it has begun.

        Raises OSError.
        """
        self._truncate_segments(offset)
        if self.epochs.undo_write(offset):
            self._continue_epochs()

    def _truncate_segments(self, offset: int) -> None:
        # As LocalLog.truncateTo: a segment that begins at `offset` stays as the empty active one. So a closed segment,
        # which the cleaner may be reading, becomes active again only if this write has closed it.
        kept = [segment for segment in self.segments if segment.base_offset <= offset] or [self.segments[0]]
        dropped = self.segments[len(kept) :]
        if kept[-1].file is None:
            kept[-1].open_again()  # may fail for lack of descriptors, so before anything is removed
        if self.cache is not None:
            for segment in (kept[-1], *dropped):
                self.cache.forget(segment)
        # The last files are removed first, and the kept one is truncated last: a crash in between leaves no gap. The
        # next flush syncs the directory, which needs a descriptor; until then no offset counts as flushed.
        for segment in reversed(dropped):
            self.rolls += 1
            segment.remove()
        kept[-1].closed = False
        kept[-1].truncate(offset)
        self.segments = tuple(kept)
        self.active = kept[-1]
        self._aborts = None
        for base in [base for base in self.due_snapshots if base > offset]:
            del self.due_snapshots[base]

    # Reads by transaction, time and epoch.

    def first_unstable_offset(self, high_watermark: int) -> int:
        """First offset of the first transaction that is open, or has its end above the high watermark; -1 for none."""
        first = self.producers.first_unstable_offset(high_watermark)
        return max(first, self.log_start_offset) if first >= 0 else -1

    def aborted_transactions(
        self, start: int, end: int, attempt: ReadAttempt | None = None
    ) -> list[AbortedTransaction] | PageCacheMiss:
        """The aborted transactions that touch the offsets from `start` to below `end`.

        Arguments:
            attempt: the attempt that reads; None for a reader that waits for the disk, which has no PageCacheMiss.

        Raises OSError.
        """
        found: list[AbortedTransaction] = []
        first = self.segment_at(start)
        for segment in self._with_aborts():
            if first is None or segment.base_offset >= first.base_offset:
                if attempt is not None and not segment.transactions.in_memory:
                    miss = attempt.miss_of_unloaded(segment, segment.base_offset, 1)
                    if miss is not None:
                        return miss
                entries, more = segment.transactions.collect(start, end)
                found += entries
                if not more:
                    break
        return found

    def aborted_in(self, regions: list[FileRegion], attempt: ReadAttempt) -> list[AbortedTransaction] | PageCacheMiss:
        """The aborted transactions in the regions that this attempt has read, perhaps with some that begin after them.

        Raises OSError.
        """
        if not self._with_aborts():
            return []
        return self.aborted_transactions(attempt.offset, self.end_of(regions[-1], attempt.offset), attempt)

    def _with_aborts(self) -> list[Segment]:
        if self._aborts is None or self._aborts[0] is not self.segments:
            self._aborts = self.segments, [segment for segment in self.segments if segment.transactions]
        return self._aborts[1]

    def end_of(self, region: FileRegion, offset: int) -> int:
        """An offset above all batches in a region of a read at `offset`, from the index. Raises OSError."""
        segment = self.segment_at(offset)
        while segment is not None and segment.file is not region.file:
            segment = self.segment_after(segment)
        if segment is None:
            return self.log_end_offset
        above = segment.indexes[0].offset_from(region.offset + region.length)
        return self.end_of_segment(segment) if above is None else int(above)

    def look_up_time(self, timestamp_ms: int) -> Found | None:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp_ms`, None if all are older.

        Raises OSError, BatchError.
        """
        return timestamp_lookup.looked_up(self.search_time(timestamp_ms), timestamp_ms, self.log_start_offset)

    def search_time(self, timestamp_ms: int, *, wait: bool = True) -> timestamp_lookup.TimeSearch:
        """`look_up_time` in steps, see `timestamp_lookup.search`."""
        return timestamp_lookup.search(self.segments, self.log_start_offset, timestamp_ms, wait=wait)

    def highest_timestamp(self) -> int:
        """The highest timestamp of any record in milliseconds, -1 in an empty log."""
        return int(max(segment.max_timestamp for segment in self.segments))

    def max_timestamp(self) -> Found | None:
        """(timestamp, offset, leader epoch) of the first record with the highest timestamp; None in an empty log."""
        highest = self.highest_timestamp()
        return None if highest < 0 else self.look_up_time(highest)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, -1 if unknown."""
        return self.epochs.epoch_at(offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch up to `epoch`, its end offset); (-1, -1) if unknown (KIP-101)."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    # Changes of the log start and the log end.

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start to `offset`: 0 or a Kafka error code. The next retention check deletes the files."""
        if not 0 <= offset <= self.log_end_offset:
            return KafkaErrorCode.OFFSET_OUT_OF_RANGE
        if offset > self.log_start_offset:
            try:
                self.epochs.truncate_from_start(offset)
            except OSError as error:
                self.write_failed(error)
                return KafkaErrorCode.KAFKA_STORAGE_ERROR
            self.log_start_offset = offset
            self.recovery_point = max(self.recovery_point, offset)
        return 0

    def begin_truncation(self, offset: int) -> int:
        """Prepare a truncation to `offset`: from now on no flush and no checkpoint goes beyond it.

        Returns the offset of the truncation, the end of the last batch that stays: a batch that contains `offset` is
        removed whole, and no gap stays at the end, because recovery would report a loss. Raises OSError.
        """
        holder = next((each for each in reversed(self.segments) if each.base_offset <= offset), self.segments[0])
        location = holder.position_of_batch(offset)
        offset = min(offset, holder.next_offset() if location is None else holder.end_before(location[0]))
        self.truncations += 1
        self._truncation_offset = offset
        self.synced = min(self.synced, offset)
        return offset

    def end_truncation(self) -> None:
        """End a truncation or a restart, also a failed one."""
        self._truncation_offset = OFFSET_MAX
        self.release_appends()

    def truncate_to(self, offset: int) -> None:
        """Truncate as `truncate_files`, and wait for the disk. Raises OSError."""
        plan = self.truncate_files(offset)
        if plan is not None:
            try:
                self.end_truncation_with(finish_truncation(self.disk, plan))
            except OSError:
                self.fail()
                raise

    def truncate_files(self, offset: int) -> TruncationPlan | None:
        """Remove every batch from `offset` on, the result of `begin_truncation`, after the checkpoints were lowered.

        The returned plan is executed by a job (`finish_truncation`), and its result given to `end_truncation_with`;
        until then nothing is appended. At or above the log end nothing but a leader epoch without batches is removed,
        and there is no plan: it is of a leadership of this broker in which it wrote nothing, and the next leader does
        not know it (UnifiedLog.truncateTo).

        Raises OSError; then the log has failed, or is unchanged.
        """
        assert self.pending_bytes == 0, "a truncation needs a log without queued appends"
        if offset >= self.log_end_offset:
            self._truncate_epochs(self.log_end_offset)
            return None
        assert self.synced <= offset, "the recovery point was lowered to the offset of the truncation"
        self.before_truncation(self, offset)
        self.truncations += 1
        self.hold_appends()
        try:
            count = len(self.segments)
            self._truncate_segments(offset)
            self._truncate_epochs(offset)
        except OSError:
            self.fail()
            raise
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.start(offset, self.epochs.latest)
        self._continue_epochs()
        segments = [(segment.base_offset, segment.size) for segment in self.segments]
        removed = len(segments) < count
        return TruncationPlan(self.directory, self.config, offset, removed, self.active.opened, segments)

    def _truncate_epochs(self, end_offset: int) -> None:
        self.epochs.truncate_from_end(end_offset)
        self._continue_epochs()

    def end_truncation_with(self, producers: ProducerState) -> None:
        """End a truncation: these are the producers at the new log end."""
        self.replace_producers(producers)
        self.end_truncation()

    def begin_restart(self, offset: int) -> None:
        """Prepare a restart at `offset`: from now on no flush and no checkpoint goes beyond it or the old segments."""
        self.truncations += 1
        self._truncation_offset = self.synced = min(self.synced, offset, self.segments[0].base_offset)

    def restart_files(self, offset: int, log_start_offset: int | None = None) -> RestartPlan:
        """Remove all batches and begin with an empty segment at `offset`, after the checkpoints were lowered.

        The returned plan is executed by a job (`restart`), and then `end_restart` is called; until then nothing is
        appended. Readers that have regions of the old files keep them.

        Arguments:
            offset: of the segment, given to `begin_restart`.
            log_start_offset: at or above `offset`, where it lies within the first batch that will be appended; the log
                end is there, too, until then. None: `offset`.

        Raises OSError; then the log has failed, or is unchanged.
        """
        assert self.pending_bytes == 0, "a restart needs a log without queued appends"
        start = offset if log_start_offset is None else log_start_offset
        assert 0 <= offset <= start, "the log start is in the new segment"
        self.before_truncation(self, 0)
        segment = Segment(offset, self.directory, self.disk, self.config)
        segment.suffix = names.WORK
        segment.create()
        self.truncations += 1
        self.hold_appends()
        plan = RestartPlan(self.directory, self.epochs.path, self.bases(), segment.path(names.LOG), offset)
        if self.cache is not None:
            for old in self.segments:
                self.cache.forget(old)
        segment.cache = self.cache
        self.segments, self.active = (segment,), segment
        self.producers.clear()
        self.due_snapshots.clear()
        self._aborts = None
        self.epochs.clear()
        self.log_start_offset = self.recovery_point = start
        self.start(start, self.epochs.latest)
        return plan

    def end_restart(self, offset: int) -> None:
        """The job of a restart has ended: the empty segment at `offset` is on the disk."""
        self.active.suffix = ""
        self.synced = offset
        self.rolls_flushed = self.rolls
        self.epochs.written = self.epochs.flushed = self.epochs.version
        self.end_truncation()

    def drop_first(self, count: int) -> list[Segment]:
        """Remove the first `count` segments from the log; running reads still use them."""
        dropped, self.segments = list(self.segments[:count]), self.segments[count:]
        if self.cache is not None:
            for segment in dropped:
                self.cache.forget(segment)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.recovery_point = max(self.recovery_point, self.log_start_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        return dropped

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Replace consecutive closed segments by a compacted one; running reads still use the old ones.

        The new segment stays loaded until `segment_swapped_in`, because its files are still to be renamed.
        """
        first = self.segments.index(old[0])
        behind = first + len(old)
        assert self.segments[first:behind] == tuple(old) and old[-1] is not self.active, "a run of closed segments"
        if self.cache is not None:
            for segment in old:
                self.cache.forget(segment)
        self.segments = (*self.segments[:first], new, *self.segments[behind:])
        self.complete_state = None  # the close removes the producer snapshots of the replaced segments

    def segment_swapped_in(self, new: Segment) -> None:
        """Allow the cache to unload a compacted segment, because its files have their final names."""
        new.cache = self.cache
        if self.cache is not None and new in self.segments:
            self.cache.add(new)

    # Flushes: a plan for a job, and its result.

    @property
    def rolled(self) -> bool:
        """Whether a segment was closed since the last flush of closed segments."""
        return self.rolls > self.rolls_flushed

    @property
    def needs_snapshot(self) -> bool:
        """Whether a clean stop writes a producer snapshot. Without any, a start reads the producers from all batches:
        a log without producers and with few batches needs none.
        """
        small = len(self.segments) == 1 and self.active.size <= SMALL_LOG
        return self.may_have_snapshots or len(self.producers) > 0 or not small

    def expire_producers(self, now_ms: int, silent_ms: int) -> None:
        """Remove the producers that appended nothing for `silent_ms`; their batches would restore them."""
        self.may_have_snapshots = self.may_have_snapshots or len(self.producers) > 0
        self.producers.expire(now_ms, silent_ms)

    def take_due_snapshots(self) -> dict[int, bytes]:
        """Packed producers by offset, of each roll since the last call, for `producer_state_loader.write_snapshots`."""
        due, self.due_snapshots = self.due_snapshots, {}
        self.may_have_snapshots = self.may_have_snapshots or bool(due)
        return due

    def bases(self) -> list[int]:
        """Base offsets of the segments."""
        return [segment.base_offset for segment in self.segments]

    def plan_flush(self, *, active: bool = True) -> FlushPlan:
        """A plan for a flush; without `active`, of closed segments only."""
        return flush_plan.flush_plan(self, active=active)

    def apply_flush(self, plan: FlushPlan) -> bool:
        """Apply the success of a plan; False if the log was truncated since, so that the plan has no effect.

        The recovery point of a deleted or offline log does not move. Raises OSError.
        """
        if plan.truncations != self.truncations:
            if not self.failed:
                producer_state_loader.remove(self.disk, self.directory, plan.snapshots)
            return False
        if self.failed:
            return True
        self.synced = max(self.synced, min(plan.offset, self.log_end_offset, self._truncation_offset))
        self.recovery_point = max(self.recovery_point, self.synced)
        self.rolls_flushed = max(self.rolls_flushed, plan.rolls)
        self.epochs.flushed = max(self.epochs.flushed, plan.epochs)
        return True

    def not_flushed(self, plan: FlushPlan) -> None:
        """Add the files of a plan to the next one, because its job lacked descriptors."""
        if plan.truncations == self.truncations:
            self.due_snapshots = {**plan.snapshots, **self.due_snapshots}
        if self.active.transactions.path in plan.paths:
            self.active.transactions.unsynced = True

    def finish(self) -> tuple[FlushPlan, list[FileOperation]]:
        """Return the last writes of small files, and the plan after which the log can be opened without recovery.

        What is larger, and only in memory, is written here. Raises OSError.
        """
        writes = self.active.finish_with_others()
        self.epochs.write_pending()
        return flush_plan.closing_plan(self), writes

    def close(self) -> None:
        """Write indexes and producers, sync all. Raises OSError."""
        plan, writes = self.finish()
        file_operations.apply_all(self.disk, writes)
        sync(self.disk, [plan])
        self.apply_flush(plan)

    @property
    def complete(self) -> bool:
        """Whether all files are on the disk as after a clean stop, so that `close` has nothing to do."""
        return self.complete_state == self._state

    def note_complete(self) -> None:
        """Mark all files as on the disk, as after a clean stop."""
        self.complete_state = self._state

    @property
    def _state(self) -> tuple[int, int, int, int, int]:
        """Changes with every change of a file of the log or of its lines in the checkpoints."""
        return self.log_end_offset, self.synced, self.rolls, self.truncations, self.epochs.version


def report(log: Log, error: OSError) -> None:
    """Log a failed write; for a log without a manager."""
    state = "the log is offline" if log.failed else "the batches were removed"
    LOGGER.error("%s-%d: write failed, %s: %s", log.topic, log.partition, state, error)


def nothing(log: Log) -> None:
    """Do nothing at a roll: the user of a log without a manager flushes it."""


def ignore(log: Log, offset: int) -> None:
    """Do nothing before a truncation."""
