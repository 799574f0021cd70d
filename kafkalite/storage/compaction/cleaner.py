"""Compacts logs: chooses the dirtiest log, runs its cleaning, and stores up to which offset each log is clean.

1. Everything runs on the loop except the jobs of `cleaning_jobs`. A log is in at most one cleaning.
2. Truncation, deletion and a failed log directory abort the cleaning first; retention leaves the log alone meanwhile.
3. A log with damaged batches is not cleaned again until it is recreated; this is logged once.
4. `cleaner-offset-checkpoint` never contains an offset above the clean part; a lower one costs time only. It contains a
   log before its first cleaning begins, so that a reader of the directory knows that the log may have gaps.
5. A full disk costs time only.

Sources: LogCleaner.scala (CleanerThread), LogCleanerManager.scala, LogCleaner.cleanerConfig.
"""

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from kafkalite._speedups.compaction.compactor import Worker
from kafkalite._speedups.compaction.input import CleaningAbortedError, UncleanableSegmentError
from kafkalite._speedups.compaction.offset_map import OffsetMap
from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Clock, Offload, Outcome, Random, Timer
from kafkalite.model import TopicPartition
from kafkalite.slicing import visit_in_slices
from kafkalite.storage import checkpoints, names
from kafkalite.storage.compaction.cleaning_jobs import CleaningPlan
from kafkalite.storage.compaction.cleaning_run import CleaningRun, OutOfSpaceError
from kafkalite.storage.compaction.log_to_clean import LogToClean, cleanable, stable_offset
from kafkalite.storage.compaction.throttle import Throttle
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.log.log import Log

MAP_BYTES_MIN = 4096
LOAD_FACTOR_MIN = 0.01
LOGGER = logging.getLogger("kafkalite.storage.compaction.cleaner")


class CleanerConfig(NamedTuple):
    """The keys `log.cleaner.*`: threads, bytes of all maps, bytes of all buffers, load factor of a map, ms between
    checks, bytes per second."""

    threads: int = 1
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    backoff_ms: int = 15_000
    io_max_bytes_per_second: float = float("inf")


class CleanerLogs(Protocol):
    """The part of the log manager that the cleaner uses."""

    disk: Disk
    holds: DirectoriesInUse

    def all(self) -> list[Log]: ...
    def find(self, topic: str, partition: int) -> Log | None: ...
    def directories(self) -> list[str]: ...
    def is_online(self, path: str) -> bool: ...
    def take_offline(self, path: str, error: OSError) -> None: ...
    def report_disk_error(self, path: str, error: OSError) -> None: ...
    def remove_later(self, log: Log, paths: list[str]) -> None: ...
    def flush_closed(self, log: Log, done: Callable[[int], object]) -> None: ...


