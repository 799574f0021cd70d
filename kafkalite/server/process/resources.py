"""Creates what a broker needs before its state is known: clock, executors, disk, log directories, coordination.

1. Each kind of job has its own executor, so that one kind does not delay another.
2. `close` works after any failure and in any state. A clean stop uses it as its last step.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.callbacks import call_each
from kafkalite.clock import Executor
from kafkalite.cluster.metadata.image import UNASSIGNED_ID
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.read_ahead import ReadAhead
from kafkalite.cluster.replicas import Replicas
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.tree import Tree
from kafkalite.errors import KafkaErrorCode
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.configs.config_problems import ConfigProblems
from kafkalite.server.process.ports import Ports
from kafkalite.server.process.thread_priority import lower_thread_priority
from kafkalite.slicing import Slicer
from kafkalite.storage import names, retention
from kafkalite.storage.compaction.cleaner import CleanerConfig, LogCleaner
from kafkalite.storage.dirs.temporary import TemporaryDisk
from kafkalite.storage.flush.fsync_threads import BATCHES_MAX
from kafkalite.storage.housekeeping import NEVER_MS
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager

if TYPE_CHECKING:
    from kafkalite.net.peer_dial import PeerDial
    from kafkalite.server.process.retention_policies import RetentionPolicies

LOGGER = logging.getLogger("kafkalite.server")
JOURNAL = "kafkalite.journal"
ADOPTING, ADOPTED = f"{JOURNAL}.adopting", f"{JOURNAL}.adopted"  # its names during and after `cluster adopt`


class StartError(Exception):
    """The broker cannot start; the text has the reason and the next step."""


class CleanMark(NamedTuple):
    """What the mark of a clean shutdown says, see `checkpoints.write_clean_shutdown`.

    Attributes:
        broker_epoch: of the last registration in a cluster; the last flushed zxid of the journal of a broker alone.
        tree_zxid: in a cluster, the last change of the tree that this broker has seen.
        unclean_since: in a cluster, the broker epoch of the first registration since the last unclean start; 0 = there
            was none since, -1 = there was no unclean start.
    """

    broker_epoch: int = -1
    tree_zxid: int = -1
    unclean_since: int = -1


class BrokerResources:
    """The clock, executors, logs and coordination service of one broker.

    Arguments:
        config: the static configuration.
        ports: create everything.
        in_memory: the broker has a temporary log directory: no fsync, and no journal.
        failed: called with one line when the broker cannot serve anything any more.

    Attributes:
        peer_dial: connects to other brokers; set by a broker of a cluster.

    Raises OSError when no thread can be started.
    """

    peer_dial: "PeerDial"

    def __init__(self, config: BrokerConfig, ports: Ports, in_memory: bool, failed: Callable[[str], None]) -> None:
        loop, directories = asyncio.get_running_loop(), config.log_dirs
        self.loop = loop
        self.ports = ports
        self.in_memory = in_memory
        self._failed = failed
        self.disk = ports.disk or (TemporaryDisk() if in_memory else Disk())
        self.random = ports.random
        with ExitStack() as opened:
            self._open_executors(config, opened)
            self._opened = opened.pop_all()
        self.replicas = Replicas(self.callback_failed)
        self.logs = LogManager(
            self.disk, directories, self.clock, self.offload, self.random,
            syncs=self.syncer, creations=self.creations, removals=self.removals, copies=self._copies,
            on_offline=self._logs_offline,
        )  # fmt: skip
        self.replicas.flusher = self.logs.flusher
        self.read_ahead = ReadAhead(self.offload, holds=self.logs.holds)
        self.journal = os.path.join(directories[0], JOURNAL)
        self.coordination: EmbeddedCoordination | None = None
        self.clean_mark = CleanMark()

    def _open_executors(self, config: BrokerConfig, opened: ExitStack) -> None:
        directories = config.log_dirs
        self.clock = self.ports.clock(self.loop, self.callback_failed)
        opened.callback(self.clock.close)
        self.log = RateLimitedLog(LOGGER, self.clock)
        self.config_problems = ConfigProblems()
        self.slicer = Slicer(self.clock, self.callback_failed)
        opened.callback(self.slicer.close)
        self.offload = self._executor(opened)
        # Thousands of partitions take seconds to create or delete.
        self.removals = self._executor(opened, 1, name="kafkalite-remove", prepare=lower_thread_priority)
        self.creations = self._executor(opened, len(directories), name="kafkalite-create")
        self._copies = self._executor(opened, 1, name="kafkalite-move", prepare=lower_thread_priority)
        jobs = self._executor(opened, BATCHES_MAX * len(directories), name="kafkalite-sync")
        self.syncer = self.ports.syncer(self.disk, directories, self.loop, jobs, self.callback_failed)
        opened.callback(self.syncer.close)
        threads = config.log_cleaner_threads if config.log_cleaner_enable else 0
        low: dict[str, Any] = {"name": "kafkalite-clean", "prepare": lower_thread_priority}
        self._cleaner_jobs = self._executor(opened, threads, **low) if threads > 0 else None

    def _executor(self, opened: ExitStack, threads: int = 4, **options: Any) -> Executor:
        executor = self.ports.offload(self.loop, threads, self.callback_failed, **options)
        opened.callback(executor.close)
        return executor

    def open_shared_files(self) -> tuple[Disk, Executor]:
        """Create the disk and the executor of a coordination directory, which is flushed by brokers in memory, too."""
        return self.ports.disk or Disk(), self._executor(self._opened, 1, name="kafkalite-tree")

    def open_coordination(self, check: Callable[[Tree], object]) -> EmbeddedCoordination:
        """Open the coordination service; `open_embedded` describes `check` and the errors."""
        journal = None if self.in_memory else self.journal
        self.coordination = self.ports.coordination(self.disk, journal, self.clock, self.offload, check)
        return self.coordination

    def coordination_lost(self) -> None:
        """Take all log directories offline: the journal could not be flushed, so its content is unknown."""
        text = f"the journal of the cluster's state failed: {self.coordination and self.coordination.failure!r}"
        LOGGER.critical("%s; all log directories are offline: restart the broker", text)
        self.fail(text)
        for path in self.logs.directories():
            self.logs.take_offline(path, OSError(text))

    def fail(self, text: str) -> None:
        """Report that the broker cannot serve anything any more."""
        self._failed(text)

    def finish_interrupted_moves(self) -> None:
        """Decide about what interrupted moves between log directories have left, before the load; blocks.

        Raises DirectoryError.
        """
        if any(map(self._has_future_directory, self.logs.online())):
            from kafkalite.storage.log_move.interrupted_moves import finish_interrupted

            self.logs.interrupted = finish_interrupted(self.disk, self.logs, self.random)

    def _has_future_directory(self, path: str) -> bool:
        try:
            return any(name.endswith(names.FUTURE_DIRECTORY) for name in self.disk.list(path))
        except OSError:
            return True  # reported by what reads the directory next

    def start_cleaner(self, config: BrokerConfig) -> None:
        """Start the log cleaner, unless the configuration disables it."""
        if self._cleaner_jobs is not None:
            settings = CleanerConfig(
                config.log_cleaner_threads,
                config.log_cleaner_dedupe_buffer_size,
                config.log_cleaner_io_buffer_size,
                config.log_cleaner_io_buffer_load_factor,
                config.log_cleaner_backoff_ms,
                config.log_cleaner_io_max_bytes_per_second,
            )
            self.logs.cleaner = LogCleaner(self.logs, self.clock, self._cleaner_jobs, self.random, settings)
            self.logs.cleaner.start(self.high_watermark)

    def start_housekeeping(self, config: BrokerConfig, *, in_cluster: bool) -> None:
        """Start the periodic work on logs: checkpoints, flushes, retention. In a cluster, logs have high watermarks."""
        watermarks_ms = config.replica_high_watermark_checkpoint_interval_ms
        self.logs.upkeep.start(
            self.high_watermark,
            checkpoint_ms=config.log_flush_offset_checkpoint_interval_ms,
            starts_ms=config.log_flush_start_offset_checkpoint_interval_ms,
            flush_check_ms=config.log_flush_scheduler_interval_ms,
            retention_ms=config.log_retention_check_interval_ms,
            high_watermarks_ms=watermarks_ms if in_cluster else NEVER_MS,
            initial_ms=config.log_initial_task_delay_ms,
            jump_pause_ms=config.kafkalite_retention_clock_jump_pause_ms,
            producer_check_ms=config.producer_id_expiration_check_interval_ms,
            producer_silent_ms=config.producer_id_expiration_ms,
            on_log_start=self.log_start_moved,
            count_expired=self.count_expired,
        )

    def count_expired(self, log: Log, now_ms: int | None, high_watermark: int) -> int:
        """Number of first segments of `log` that Kafka's rules and the policy of its topic delete.

        Arguments: as of `retention.count_expired`.
        """
        count = retention.count_expired(log, now_ms, high_watermark)
        if log.config.kafkalite_retention_policy:
            return self._retention_policies.count_expired(log, count, now_ms, high_watermark)
        return count

    @cached_property
    def _retention_policies(self) -> "RetentionPolicies":
        from kafkalite.server.process.retention_policies import RetentionPolicies  # few topics have one

        return RetentionPolicies(self.clock, self.offload, self.log)

    def finish_flushes(self) -> None:
        """Flush what acknowledgements wait for, and end the creation of partitions."""
        self.creations.close()
        self.logs.finish_flushes()
        self.syncer.close()

    def close_logs(self) -> bool:
        """Wait for all jobs, then close the logs; return whether each log directory has its clean-shutdown mark."""
        self._copies.close()
        self.removals.close()
        self.offload.close()
        self._close_cleaner()
        service = self.coordination
        mark = self.clean_mark
        if service is not None and service.failure is None:
            mark = CleanMark(service.durable_zxid)
        return self.logs.close(*mark)

    def close(self) -> None:
        """End all jobs and timers, close the coordination service and unlock the log directories."""
        self._close_cleaner()
        self._opened.close()
        if self.coordination is not None:
            self.coordination.close()
        self.logs.unlock()

    def _close_cleaner(self) -> None:
        if self.logs.cleaner is not None:
            self.logs.cleaner.close()
            self.logs.cleaner = None
        if self._cleaner_jobs is not None:
            self._cleaner_jobs.close()

    def log_start_moved(self, log: Log) -> None:
        """Let the followers of a partition know the log start that retention has moved."""
        partition = self._partition(log)
        if partition is not None:
            partition.log_start_moved()

    def high_watermark(self, log: Log) -> int:
        """Return the high watermark of the partition of a log, the log start where the log has no partition."""
        partition = self._partition(log)
        return log.log_start_offset if partition is None else partition.high_watermark

    def _partition(self, log: Log) -> Partition | None:
        partition = self.replicas.partition(log.topic, UNASSIGNED_ID, log.partition, by_id=False)
        return None if isinstance(partition, KafkaErrorCode) else partition

    def callback_failed(self, callback: object, error: BaseException) -> None:
        """Log the exception of a callback of a timer or of a job."""
        self.log.raised(callback, error)

    def _logs_offline(self, logs: list[Log]) -> None:
        """Take the partitions of a failed log directory offline."""
        for log in logs:
            partition = self._partition(log)
            if partition is not None:
                partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        call_each(lambda observer: observer(logs), self.replicas.offline_observers)
        if not self.logs.any_online:
            self._failed(f"every log directory failed: {', '.join(self.logs.directories())}; see the log")
