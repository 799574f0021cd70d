"""All logs of this broker in its log directories: found, made, deleted, checkpointed, aged.

Laws:
1. Only the loop thread calls this, but for `create`, which is a job.
2. A failed fsync or checkpoint takes its directory offline; the other directories serve on.
3. The mark of a clean end is written last, after every log and every checkpoint; it is removed before anything is read.

Sources: LogManager.scala.
"""

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from kafkalite._speedups.file import Disk
from kafkalite.clock import Clock, Offload, Outcome, Random, Timer
from kafkalite.config.topic import TopicConfig
from kafkalite.model import uuid_text
from kafkalite.storage import checkpoints, names, points, retention
from kafkalite.storage.cleaner import LogCleaner
from kafkalite.storage.clock_jump import PAUSE_MS, ClockWatch
from kafkalite.storage.directories import DirectoryError, Identity, LogDirectory
from kafkalite.storage.flusher import Flusher
from kafkalite.storage.indexes import SegmentCache
from kafkalite.storage.loading import Loaded, load_directories
from kafkalite.storage.log import Log
from kafkalite.storage.space import SpaceWatch
from kafkalite.storage.syncing import JobSyncer, Syncer
from kafkalite.storage.trouble import is_transient
from kafkalite.storage.walk import nothing, walk

HighWatermark = Callable[[Log], int]
NEVER_MS = 2**63 - 1
NOTED_S = 60.0
SPACE_CHECK_MS = 10_000
logger = logging.getLogger(__name__)


