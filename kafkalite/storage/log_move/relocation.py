"""Lets a log continue in another directory: that it was renamed to, or that has copies of its files.

The `Log` stays the same object with the same state: offsets, producers, epochs and the indexes of the active segment.
"""

import os

from kafkalite._speedups.storage.file import File
from kafkalite.clock import Outcome
from kafkalite.model import TopicPartition
from kafkalite.storage import names
from kafkalite.storage.log.log import Log
from kafkalite.storage.log_move.ports import MovePorts


def rename(log: Log, directory: str) -> None:
    """Continue in the directory that the log's directory was renamed to."""
    log.directory, log.root = directory, os.path.dirname(directory)
    log.epochs.path = os.path.join(directory, names.LEADER_EPOCH_CHECKPOINT)
    for segment in log.segments:
        segment.relocate(directory)


def relocate(ports: MovePorts, log: Log, directory: str, active: File, epochs: int) -> None:
    """Continue with the copies in another log directory, and let all that knows the log by its directory follow.

    Arguments:
        ports: of the log manager.
        log: without queued appends, in no flush.
        directory: of the copies, which are on the disk up to the log end.
        active: the opened copy of the active segment.
        epochs: the version of the leader epochs in the copy.
    """
    old_root, key = log.root, TopicPartition(log.topic, log.partition)
    ports.files.drop(log)
    ports.files.note_deleted(old_root, key)
    _use_copies(log, directory, active, epochs)
    ports.files.others[log.root].pop(key, None)
    ports.files.note(log)
    ports.logs.reserve(old_root, -1)  # a move counts for its target from its beginning
    for flusher in ports.flushers:
        flusher.relocate(log, old_root)
    if ports.logs.cleaner is not None:
        ports.logs.cleaner.relocated(log, old_root)


def _use_copies(log: Log, directory: str, active: File, epochs: int) -> None:
    """Running reads continue with the old files."""
    assert log.pending_bytes == 0, "a log is moved without queued appends"
    rename(log, directory)
    for segment in log.segments[:-1]:
        if log.cache is not None:
            log.cache.forget(segment)
        segment.unload()
    log.active.file = active
    log.synced = log.recovery_point = log.log_end_offset
    log.rolls_flushed = log.rolls
    log.due_snapshots = {}
    log.may_have_snapshots = True
    log.epochs.written = log.epochs.flushed = epochs
    log.complete_state = None


def remove_old(ports: MovePorts, log: Log, old_root: str, old_directory: str) -> None:
    """Remove the old directory of a log that was moved, once the checkpoints there do not name it any more."""

    def written(outcome: Outcome) -> None:
        if outcome.error is None:
            ports.deletions.directories([old_directory], log.config.file_delete_delay_ms)

    ports.files.write_both(old_root, written)
