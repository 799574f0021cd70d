"""The parts of the log manager and of the broker that moves of logs use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Offload, Random
from kafkalite.storage.checkpoint_writer import CheckpointWriter
from kafkalite.storage.compaction.cleaner import LogCleaner
from kafkalite.storage.dirs_in_use import DirectoriesInUse
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.flush.flushes_in_progress import FlushesInProgress
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_deletion import LogDeleter


class MovedPartitions(Protocol):
    """The partitions whose logs are moved."""

    def pause(self, log: Log, paused: Callable[[], object]) -> None:
        """Let appends to a log wait; `paused` is called when none is in progress or unwritten."""

    def resume(self, log: Log) -> None:
        """Continue with the appends that wait."""

    def moved(self, log: Log) -> None:
        """A log is in another log directory now."""


class UnusedLogs:
    """The logs of no partition: nothing appends to them while jobs run."""

    def pause(self, log: Log, paused: Callable[[], object]) -> None:
        """Call `paused` at once."""
        paused()

    def resume(self, log: Log) -> None:
        """Nothing waits."""

    def moved(self, log: Log) -> None:
        """Nothing depends on the directory."""


class MovingLogs(Protocol):
    """The part of the log manager that moves use."""

    disk: Disk
    holds: DirectoriesInUse
    cleaner: LogCleaner | None

    def is_online(self, path: str) -> bool: ...
    def reserve(self, path: str, count: int) -> None: ...
    def report_disk_error(self, path: str, error: OSError) -> None: ...
    def take_offline(self, path: str, error: OSError) -> None: ...


@dataclass(slots=True)
class MovePorts:
    """What all moves of a broker share.

    Attributes:
        logs: the log manager.
        files: its checkpoints.
        flushers: all flushers of its logs.
        deletions: removes directories that are renamed.
        exclusion: the logs that are being flushed.
        offload: runs the jobs that appends wait for.
        copies: runs the jobs that copy; no other job waits behind them.
        random: for names of directories.
        partitions: pauses appends.
        closed: the broker stops: no move goes on, but one that has begun to rename ends on the loop thread.
    """

    logs: MovingLogs
    files: CheckpointWriter
    flushers: Sequence[Flusher]
    deletions: LogDeleter
    exclusion: FlushesInProgress
    offload: Offload
    copies: Offload
    random: Random
    partitions: MovedPartitions
    closed: bool = False