class LogManager:
    """The log directories of one broker.

    Arguments:
        disk: the disk port.
        paths: of the log directories.
        clock, offload, random: time, jobs and names of deleted directories.
        syncs: carries out the rounds that acknowledgements wait for; jobs of `offload` where it is not given.
        cache: bounds what closed segments hold.
        on_offline: called with the logs of a directory that failed.
    """

    def __init__(
        self,
        disk: Disk,
        paths: Sequence[str],
        clock: Clock,
        offload: Offload,
        random: Random,
        *,
        syncs: Syncer | None = None,
        cache: SegmentCache | None = None,
        on_offline: Callable[[list[Log]], None] | None = None,
    ) -> None:
        self.disk = disk
        self.cache = cache or SegmentCache()
        self.on_offline = on_offline
        self.cleaner: LogCleaner | None = None
        self.topic_ids: dict[tuple[str, int], bytes | None] = {}
        self._clock = clock
        self._offload = offload
        self._random = random
        self._directories = {directory.path: directory for directory in (LogDirectory(disk, path) for path in paths)}
        self._logs: dict[tuple[str, int], Log] = {}
        self._gone: set[tuple[str, int]] = set()  # deleted; the checkpoints on the disk may still name them
        self._counts: Counter[str] = Counter()  # logs by directory, those under way included
        self._others: dict[str, checkpoints.Points] = defaultdict(dict)
        self._refused: set[str] = set()
        self._timers: list[Timer] = []
        self._clock_watch = ClockWatch(clock)
        self._space_watch = SpaceWatch(disk, offload, self.note)
        self._files = points.PointFiles(disk, offload, self._settled)
        self._noted: dict[str, float] = {}  # when trouble of a directory was last spoken of
        # What nobody waits for has rounds of its own: an acknowledgement does not wait for a gigabyte of others.
        jobs = JobSyncer(disk, offload)
        self.flusher = Flusher(disk, clock, syncs or jobs, self.fail)
        self._unhurried = Flusher(disk, clock, jobs, self.fail)
        self._closed = Flusher(disk, clock, jobs, self.fail, active=False)
        self._duplicates = 0  # of logs that were forgotten
        self.producer_silent_ms = 0  # given by `start`; may be assigned

    # Start and end.

    def lock(self) -> None:
        """Make and lock every directory; one whose disk fails is offline. Raises DirectoryError, with none locked.

        A directory that another broker holds is refused, whatever the others are.
        """
        try:
            self._on_each(LogDirectory.lock)
        except DirectoryError:
            self.unlock()
            raise

    def _on_each(self, do: Callable[[LogDirectory], object]) -> None:
        """Do something with each directory that is online; its OSError takes it offline.

        Raises DirectoryError where none is left, and what `do` raises besides."""
        online = [directory for directory in self._directories.values() if directory.online]
        for directory in online:
            try:
                do(directory)
            except OSError as error:
                directory.error = error
        self._see_one_online()
        for directory in online:
            if not directory.online:
                logger.error("%s; it stays offline", directory.why_offline())

    def _see_one_online(self) -> None:
        if not self.any_online:
            raise DirectoryError("; ".join(directory.why_offline() for directory in self._directories.values()))

    def unlock(self) -> None:
        """Release every directory."""
        for directory in self._directories.values():
            directory.unlock()

    def identity(self) -> Identity | None:
        """Whose directories these are; None where all are new. Raises DirectoryError."""
        known: dict[str, Identity | None] = {}
        self._on_each(lambda directory: known.update({directory.path: directory.identity()}))
        found = {identity for identity in known.values() if identity is not None}
        if len(found) > 1:
            raise DirectoryError(f"the log directories belong to different brokers: {', '.join(sorted(known))}")
        return next(iter(found), None)

    def check(self, identity: Identity) -> None:
        """See that no directory is another's or too new, before anything is changed. Raises DirectoryError."""
        self._on_each(lambda directory: directory.check(identity))

    def claim(self, identity: Identity) -> None:
        """Make every directory ours, each with an id of its own. Raises DirectoryError."""
        self._on_each(lambda directory: directory.claim(identity, uuid_text(self._random.uuid())))
        ids = [directory.directory_id for directory in self._directories.values() if directory.online]
        if len(set(ids)) < len(ids):
            raise DirectoryError(f"two log directories have one directory.id, one is a copy: {', '.join(sorted(ids))}")

    def load(self, config_of: Callable[[str], TopicConfig], threads: int = 2) -> list[Loaded]:
        """Recover every log of every directory, `threads` at a time in each; blocks. `config_of`: of a topic name.

        Answers what was found, for the lines at start. Raises DirectoryError; an OSError takes its directory offline.
        """
        online = [path for path, directory in self._directories.items() if directory.online]
        results = load_directories(self.disk, online, config_of, threads)
        for loaded in results:
            for log in loaded.logs:
                if self.find(log.topic, log.partition) is not None:
                    raise DirectoryError(f"{log.directory}: this partition is in another log directory, too")
                self.topic_ids[log.topic, log.partition] = loaded.topic_ids.get(log.directory)
                self.add(log)
            for path in loaded.to_delete:
                self._offload.run(retention.remove_directory, self.disk, path, done=self._removed)
            if loaded.refused:
                self._refused.add(loaded.path)
            self._others[loaded.path].update(loaded.points_of_refused)
            if loaded.error is not None:
                self.fail(loaded.path, loaded.error)
        self._gone.update(*(loaded.gone for loaded in results))
        self._see_one_online()
        return results

    def start(
        self,
        high_watermark_of: HighWatermark,
        *,
        checkpoint_ms: int = 60_000,
        starts_ms: int = 60_000,
        retention_ms: int = 300_000,
        flush_check_ms: int = NEVER_MS,
        initial_ms: int = 30_000,
        jump_pause_ms: int = PAUSE_MS,
        producer_check_ms: int = 600_000,
        producer_silent_ms: int = 86_400_000,
    ) -> None:
        """Begin the periodic work; intervals in milliseconds."""
        self._clock_watch = ClockWatch(self._clock, jump_pause_ms)
        self._repeat(0, SPACE_CHECK_MS, self.check_space)
        self._repeat(initial_ms, checkpoint_ms, self.checkpoint)
        self._repeat(initial_ms, starts_ms, self.checkpoint_starts)
        if flush_check_ms < NEVER_MS:
            self._repeat(initial_ms, flush_check_ms, self.flush_due)
        self._repeat(initial_ms, retention_ms, lambda: self.check_retention(high_watermark_of))
        self.producer_silent_ms = producer_silent_ms
        self._repeat(producer_check_ms, producer_check_ms, lambda: self.check_producers(self.producer_silent_ms))
        if self.cleaner is not None:
            self.cleaner.start(high_watermark_of)

    def _repeat(self, first_ms: int, every_ms: int, work: Callable[[], None]) -> None:
        slot = len(self._timers)

        def run() -> None:
            work()
            self._timers[slot] = self._clock.call_at(self._clock.monotonic() + max(every_ms, 1) / 1000, run)

        self._timers.append(self._clock.call_at(self._clock.monotonic() + first_ms / 1000, run))

    def finish_flushes(self) -> None:
        """Bring to the disk what was asked for; from now on that is done at once."""
        for flusher in (self.flusher, self._unhurried, self._closed):
            flusher.finish()
        self._files.close()

    def close(self) -> None:
        """Write and sync everything, then the checkpoints, then the clean mark; blocks. Failures are logged."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for directory in self._directories.values():
            if not directory.online:
                continue
            try:
                logs = self.logs_of(directory.path)
                for log in logs:
                    log.close()
                points.write_both(self.disk, directory.path, self._others[directory.path], logs)
                if directory.path not in self._refused:  # what is damaged is to be seen at the next start, too
                    checkpoints.write_clean_shutdown(self.disk, directory.path)
            except OSError as error:
                self.fail(directory.path, error)

    # Look-ups.

    def find(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, None where this broker has none."""
        return self._logs.get((topic, partition))

    def all(self) -> list[Log]:
        """Every log."""
        return list(self._logs.values())

    def logs_of(self, path: str) -> list[Log]:
        """The logs in a directory."""
        return [log for log in self._logs.values() if self.directory_of(log) == path]

    def directories(self) -> list[str]:
        """Absolute paths of the log directories."""
        return list(self._directories)

    def directory_of(self, log: Log) -> str:
        """The log directory a log lies in."""
        return log.root

    def is_online(self, path: str) -> bool:
        return self._directories[path].online

    @property
    def any_online(self) -> bool:
        """Whether a log directory is left to work with."""
        return any(directory.online for directory in self._directories.values())

    def directory_id(self, path: str) -> str:
        """What `meta.properties` calls a log directory: it stays the same wherever the directory is moved to."""
        return self._directories[path].directory_id

    def describe_directory(self, noted: str) -> str:
        """A log directory for people, by the id (in old notes: the path) under which it was noted."""
        for path, directory in self._directories.items():
            if noted in (path, directory.directory_id):
                return path if directory.online else f"{path}, which is offline"
        return f"a log directory that is not here ({noted})"

    def space(self, path: str) -> tuple[int, int]:
        """(total, free) bytes of the file system of a log directory. Raises OSError."""
        return self._directories[path].space()

    def choose_directory(self) -> str | None:
        """The directory with the fewest logs; None where all are offline."""
        online = [path for path, directory in self._directories.items() if directory.online]
        return min(online, key=self._counts.__getitem__, default=None)

    def take_place(self, path: str) -> None:
        """A log is about to be made there; `give_back_place` once it is added or given up."""
        self._counts[path] += 1

    def give_back_place(self, path: str) -> None:
        """See `take_place`."""
        self._counts[path] -= 1

    # Making and deleting.

    def create(self, path: str, topic: str, partition: int, topic_id: bytes, config: TopicConfig) -> Log:
        """Job: make the files of a new partition in a log directory; `add` the result. Raises OSError."""
        directory = os.path.join(path, names.directory_name(topic, partition))
        log = Log.create(self.disk, directory, topic, partition, config)
        checkpoints.write_topic_id(self.disk, log.directory, topic_id)
        self.disk.sync_dir(path)
        return log

    def add(self, log: Log) -> None:
        """Look after a log from now on."""
        assert (log.topic, log.partition) not in self._logs, "a partition has one log"
        self._logs[log.topic, log.partition] = log
        self._counts[self.directory_of(log)] += 1
        log.last_flush = self._clock.monotonic()
        log.on_error = self._log_failed
        log.use_cache(self.cache)
        log.use_random(self._random)
        log.before_truncation = self._before_truncation
        left = self._others[log.root].pop((log.topic, log.partition), None)
        if left is not None or (log.topic, log.partition) in self._gone:
            # What the checkpoints say of files that are gone, or were left alone, must not count for new ones.
            self._gone.discard((log.topic, log.partition))
            for name, lines in points.both_lines(self._others[log.root], self.logs_of(log.root)):
                self._files.write(log.root, name, lines)

    def _before_truncation(self, log: Log, offset: int) -> None:
        if self.cleaner is not None:
            self.cleaner.truncated(log, offset)

    @property
    def duplicates(self) -> int:
        """Batches of idempotent producers that were here before and were answered with their first offset."""
        return self._duplicates + sum(log.producers.duplicates for log in self._logs.values())

    def forget(self, log: Log) -> None:
        """Look after a log no more; its files stay."""
        if self.cleaner is not None:
            self.cleaner.forget(log)
        if self._logs.pop((log.topic, log.partition), None) is not None:
            self._duplicates += log.producers.duplicates
            self._counts[self.directory_of(log)] -= 1
        self.topic_ids.pop((log.topic, log.partition), None)
        for segment in log.segments:
            self.cache.forget(segment)

    def leave_alone(self, log: Log) -> None:
        """Look after a log no more; its files and what the checkpoints say of it stay."""
        self._others[self.directory_of(log)][log.topic, log.partition] = log.synced, log.log_start_offset
        self.forget(log)

    def delete(self, log: Log) -> None:
        """Rename the directory of a log now, remove it after file.delete.delay.ms. Regions in flight stay readable."""
        self.forget(log)
        self._gone.add((log.topic, log.partition))
        parent = self.directory_of(log)
        name = names.deleted_directory_name(log.topic, log.partition, self._random.bytes(16).hex())
        deleted = os.path.join(parent, name)
        try:
            self.disk.rename(log.directory, deleted)
        except OSError as error:
            self.note(parent, error)
            if self.is_online(parent):  # no room for a longer name
                self._offload.run(retention.remove_directory, self.disk, log.directory, done=self._removed)
            return
        self._after(log.config.file_delete_delay_ms, retention.remove_directory, self.disk, deleted)

    def remove_later(self, log: Log, paths: list[str]) -> None:
        """Remove `.deleted` files of a log after file.delete.delay.ms."""
        self._after(log.config.file_delete_delay_ms, retention.remove_files, self.disk, paths)

    def _after(self, delay_ms: int, job: Callable[..., object], *args: object) -> None:
        when = self._clock.monotonic() + delay_ms / 1000
        self._clock.call_at(when, lambda: self._offload.run(job, *args, done=self._removed))

    def _removed(self, outcome: Outcome) -> None:
        if isinstance(outcome.error, OSError):
            logger.error("cannot remove deleted files, they stay until the next start: %s", outcome.error)
        elif outcome.error is not None:
            raise outcome.error

    # Periodic work.

    def _walk(self, visit: Callable[[Log], object], then: Callable[[], object] = nothing) -> None:
        """Visit every log that is still here when its turn comes."""

        def guarded(log: Log) -> None:
            if self.find(log.topic, log.partition) is log:
                visit(log)

        walk(self._clock, self.all(), guarded, then)

    def check_retention(self, high_watermark_of: HighWatermark) -> None:
        """Take expired segments out of every log and delete their files in the background."""
        now_ms = self._clock_watch.look()
        self._walk(lambda log: self._retain(log, now_ms, high_watermark_of))

    def _retain(self, log: Log, now_ms: int | None, high_watermark_of: HighWatermark) -> None:
        if log.failed or log.pending_bytes or not self.is_online(log.root):
            return
        if self.cleaner is not None and self.cleaner.is_busy(log):
            return
        try:
            segments = retention.take_expired(log, now_ms, high_watermark_of(log))
        except OSError as error:
            self.note(log.root, error)
            return
        if segments:
            self._offload.run(retention.mark_deleted, segments, done=partial(self._marked, log))

    def check_producers(self, silent_ms: int) -> None:
        """Let every log forget the idempotent producers that appended nothing for `silent_ms`."""
        now_ms = int(self._clock.monotonic() * 1000)
        self._walk(lambda log: log.producers.expire(now_ms, silent_ms))

    def check_space(self) -> None:
        """Say when a log directory is nearly full."""
        for path, directory in self._directories.items():
            if directory.online:
                self._space_watch.look(path)

    def _marked(self, log: Log, outcome: Outcome) -> None:
        if isinstance(outcome.error, FileNotFoundError) and self.find(log.topic, log.partition) is not log:
            return  # the whole directory went away meanwhile
        if isinstance(outcome.error, OSError):
            self.note(self.directory_of(log), outcome.error)
            return
        paths = outcome.result()
        logger.info("%s: deleting %d files, log start %d", log.directory, len(paths), log.log_start_offset)
        self.remove_later(log, paths)

    def checkpoint(self) -> None:
        """Sync segments that were closed since, and write the recovery points, all as jobs."""
        lines = {path: points.others_lines(self._others[path], points.POINT) for path in self._directories}

        def visit(log: Log) -> None:
            lines[log.root].append(points.point_line(log))
            if log.rolled:
                self._closed.ask(log)

        def then() -> None:
            self._closed.begin()
            self._write_lines(checkpoints.RECOVERY_POINTS, lines)

        self._walk(visit, then)

    def checkpoint_starts(self) -> None:
        """Write where the logs begin that do not begin with their first segment, as jobs."""
        lines = {path: points.others_lines(self._others[path], points.START) for path in self._directories}

        def visit(log: Log) -> None:
            lines[log.root] += points.start_lines(log)
            if log.log_start_offset > log.synced:  # it is written the next time, once the records up to it are synced
                self._unhurried.ask(log)
                self._unhurried.begin()

        self._walk(visit, lambda: self._write_lines(checkpoints.LOG_STARTS, lines))

    def _write_lines(self, name: str, lines: dict[str, list[str]]) -> None:
        for path in filter(self.is_online, lines):
            self._files.write(path, name, lines[path])

    def flush_due(self) -> None:
        """Sync the logs that hold something for longer than their flush.ms."""
        now = self._clock.monotonic()

        def visit(log: Log) -> None:
            if log.log_end_offset > log.synced and (now - log.last_flush) * 1000 >= log.config.flush_ms:
                self._unhurried.ask(log)

        self._walk(visit, self._unhurried.begin)

    def _settled(self, path: str, outcome: Outcome) -> None:
        if isinstance(outcome.error, OSError):
            self.note(path, outcome.error)
        elif outcome.error is not None:
            raise outcome.error

    # Trouble.

    def note(self, path: str, error: OSError) -> None:
        """Something failed in a directory: a line a minute where it will pass, else the directory goes offline."""
        if not is_transient(error):
            self.fail(path, error)
            return
        now = self._clock.monotonic()
        if now - self._noted.get(path, -NOTED_S) >= NOTED_S:
            self._noted[path] = now
            logger.error("%s: cannot write, the broker goes on and tries again: %s", path, error)

    def _log_failed(self, log: Log, error: OSError) -> None:
        if log.failed:  # what it wrote could not be cut away
            self.fail(log.root, error)
        else:
            self.note(log.root, error)

    def fail(self, path: str, error: OSError) -> None:
        """Take a directory offline, for good."""
        directory = self._directories[path]
        if not directory.online:
            return
        directory.error = error
        logs = self.logs_of(path)
        logger.error("%s: offline with %d partitions: %s", path, len(logs), error)
        for log in logs:
            log.fail()
            if self.cleaner is not None:
                self.cleaner.release(log, touch=False)
        if self.on_offline is not None:
            self.on_offline(logs)
