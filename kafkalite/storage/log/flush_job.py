"""What a log has not brought to the disk yet, as a plan that a job can carry out without touching the log.

Laws:
1. A plan names open files, paths and a directory; the job reads nothing else.
2. The small files come first, then the batches, then the directory: nothing is synced whose epoch is not. Snapshots of
   the producers come before all; one for which there is no room is left out, as recovery does without it.
3. A file or directory that is gone was deleted or renamed meanwhile, and nobody waits for it any more.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.clock import Offload, Outcome, outcome_of
from kafkalite.storage.disk_errors import is_transient
from kafkalite.storage.log import producer_state_loader

Done: TypeAlias = Callable[[Outcome], object]
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FlushPlan:
    """Everything of one log up to `offset`.

    Arguments:
        offset: up to where the log is on the disk once the plan was carried out.
        truncations, rolls, epochs: how often the log was truncated, changed its segments and epochs when it was made.
        files: open files of batches; paths: files that are synced by name; directory: to be synced, or None.
        snapshots: packed producers by offset, to be written; bases: of the segments, whose snapshots stay.
    """

    offset: int
    truncations: int
    rolls: int
    epochs: int
    files: list[File] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    directory: str | None = None
    snapshots: dict[int, bytes] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)


class Syncer(Protocol):
    """Whatever carries out plans; `batches_max`: at the same time, of one log directory."""

    batches_max: int

    def run(self, root: str, plans: Sequence[FlushPlan], done: Done) -> None:
        """Bring all that the plans of a log directory name to the disk, then call `done(outcome)`."""


class ClosableSyncer(Syncer, Protocol):
    """A `Syncer` of one broker."""

    def close(self) -> None:
        """Wait for every batch and apply its outcome."""


class JobSyncer:
    """Carries out the plans of a round as one job, file after file.

    Arguments:
        disk: sees every sync.
        offload: runs the jobs.
        end: called by `close`: ends what runs the jobs, having waited for them.
    """

    batches_max = 1

    def __init__(self, disk: Disk, offload: Offload, end: Callable[[], object] | None = None) -> None:
        self._disk = disk
        self._offload = offload
        self._end = end

    def run(self, root: str, plans: Sequence[FlushPlan], done: Done) -> None:
        """See `Syncer`; a job does not care which directory it is."""
        self._offload.run(sync, self._disk, plans, done=done)

    def close(self) -> None:
        """Take no more; every outcome is applied when this returns."""
        if self._end is not None:
            self._end()


class SyncAtOnce:
    """Carries out the plans of a round before `run` returns."""

    batches_max = 1

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def run(self, root: str, plans: Sequence[FlushPlan], done: Done) -> None:
        """See `Syncer`."""
        done(outcome_of(sync, (self._disk, plans)))


def sync(disk: Disk, plans: Iterable[FlushPlan]) -> None:
    """Job: bring all that the plans name to the disk. Raises OSError, which is final: what was lost is not known."""
    plans = tuple(plans)
    for plan in plans:
        for path in plan.paths:
            sync_path(disk, path)
    for plan in plans:
        if plan.snapshots:  # after the indexes: recovery takes them as a sign that those are on the disk
            write_snapshots(disk, plan)
    for plan in plans:
        for file in plan.files:
            file.sync()
    for plan in plans:
        if plan.directory is not None:
            sync_directory(disk, plan.directory)


def write_snapshots(disk: Disk, plan: FlushPlan, *, sync: bool = True) -> None:
    """Job: write the producers as of the rolls; without `sync` not yet to the disk. Raises OSError."""
    assert plan.directory is not None
    try:
        producer_state_loader.write_snapshots(disk, plan.directory, plan.snapshots, plan.bases, sync=sync)
    except FileNotFoundError:
        return
    except OSError as error:
        if not is_transient(error):
            raise
        logger.warning("%s: cannot write the producer snapshot: %s", plan.directory, error)


def sync_path(disk: Disk, path: str) -> None:
    """Job: sync a file by its name, where it is still there. Raises OSError."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    sync_and_close(file)


def sync_and_close(file: File) -> None:
    """Sync an open file, and close it whatever comes of that. Raises OSError."""
    try:
        file.sync()
    finally:
        file.close()


def sync_directory(disk: Disk, path: str) -> None:
    """Job: sync a directory by its name. Raises OSError."""
    try:
        disk.sync_dir(path)
    except FileNotFoundError:
        return
