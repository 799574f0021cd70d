"""Manages all logs of this broker: loads, creates, deletes and truncates them, and handles disk errors.

1. Only the loop thread calls this.
2. A failed fsync or checkpoint takes its log directory offline; the other directories continue.
3. The mark of a clean stop is written last, after every log and every checkpoint. A start removes it before it reads
   anything.

Sources: LogManager.scala.
"""

import errno
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.clock import Clock, Offload, Outcome, Random, Then
from kafkalite.config.topic import TopicConfig
from kafkalite.model import TopicPartition, uuid_text
from kafkalite.storage import checkpoints, names
from kafkalite.storage.checkpoint_writer import CheckpointWriter
from kafkalite.storage.compaction.cleaner import LogCleaner
from kafkalite.storage.dirs import stray_partitions
from kafkalite.storage.dirs.directory_set import DirectorySet, RejectedLog
from kafkalite.storage.dirs.log_directory import DirectoryError
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.flush.flushes_in_progress import FlushesInProgress
from kafkalite.storage.housekeeping import Housekeeping
from kafkalite.storage.log.flush_job import JobSyncer, Syncer
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment_cache import SegmentCache
from kafkalite.storage.log_closing import MANY_FILES, FailedSyncError, close_logs
from kafkalite.storage.log_creation import LogCreator, NewPartition, open_created
from kafkalite.storage.log_deletion import LogDeleter
from kafkalite.storage.recovery.load_logs import CREATED_FILES, FIRST_LOG, LoadedDirectory, load_directories
from kafkalite.storage.transient_errors import is_transient, lacks_descriptors
from kafkalite.storage.truncation import (
    RestartedLog,
    Truncation,
    TruncationPorts,
    TruncationsInProgress,
    truncation_to,
)

if TYPE_CHECKING:  # imported with the first move
    from kafkalite.storage.log_move.interrupted_moves import InterruptedMove
    from kafkalite.storage.log_move.log_move import LogMove
    from kafkalite.storage.log_move.log_mover import LogMover

NOTED_S = 60.0
NOT_OF_THE_DISK = (None, errno.ESTALE)  # a failed journal; a directory that another broker may use
CLOSED_FILES = 8  # closed segments that are unloaded where there are no descriptors, for the next attempt
LOGGER = logging.getLogger("kafkalite.storage.manager")