class CleanerSlot:
    """One cleaner thread: its memory and its current cleaning."""

    def __init__(self, config: CleanerConfig, secret: bytes, throttle: Throttle | None) -> None:
        share = max(config.dedupe_buffer_size // config.threads, MAP_BYTES_MIN)
        load_factor = min(max(config.io_buffer_load_factor, LOAD_FACTOR_MIN), 1.0)
        self.stopped = threading.Event()
        wait = throttle.waiter(self.stopped) if throttle is not None else None
        self.worker = Worker(OffsetMap(secret, share, load_factor), config.io_buffer_size // config.threads // 2, wait)
        self.run: CleaningRun | None = None
        self.waiting = False  # for the checkpoint; the cleaner run has not started
        self.freeing = False  # the memory of its map, in a job: giving back 128 MiB takes 10 ms
        self.release: Callable[[], None] = nothing  # allows a new log in the directory
        self.began = 0.0

    def prepare(self, now: float) -> None:
        """Reset the slot for the next log."""
        self.stopped.clear()
        self.worker.reset()
        self.began = now

    def abort(self, *, touch: bool) -> None:
        """Abort the running cleaning. Raises OSError."""
        self.stopped.set()
        if self.run is not None:
            self.run.abort(touch=touch)


class LogCleaner:
    """The cleaner of a broker.

    Arguments:
        logs: the log manager.
        clock, random: for timers; for the hash secrets of the maps.
        offload: threads of its own, `config.threads` of them.
        config: see CleanerConfig; `threads` is at least 1.
    """

    def __init__(
        self, logs: CleanerLogs, clock: Clock, offload: Offload, random: Random, config: CleanerConfig
    ) -> None:
        limited = config.io_max_bytes_per_second < float(2**63)
        throttle = Throttle(config.io_max_bytes_per_second, clock.monotonic) if limited else None
        self.uncleanable: dict[TopicPartition, str] = {}
        self._logs = logs
        self._clock = clock
        self._offload = offload
        self._config = config
        self._slots = [CleanerSlot(config, random.bytes(16), throttle) for _ in range(config.threads)]
        self._clean_until: dict[str, dict[TopicPartition, int]] = defaultdict(dict)  # by log directory
        self._due: list[Log] = []  # found by the last check of all logs, the dirtiest last
        self._checking = False
        self._named: dict[str, set[TopicPartition]] = defaultdict(set)  # by the checkpoints on the disk
        self._writing: set[str] = set()
        self._to_write: set[str] = set()
        self._timer: Timer | None = None
        self._closed = False
        self._high_watermark_of: Callable[[Log], int] = lambda log: log.log_start_offset

    def start(self, high_watermark_of: Callable[[Log], int]) -> None:
        """Read the checkpoints, and start the periodic check for logs to clean."""
        self._high_watermark_of = high_watermark_of
        for path in self._logs.directories():
            if self._logs.is_online(path):
                self._read(path)
        self._timer = self._clock.call_at(self._clock.monotonic(), self._tick)

    def close(self) -> None:
        """Abort all cleanings; a running job ends with its next outcome. Close the offload afterwards."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for slot in self._slots:
            self._abort(slot, touch=True)

    def clean_until(self, log: Log) -> int | None:
        """The first dirty offset as it will be checkpointed, None before the first cleaning."""
        return self._clean_until[log.root].get(_key(log))

    def is_busy(self, log: Log) -> bool:
        """Whether a log is being cleaned: then only the cleaner removes segments of it."""
        return self._slot_of(log) is not None

    # Truncation, deletion and failure of logs.

    def release(self, log: Log, *, touch: bool = True) -> None:
        """Abort the cleaning of a log that is about to be truncated or deleted, or whose directory failed."""
        slot = self._slot_of(log)
        if slot is not None:
            self._abort(slot, touch=touch)

    def truncated(self, log: Log, offset: int) -> None:
        """Prepare for the truncation of a log to `offset`. After an OSError the log must not be truncated."""
        slot = self._slot_of(log)
        if slot is not None:
            self._stop(slot, touch=True)
        clean_until = self._clean_until[log.root]
        if clean_until.get(_key(log), -1) > offset:
            clean_until[_key(log)] = offset
            self._write(log.root)

    def forget(self, log: Log, *, touch: bool = True) -> None:
        """Stop cleaning a log that is not managed any more; without `touch`, its files are not changed."""
        self.release(log, touch=touch)
        self.uncleanable.pop(_key(log), None)
        self._named[log.root].discard(_key(log))
        if self._clean_until[log.root].pop(_key(log), None) is not None:
            self._write(log.root)

    def relocated(self, log: Log, old_root: str) -> None:
        """A log was moved from another log directory."""
        self._named[old_root].discard(_key(log))
        clean_until = self._clean_until[old_root].pop(_key(log), None)
        if clean_until is not None:
            self._clean_until[log.root][_key(log)] = clean_until
            self._write(log.root)
            self._write(old_root)

    def _slot_of(self, log: Log) -> CleanerSlot | None:
        return next((slot for slot in self._slots if slot.run is not None and slot.run.log is log), None)

    def _abort(self, slot: CleanerSlot, *, touch: bool) -> None:
        try:
            self._stop(slot, touch=touch)
        except OSError as error:
            assert slot.run is not None
            self._logs.report_disk_error(slot.run.log.root, error)

    def _stop(self, slot: CleanerSlot, *, touch: bool) -> None:
        """Abort the cleaning of a slot. Raises OSError."""
        if slot.waiting:
            self._ended(slot, CleaningAbortedError())
        else:
            slot.abort(touch=touch)

    # Choosing the logs to clean.

    def _tick(self) -> None:
        unwritten, self._to_write = self._to_write, set()
        for path in unwritten:
            self._write(path)
        for slot in self._slots:
            if slot.run is not None:
                slot.run.retry()
        self._check_all()
        delay = max(self._config.backoff_ms, 1) / 1000
        self._timer = self._clock.call_at(self._clock.monotonic() + delay, self._tick)

    def _check_all(self) -> None:
        """Check every log, in slices, and start a cleaner run of the dirtiest ones on each free thread."""
        if self._checking or not any(self._is_free(slot) for slot in self._slots):
            return
        self._checking = True
        found: list[tuple[float, Log]] = []

        def visit(log: Log) -> None:
            if (each := self.due(log)) is not None:
                found.append((each.ratio, log))

        visit_in_slices(self._clock, self._logs.all(), visit, partial(self._checked, found))

    def _checked(self, found: list[tuple[float, Log]]) -> None:
        self._checking = False
        found.sort(key=lambda each: each[0])
        self._due = [log for _, log in found]
        if not self._closed:
            self._fill_slots()

    def _fill_slots(self) -> None:
        """Start cleaner runs of the dirtiest logs of the last check that are still due."""
        for slot in filter(self._is_free, self._slots):
            chosen = None
            while self._due and chosen is None:
                chosen = self.due(self._due.pop())
            if chosen is None:
                break
            self._begin(slot, chosen)

    def _is_free(self, slot: CleanerSlot) -> bool:
        return slot.run is None and not slot.freeing

    def due(self, log: Log) -> LogToClean | None:
        """Return the cleanable part of a log; None if the log is not due."""
        found = self._look_at(log) if self._may_clean(log) else None
        return found if found is not None and found.due else None

    def _may_clean(self, log: Log) -> bool:
        if (
            not log.config.compacted
            or log.config.unreadable
            or log.failed
            or log.moving
            or _key(log) in self.uncleanable
            or self.is_busy(log)
        ):
            return False
        if len(log.segments) == 1 or self.clean_until(log) == log.active.base_offset:  # nothing is dirty
            return False
        return self._logs.is_online(log.root) and self._logs.find(*_key(log)) is log

    def _look_at(self, log: Log) -> LogToClean | None:
        stable = stable_offset(log, self._high_watermark_of(log))
        try:
            return cleanable(log, self.clean_until(log), stable, self._clock.wall_ms())
        except OSError as error:
            self._logs.report_disk_error(log.root, error)
            return None

    def _begin(self, slot: CleanerSlot, chosen: LogToClean) -> None:
        log = chosen.log
        plan = CleaningPlan(
            self._logs.disk, log.directory, log.config, chosen.segments, chosen.first_dirty, chosen.upper_offset,
            self._clock.wall_ms(),
            tuple((segment.base_offset, segment.path(names.TXN_INDEX)) for segment in log.segments),
            tuple((each.producer_id, each.last_offset, each.epoch) for each in log.producers),
        )  # fmt: skip
        slot.prepare(self._clock.monotonic())
        slot.run = CleaningRun(
            log, plan, slot.worker, self._offload,
            flush=self._logs.flush_closed, removed=lambda paths: self._logs.remove_later(log, paths),
            waits=lambda error: self._logs.report_disk_error(log.root, error),
            ended=lambda _, end: self._ended(slot, end),
        )  # fmt: skip
        slot.release = self._logs.holds.enter(log.directory)
        if _key(log) in self._named[log.root]:
            slot.run.start()
        else:
            slot.waiting = True
            self._clean_until[log.root].setdefault(_key(log), chosen.first_dirty)
            self._write(log.root)

    def _ended(self, slot: CleanerSlot, end: int | Exception) -> None:
        done = slot.run
        assert done is not None
        slot.run, slot.waiting = None, False
        slot.release()
        log = done.log
        if isinstance(end, int):
            self._succeeded(slot, done, end)
        elif isinstance(end, OSError):
            self._logs.take_offline(log.root, end)
        elif isinstance(end, OutOfSpaceError):
            LOGGER.error("%s-%d: compaction failed, retrying later: %s", log.topic, log.partition, end)
        elif isinstance(end, UncleanableSegmentError):
            self._give_up(log, str(end))
        if self._closed:
            return
        slot.freeing = True
        again = isinstance(end, (int, UncleanableSegmentError))
        self._offload.run(slot.worker.offsets.clear, done=partial(self._freed, slot, again))

    def _freed(self, slot: CleanerSlot, again: bool, outcome: Outcome) -> None:
        slot.freeing = False
        outcome.result()
        if not again or self._closed:
            return
        if self._due:
            self._fill_slots()
        else:
            self._check_all()

    def _give_up(self, log: Log, reason: str) -> None:
        LOGGER.error("%s-%d is excluded from compaction: %s", log.topic, log.partition, reason)
        self.uncleanable[_key(log)] = reason

    def _succeeded(self, slot: CleanerSlot, done: CleaningRun, end: int) -> None:
        log, worker = done.log, slot.worker
        if end <= done.plan.first_dirty:
            self._give_up(log, "a single batch has more keys than log.cleaner.dedupe.buffer.size can hold")
            return
        self._clean_until[log.root][_key(log)] = end
        self._write(log.root)
        seconds = self._clock.monotonic() - slot.began
        LOGGER.info(
            "%s-%d: compacted offsets %d to %d in %.1f s: %.1f MB in, %.1f MB out, %d of %d records kept",
            log.topic, log.partition, done.plan.first_dirty, end, seconds, worker.bytes_read / 1e6,
            worker.bytes_written / 1e6, worker.records_kept, worker.records_read,
        )  # fmt: skip
        if worker.keyless:
            LOGGER.warning("%s-%d: %d records without a key were dropped", log.topic, log.partition, worker.keyless)

    # Checkpoints.

    def _read(self, path: str) -> None:
        try:
            found = checkpoints.read_offsets(self._logs.disk, os.path.join(path, checkpoints.CLEANER_OFFSETS))
        except checkpoints.BadCheckpoint as error:
            LOGGER.warning("%s; all compacted logs in the directory are cleaned again", error)
            return
        except OSError as error:
            self._logs.report_disk_error(path, error)
            return
        ends = {_key(log): log.log_end_offset for log in self._logs.all() if log.root == path}
        kept = {key: offset for key, offset in found.items() if offset <= ends.get(key, -1)}
        self._clean_until[path].update(kept)
        self._named[path] = set(kept)
        if kept != found:  # a deletion was interrupted; a new partition of that name has no clean part
            self._write(path)

    def _write(self, path: str) -> None:
        """Write the checkpoint of a directory, one job at a time; after `close` it stays as it is."""
        if path in self._writing:
            self._to_write.add(path)
            return
        if self._closed or not self._logs.is_online(path):
            return
        self._writing.add(path)
        offsets = dict(self._clean_until[path])
        file = os.path.join(path, checkpoints.CLEANER_OFFSETS)

        done = partial(self._written, path, set(offsets))
        self._offload.run(checkpoints.write_offsets, self._logs.disk, file, offsets, done=done)

    def _written(self, path: str, named: set[TopicPartition], outcome: Outcome) -> None:
        self._writing.discard(path)
        waiting = [slot for slot in self._slots if slot.waiting and slot.run is not None]
        waiting = [slot for slot in waiting if slot.run is not None and slot.run.log.root == path]
        if isinstance(outcome.error, OSError):
            self._to_write.add(path)  # retried by the next `_tick`
            for slot in waiting:
                self._ended(slot, OutOfSpaceError(str(outcome.error)))
            self._logs.report_disk_error(path, outcome.error)
            return
        outcome.result()
        self._named[path] = named & self._clean_until[path].keys()
        for slot in waiting:
            if slot.run is not None and _key(slot.run.log) in self._named[path]:
                slot.waiting = False
                slot.run.start()
        if path in self._to_write:
            self._to_write.discard(path)
            self._write(path)


def nothing() -> None:
    """Do nothing: the slot has not run yet."""


def _key(log: Log) -> TopicPartition:
    return TopicPartition(log.topic, log.partition)
