"""Flushes logs in jobs, by plans that list the files of a log, so that the job does not use the log.

1. A plan contains open files, paths and a directory; the job uses nothing else.
2. The small files are synced first, then the batches, then the directory: no batch is on the disk before its epoch.
   Producer snapshots are written before all. On a full disk a snapshot is left out, because recovery works without it.
3. A missing file or directory was deleted or renamed meanwhile, and needs no sync.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.clock import Offload, Then, outcome_of
from kafkalite.storage.log import producer_state_loader
from kafkalite.storage.transient_errors import is_transient

LOGGER = logging.getLogger("kafkalite.storage.log.flush_job")


@dataclass(slots=True)
class FlushPlan:
    """The files of one log to sync, so that it is on the disk up to `offset`.

    Arguments:
        offset: the flushed offset after this plan.
        truncations, rolls, epochs: the counters of the log when the plan was created.
        files: open files with batches.
        paths: files that are synced by name.
        directory: the directory to sync, or None.
        snapshots: producer snapshots to write, packed, by offset.
        bases: base offsets of the segments, whose snapshots are kept.
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
    """Executes plans; `batches_max`: concurrent batches of plans per log directory."""

    batches_max: int

    def run(self, root: str, plans: Sequence[FlushPlan], done: Then) -> None:
        """Sync the files in the plans of a log directory, then call `done(outcome)`."""


class ClosableSyncer(Syncer, Protocol):
    """A `Syncer` of one broker."""

    def close(self) -> None:
        """Wait for all batches and apply their outcomes."""


class JobSyncer:
    """Executes the plans of a batch as one job, file after file.

    Arguments:
        disk: syncs the files.
        offload: runs the jobs.
        end: called by `close`; waits for the jobs and ends their threads.
    """

    batches_max = 1

    def __init__(self, disk: Disk, offload: Offload, end: Callable[[], object] | None = None) -> None:
        self._disk = disk
        self._offload = offload
        self._end = end

    def run(self, root: str, plans: Sequence[FlushPlan], done: Then) -> None:
        """Flush as `Syncer.run` does; `root` is not used."""
        self._offload.run(sync, self._disk, plans, done=done)

    def close(self) -> None:
        """Accept no further plans; every outcome is applied when this returns."""
        if self._end is not None:
            self._end()


class SyncAtOnce:
    """Executes the plans of an fsync batch before `run` returns."""

    batches_max = 1

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def run(self, root: str, plans: Sequence[FlushPlan], done: Then) -> None:
        """See `Syncer`."""
        done(outcome_of(sync, (self._disk, plans)))


def sync(disk: Disk, plans: Iterable[FlushPlan]) -> None:
    """Job: sync all files of the plans. An OSError is final, because the lost data is unknown."""
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
    """Job: write the producer snapshots of the rolls, and sync them if `sync` is set. Raises OSError."""
    assert plan.directory is not None
    try:
        producer_state_loader.write_snapshots(disk, plan.directory, plan.snapshots, plan.bases, sync=sync)
    except FileNotFoundError:
        return
    except OSError as error:
        if not is_transient(error):
            raise
        LOGGER.warning("%s: cannot write the producer snapshot: %s", plan.directory, error)


def sync_path(disk: Disk, path: str) -> None:
    """Job: sync a file by its name, if it still exists. Raises OSError."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    sync_and_close(file)


def sync_and_close(file: File) -> None:
    """Sync an open file, and close it even if the sync fails. Raises OSError."""
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
