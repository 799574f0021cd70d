"""Plans the flush of a log: which files a job (`flush_job`) must sync.

1. After a plan was executed, everything below its offset is on the disk: batches, epochs and the small files of all
   closed segments.
2. A plan contains the closed segments that may not be on the disk, the newest first.

Source: UnifiedLog.flush.
"""

from typing import Protocol

from kafkalite.storage import names
from kafkalite.storage.log.flush_job import FlushPlan
from kafkalite.storage.log.leader_epoch_cache import LeaderEpochCache
from kafkalite.storage.log.segment import Segment


class PlannedLog(Protocol):
    """The part of a `Log` that decides what a flush must sync."""

    directory: str
    segments: tuple[Segment, ...]
    active: Segment
    epochs: LeaderEpochCache
    due_snapshots: dict[int, bytes]
    log_end_offset: int
    synced: int
    truncations: int
    rolls: int

    @property
    def rolled(self) -> bool: ...
    @property
    def needs_snapshot(self) -> bool: ...
    def take_due_snapshots(self) -> dict[int, bytes]: ...
    def bases(self) -> list[int]: ...
    def pack_producers(self) -> bytes: ...


def flush_plan(log: PlannedLog, *, active: bool) -> FlushPlan:
    """The files of a log to sync; without `active`, those of closed segments only."""
    # An empty segment may begin below the log end: then the log start lies within the batch that comes next.
    offset = log.log_end_offset if active and log.active.size else log.active.base_offset
    plan = FlushPlan(offset, log.truncations, log.rolls, log.epochs.written)
    if log.epochs.written > log.epochs.flushed:
        plan.paths.append(log.epochs.path)
        plan.directory = log.directory
    if log.rolled:
        _add_closed(log, plan)
        _add_snapshots(log, plan)
    if active:
        plan.files.append(log.active.opened)
        if log.active.transactions.take_unsynced():
            plan.paths.append(log.active.transactions.path)
            plan.directory = log.directory
    return plan


def closing_plan(log: PlannedLog) -> FlushPlan:
    """All files of a log after its last append, with a producer snapshot at its end if the next start needs it."""
    plan = flush_plan(log, active=True)
    if log.needs_snapshot:
        log.due_snapshots[log.log_end_offset] = log.pack_producers()
        _add_snapshots(log, plan)
    plan.directory = log.directory
    plan.paths += [log.active.path(suffix) for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)]
    return plan


def _add_snapshots(log: PlannedLog, plan: FlushPlan) -> None:
    """Add the producer snapshots of each roll, before the recovery point passes it."""
    plan.snapshots |= log.take_due_snapshots()
    plan.bases = log.bases()
    plan.directory = log.directory


def _add_closed(log: PlannedLog, plan: FlushPlan) -> None:
    """Add the closed segments that may not be on the disk, the newest first; unloaded ones are synced by path."""
    for segment in reversed(log.segments[:-1]):
        if segment.file is not None:
            plan.files.append(segment.file)
        else:
            plan.paths.append(segment.path(names.LOG))
        plan.paths += [segment.path(suffix) for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)]
        if segment.base_offset < log.synced:  # a segment that ended there was synced without its last index entry
            break