class LogManager(DirectorySet):
    """The logs of one broker.

    Arguments:
        disk: the disk port.
        paths: of the log directories.
        clock, offload, random: time, jobs and names of deleted directories.
        syncs: runs the fsync batches for acknowledgements; by default jobs of `offload`.
        creations, removals, copies: run the jobs of new partitions, those of deletions and retention, and those that
            copy logs to other log directories, and nothing else; `offload` where they are not given.
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
        creations: Offload | None = None,
        removals: Offload | None = None,
        copies: Offload | None = None,
        cache: SegmentCache | None = None,
        on_offline: Callable[[list[Log]], None] | None = None,
    ) -> None:
        super().__init__(disk, paths, lambda: uuid_text(random.uuid()))
        self.disk = disk
        self.cache = cache or SegmentCache()
        self.on_offline = on_offline
        self.many_files = MANY_FILES
        self.cleaner: LogCleaner | None = None
        self.topic_ids: dict[TopicPartition, bytes | None] = {}
        self.holds = DirectoriesInUse()
        self._clock = clock
        self._random = random
        self._logs: dict[TopicPartition, Log] = {}
        self.created: dict[TopicPartition, str] = {}  # log directory of each partition with files and without a log
        self._first_epochs: dict[TopicPartition, int] = {}  # of created partitions, unless a start found them
        self.on_created_offline: Callable[[list[TopicPartition]], None] | None = None
        self.refused: dict[TopicPartition, RejectedLog] = {}
        self.strays: list[str] = []  # directories that earlier starts renamed
        self.interrupted: list[InterruptedMove] = []  # moves that a start has found, to begin again
        self._noted: dict[tuple[str, int | None], float] = {}  # when an error of a directory was last logged
        self._duplicates = 0  # of logs that are no longer managed
        self._files = CheckpointWriter(disk, offload, self._job_ended)
        self._deletions = LogDeleter(disk, clock, removals or offload, random, self.holds, self.report_disk_error)
        self._maker = LogCreator(disk, creations or offload, self.holds, self._deletions, self._files)
        # Flushes that no request waits for are separate: an acknowledgement does not wait for a gigabyte of other logs.
        jobs, exclusion = JobSyncer(disk, offload), FlushesInProgress()
        flusher = partial(
            Flusher,
            disk,
            clock,
            fail=self.take_offline,
            holds=self.holds,
            exclusion=exclusion,
            retried=self.report_disk_error,
        )
        self.flusher = flusher(syncs or jobs)
        unhurried = flusher(jobs)
        self._closed = flusher(jobs, active=False)
        self._flushers = self.flusher, unhurried, self._closed
        self.upkeep = Housekeeping(
            self, disk, clock, offload, removals or offload, unhurried=unhurried, closed=self._closed, files=self._files
        )
        self._exclusion, self._offload, self._copies = exclusion, offload, copies or offload
        self._truncations = TruncationsInProgress()
        self._mover: LogMover | None = None
        self.moves: dict[TopicPartition, LogMove] = {}  # to other log directories, that have not ended

    # Startup and shutdown.

    def load(self, config_of: Callable[[str], TopicConfig], threads: int = 2) -> list[LoadedDirectory]:
        """Recover every log of every directory, `threads` at a time in each; blocks. `config_of`: of a topic name.

        Returns the result, for the log lines of a start. Raises DirectoryError; an OSError takes its directory offline.
        """
        return self.add_loaded(load_directories(self.disk, self.online(), config_of, threads))

    def load_in_job(self, offload: Offload, config_of: Callable[[str], TopicConfig], threads: int, done: Then) -> None:
        """`load` in a job, while the loop serves others; `done` receives what `add_loaded` then adds."""
        offload.run(load_directories, self.disk, self.online(), config_of, threads, done=done)

    def add_loaded(self, results: list[LoadedDirectory]) -> list[LoadedDirectory]:
        """Add the recovered logs, and return the results. Raises DirectoryError."""
        for loaded in results:
            for log in loaded.logs:
                if self.find(log.topic, log.partition) is not None or (log.topic, log.partition) in self.created:
                    raise DirectoryError(f"{log.directory}: the partition is also in another log directory")
                self.topic_ids[TopicPartition(log.topic, log.partition)] = loaded.topic_ids.get(log.directory)
                self.add(log)
            for key, topic_id in loaded.created.items():
                if self.find(*key) is not None or key in self.created:
                    directory = os.path.join(loaded.path, names.directory_name(*key))
                    raise DirectoryError(f"{directory}: the partition is also in another log directory")
                self._add_created(loaded.path, key, topic_id)
            self._deletions.directories(loaded.to_delete)
            for key, offsets in loaded.checkpoints_of_rejected.items():
                directory = os.path.join(loaded.path, names.directory_name(*key))
                self.refused[key] = RejectedLog(loaded.path, directory, offsets, loaded.rejected[directory])
            self.strays += loaded.strays
            self._files.others[loaded.path].update(loaded.checkpoints_of_rejected)
            self._files.other_high_watermarks[loaded.path].update(loaded.high_watermarks_of_rejected)
            for key in loaded.gone:
                self._files.note_deleted(loaded.path, key)
            if loaded.error is not None:
                self.take_offline(loaded.path, loaded.error)
        self.see_one_online()
        return results

    def finish_flushes(self) -> None:
        """Run all requested flushes; further flushes run at once."""
        if self._mover is not None:
            self._mover.close()
        for flusher in self._flushers:
            flusher.finish()
        self._files.close()
        self._deletions.close()
        self.holds.close()

    def close(self, broker_epoch: int = -1, tree_zxid: int = -1, unclean_since: int = -1) -> bool:
        """Write and sync everything, then the checkpoints, then the clean mark; blocks. Failures are logged.

        The arguments go into the mark, see `checkpoints.write_clean_shutdown`. Returns whether each online directory
        has its mark; False without an online directory.

        Nothing is written after `unlock`: a second call does nothing, as another broker may use the directories.
        """
        self.upkeep.close()
        mark = broker_epoch, tree_zxid, unclean_since
        marked = [self._close_directory(path, mark) for path in filter(self.is_locked, self.online())]
        return bool(marked) and all(marked)

    def _close_directory(self, path: str, mark: tuple[int, int, int]) -> bool:
        try:
            logs = self.logs_of(path)
            # A truncation that the stop has interrupted: the producers of such a log are those of before.
            sound = [log for log in logs if not log.failed and not log.holds_appends]
            close_logs(self.disk, sound, self.lock_file(path), self.many_files)
            self._files.write_now(path, logs)
            # With the mark, the next start would trust the end of other logs. It checks refused partitions again.
            if len(sound) == len(logs):
                epoch, zxid, unclean_since = mark
                refused = {key for key, each in self.refused.items() if each.root == path}
                checkpoints.write_clean_shutdown(self.disk, path, epoch, refused, zxid, unclean_since)
                return True
        except OSError as error:
            self._close_failed(path, error)
        return False

    def _close_failed(self, path: str, error: OSError) -> None:
        """On a full disk nothing is lost: without the clean mark, the next start recovers the logs as after a kill."""
        if is_transient(error) and not isinstance(error, FailedSyncError):
            LOGGER.error("%s: not closed cleanly, the next start checks its logs: %s", path, error)
        else:
            self.take_offline(path, error)

    # Look-ups.

    def find(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, None if this broker has none."""
        return self._logs.get(TopicPartition(topic, partition))

    def all(self) -> list[Log]:
        """Every log."""
        return list(self._logs.values())

    def logs_of(self, path: str) -> list[Log]:
        """The logs in a directory."""
        return [log for log in self._logs.values() if log.root == path]

    @property
    def duplicates(self) -> int:
        """Number of duplicate batches of idempotent producers, which were answered with their first offset."""
        return self._duplicates + sum(log.producers.duplicates for log in self._logs.values())

    # Creation of logs.

    def create(
        self,
        path: str,
        wanted: Sequence[NewPartition],
        done: Then,
        *,
        recorded: bool = False,
    ) -> None:
        """Create the files of new partitions in a log directory.

        Arguments:
            done: called with the outcome: the OSErrors of single partitions by topic and index, or the error of all.
            recorded: whether the tree records the partitions next; see `create_files`.
        """

        def created(outcome: Outcome) -> None:
            try:
                if outcome.error is None:
                    for new in wanted:
                        key = new.key
                        if key not in outcome.value:
                            self._add_created(path, key, new.topic_id)
                            self._first_epochs[key] = new.leader_epoch
            except Exception as error:  # the waiting appends must not wait for ever
                done(Outcome(error=error))
                raise
            done(outcome)

        self._maker.create(path, wanted, created, self.many_files, recorded=recorded)

    def _add_created(self, path: str, key: TopicPartition, topic_id: bytes) -> None:
        self.created[key] = path
        self.topic_ids[key] = topic_id
        self.reserve(path, 1)

    def open_created(self, topic: str, partition: int, config: TopicConfig) -> Log:
        """Open a created partition and manage its log. After an OSError it remains a created partition."""
        key = TopicPartition(topic, partition)
        path, topic_id = self.created[key], self.topic_ids[key]
        log = open_created(self.disk, path, key, config, self._first_epochs.get(key))
        self.forget_created(key)
        self.topic_ids[key] = topic_id
        self.add(log)
        return log

    def forget_created(self, key: TopicPartition) -> str:
        """Stop managing a created partition; its files stay. Returns its log directory."""
        path = self.created.pop(key)
        self._first_epochs.pop(key, None)
        self.topic_ids.pop(key, None)
        self.reserve(path, -1)
        return path

    def delete_created(self, topic: str, partition: int, delay_ms: int) -> None:
        """Rename the directory of a created partition now, remove it after `delay_ms` (file.delete.delay.ms)."""
        path = self.forget_created(TopicPartition(topic, partition))
        directory = os.path.join(path, names.directory_name(topic, partition))
        self._deletions.delete_unloaded(path, directory, topic, partition, delay_ms)

    def add(self, log: Log) -> None:
        """Manage a log."""
        assert (log.topic, log.partition) not in self._logs, "a partition has one log"
        self._logs[TopicPartition(log.topic, log.partition)] = log
        self.reserve(log.root, 1)
        log.last_flush = self._clock.monotonic()
        log.on_error = self._log_failed
        log.on_roll = self._rolled
        self._files.note(log)
        log.use_cache(self.cache)
        log.use_random(self._random)
        log.before_truncation = self._before_truncation

    # Removal of logs.

    def forget(self, log: Log, *, touch: bool = True) -> None:
        """Stop managing a log; its files stay. Without `touch`, a running cleaning does not complete its renames."""
        if self._mover is not None:
            self._mover.forget(log)
        if self.cleaner is not None:
            self.cleaner.forget(log, touch=touch)
        if self._logs.pop(TopicPartition(log.topic, log.partition), None) is not None:
            self._duplicates += log.producers.duplicates
            self.reserve(log.root, -1)
            self._files.drop(log)
        self.topic_ids.pop(TopicPartition(log.topic, log.partition), None)
        for segment in log.segments:
            self.cache.forget(segment)

    def leave_alone(self, log: Log) -> None:
        """Stop managing a log; its files and its checkpoint entries stay."""
        key = TopicPartition(log.topic, log.partition)
        self._files.others[log.root][key] = log.synced, log.log_start_offset
        if log.high_watermark >= 0:
            self._files.other_high_watermarks[log.root][key] = log.high_watermark
        self.forget(log)

    def delete(self, log: Log) -> None:
        """Rename the directory of a log now, remove it after file.delete.delay.ms. Regions in flight stay readable."""
        self.forget(log, touch=False)
        log.fail()  # nothing of it is written any more: a log of the same name may come
        self._files.note_deleted(log.root, TopicPartition(log.topic, log.partition))
        self._forget_high_watermark(log.root, known=log.high_watermark >= 0)
        self._deletions.log(log)

    def _forget_high_watermark(self, path: str, *, known: bool) -> None:
        """Write the checkpoint of a log directory without a removed partition, if it had one there: it is not that of a
        new partition of the same name.
        """
        if known:
            self._files.write(path, checkpoints.HIGH_WATERMARKS)

    def delete_refused(self, topic: str, partition: int, delay_ms: int) -> None:
        """Delete the files of a partition that could not be loaded, as `delete` does; nothing where there is none.

        `delay_ms`: file.delete.delay.ms of its topic.
        """
        refused = self.refused.get(TopicPartition(topic, partition))
        if refused is None:
            return
        if self._deletions.delete_unloaded(refused.root, refused.directory, topic, partition, delay_ms):
            self._forget_refused(TopicPartition(topic, partition), refused.root)

    def delete_unrecorded(self, key: TopicPartition, delay_ms: int) -> bool:
        """Delete the files of a partition that the tree does not record and that has no records: they are created
        again, perhaps in another log directory, and a start rejects a partition that is in two.

        A power failure may have left any of them. Returns whether there was one. Raises OSError.

        Arguments:
            delay_ms: file.delete.delay.ms of its topic.
        """
        log, refused = self._logs.get(key), self.refused.get(key)
        if key in self.created:
            self.delete_created(*key, delay_ms)
        elif log is not None and not log.size and not log.log_end_offset:
            self.delete(log)
        elif refused is not None and self._is_without_records(refused):
            self.delete_refused(*key, delay_ms)
        else:
            return False
        return True

    def _is_without_records(self, refused: RejectedLog) -> bool:
        """Whether a directory has only files of a creation, and the checkpoints no offset of it. Raises OSError."""
        if refused.checkpoint_offsets != (0, 0):
            return False
        found = {name.removesuffix(names.WORK) for name in self.disk.list(refused.directory)}
        segment = os.path.join(refused.directory, FIRST_LOG)
        return found <= CREATED_FILES and not (FIRST_LOG in found and self.disk.size(segment))

    def is_incomplete(self, key: TopicPartition) -> bool:
        """Whether a partition could not be loaded because its creation was interrupted, by a power failure: its
        directory has no records and no topic id, and the checkpoints have no offset of it. Raises OSError.
        """
        refused = self.refused.get(key)
        if refused is None or not self._is_without_records(refused):
            return False
        try:
            return checkpoints.read_topic_id(self.disk, refused.directory) is None
        except checkpoints.BadCheckpoint:
            return True

    def set_stray(self, key: TopicPartition, cleaned: int | None) -> str:
        """Make a partition a stray: it is renamed, not served, and kept. Returns the new path. Raises OSError.

        Arguments:
            key: topic and partition.
            cleaned: its offset in the cleaner's checkpoint, None for none.
        """
        log, refused = self._logs.get(key), self.refused.get(key)
        if log is not None:
            root, directory, offsets = log.root, log.directory, (log.synced, log.log_start_offset)
        else:
            assert refused is not None, "asked for a partition that has files"
            root, directory, offsets = refused.root, refused.directory, refused.checkpoint_offsets
        renamed = stray_partitions.rename(self.disk, directory, key, offsets, self._random.bytes(16).hex(), cleaned)
        if log is not None:
            self.forget(log, touch=False)
            log.fail()  # nothing of it is written any more: a log of the same name may come
            self._forget_high_watermark(root, known=log.high_watermark >= 0)
        self._forget_refused(key, root)
        self.strays.append(renamed)
        return renamed

    def _forget_refused(self, key: TopicPartition, root: str) -> None:
        """Let the checkpoints of a log directory name a partition no more, at the latest before its files are made."""
        self.refused.pop(key, None)
        self._files.others[root].pop(key, None)
        known = self._files.other_high_watermarks[root].pop(key, None) is not None
        self._files.note_deleted(root, key)
        self._forget_high_watermark(root, known=known)

    def flush_closed(self, log: Log, done: Callable[[int], object]) -> None:
        """Flush the closed segments of a log as a job; `done` receives 0 or a Kafka error code."""
        self._closed.request_flush(log, done)
        self._closed.begin()

    def _rolled(self, log: Log) -> None:
        """Flush the segment that was closed and write its producer snapshot, in the background (UnifiedLog.roll)."""
        self._closed.request_flush(log)
        self._closed.begin_soon()

    def remove_later(self, log: Log, paths: list[str]) -> None:
        """Remove `.deleted` files of a log after file.delete.delay.ms."""
        self._deletions.files(log, paths)

    def when_removed(self, then: Callable[[], object]) -> None:
        """Call `then` once the deleted files that are due for removal are removed, perhaps at once."""
        self._deletions.when_removed(then)

    # Moves to other log directories.

    @property
    def mover(self) -> "LogMover":
        """Moves logs to other log directories."""
        if self._mover is None:
            from kafkalite.storage.log_move.log_mover import LogMover
            from kafkalite.storage.log_move.ports import MovePorts, UnusedLogs

            shared = self._flushers, self._deletions, self._exclusion, self._offload, self._copies, self._random
            self._mover = LogMover(MovePorts(self, self._files, *shared, UnusedLogs()), self.moves)
        return self._mover

    # Truncation.

    def truncate(self, end_offsets: Mapping[Log, int], done: Then) -> None:
        """Truncate logs to new log end offsets, after their checkpoints are lowered.

        Until `done`, which receives the first OSError, if any, the caller appends nothing to these logs. After an error
        some logs may be unchanged. At or above its log end, a log loses nothing but a leader epoch without batches;
        below its first segment it restarts empty at the offset.
        """
        changes = [truncation_to(log, offset) for log, offset in end_offsets.items()]
        Truncation(changes, self._truncation_ports, done).start()

    def restart_at(self, log: Log, offset: int, done: Then, *, log_start_offset: int | None = None) -> None:
        """Remove all batches of a log, which then begins empty at `offset`; after its checkpoint is lowered.

        Until `done`, which receives the OSError, if any, the caller appends nothing to the log.

        Arguments:
            log: as a follower's, which begins again at the log start of its leader.
            offset: of the first segment; no batch begins below.
            done: called with the outcome.
            log_start_offset: the log start and the log end, where these lie within the first batch
                (`ReplicatedAppend.restart_offset`); None: `offset`.

        Source: LogManager.truncateFullyAndStartAt.
        """
        Truncation([RestartedLog(log, offset, log_start_offset)], self._truncation_ports, done).start()

    @property
    def _truncation_ports(self) -> TruncationPorts:
        return TruncationPorts(self, self._files, self._offload, self._exclusion, self._truncations)

    def when_truncated(self, log: Log, then: Callable[[], object]) -> None:
        """Call `then` when no truncation and no restart of a log is in progress, perhaps at once.

        A log that becomes a leader's waits for it: what was requested before would remove what the leader appends.
        """
        self._truncations.when_ended(log, then)

    def _before_truncation(self, log: Log, offset: int) -> None:
        if self.cleaner is not None:
            self.cleaner.truncated(log, offset)

    def is_cleaned_now(self, log: Log) -> bool:
        """Whether a log is being compacted: then only the cleaner removes segments of it."""
        return self.cleaner is not None and self.cleaner.is_busy(log)

    # Disk errors.

    def report_disk_error(self, path: str, error: OSError) -> None:
        """Handle a disk error: log a transient one once a minute; take the directory offline after any other."""
        if not is_transient(error):
            self.take_offline(path, error)
            return
        if lacks_descriptors(error):
            self.cache.unload(CLOSED_FILES)
        now = self._clock.monotonic()
        if now - self._noted.get((path, error.errno), -NOTED_S) >= NOTED_S:
            self._noted[path, error.errno] = now
            LOGGER.error("%s: write failed, retrying: %s", path, error)

    def lock_checked(self, path: str, lock: File, outcome: Outcome) -> None:
        """Apply the result of a check: whether the lock file of a directory still has its name.

        An earlier check, which ended late as well, may have replaced `lock` meanwhile.
        """
        if not self.is_locked(path) or not self.is_online(path) or self.named_lock(path) is not lock:
            return
        try:
            if not outcome.result():
                self.lock_again(path)
        except OSError as error:
            self.report_disk_error(path, error)

    def _job_ended(self, path: str, outcome: Outcome) -> None:
        if isinstance(outcome.error, OSError):
            self.report_disk_error(path, outcome.error)
        elif outcome.error is not None:
            raise outcome.error

    def _log_failed(self, log: Log, error: OSError) -> None:
        if log.failed and not lacks_descriptors(error):  # a failed write could not be truncated
            self.take_offline(log.root, error)
        else:
            self.report_disk_error(log.root, error)

    def take_offline(self, path: str, error: OSError) -> None:
        """Take a directory offline until the next start."""
        if not self.mark_offline(path, error):
            return
        if error.errno not in NOT_OF_THE_DISK and self.is_locked(path):
            from kafkalite.storage.dirs import failed_fsync  # most brokers do not need it

            failed_fsync.mark(self.disk, path)
        logs = self.logs_of(path)
        LOGGER.error("%s: offline with %d partitions: %s", path, len(logs), error)
        if self._mover is not None:
            self._mover.directory_failed(path)
        for log in logs:
            log.fail()
            if self.cleaner is not None:
                self.cleaner.release(log, touch=False)
        if self.on_created_offline is not None:
            self.on_created_offline([key for key, root in self.created.items() if root == path])
        if self.on_offline is not None:
            self.on_offline(logs)
