"""Recovers the producers and transactions of a log from a snapshot and from the batches that follow it.

1. The newest readable snapshot in the flushed part of the log is used; the state after it is read from the headers of
   the batches. Without a snapshot, all batches are read.
2. From the snapshot on, the index of aborted transactions of a segment is rebuilt from its batches.
3. The snapshots at the base offset of a segment are kept, and the newest one. None stays above the log end.
4. Unlike in Kafka, producers do not expire here by the timestamps of their batches.

Sources: UnifiedLog.rebuildProducerState, ProducerStateManager.removeStraySnapshots, LogSegment.recover.
"""

import logging
import os
from collections.abc import Iterable, Sequence

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.producer_state import ProducerState
from kafkalite._speedups.storage.recovery_scan import note_producers
from kafkalite.storage import names
from kafkalite.storage.log.producer_snapshots import BadSnapshot, read_snapshot, snapshot_offsets, write_packed
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.log.transaction_index import AbortedTransaction, BadTransactionIndex

Aborted = Iterable[tuple[int, int, int, int]]
LOGGER = logging.getLogger("kafkalite.storage.log.producer_state_loader")


def snapshot_path(directory: str, offset: int) -> str:
    """The path of the snapshot at `offset`."""
    return os.path.join(directory, names.file_name(offset, names.SNAPSHOT))


def load_snapshot(
    disk: Disk, directory: str, limit: int, state: ProducerState, offsets: Sequence[int] | None = None
) -> int:
    """Load the newest snapshot at or below `limit`, and remove those above it and unreadable ones.

    Arguments:
        disk, directory: of the partition.
        limit: largest offset of the snapshot.
        state: replaced by the content of the snapshot.
        offsets: of the snapshots in the directory, the newest last; None: they are listed.

    Returns the offset of the snapshot, 0 if there is none. Raises OSError.
    """
    state.clear()
    for offset in reversed(snapshot_offsets(disk, directory) if offsets is None else offsets):
        path = snapshot_path(directory, offset)
        if offset <= limit:
            try:
                state.load(read_snapshot(disk, path))
                return offset
            except BadSnapshot as error:
                LOGGER.warning("%s; the producer state is rebuilt from the batches", error)
        disk.remove(path)
    return 0


def readable_until(segments: Sequence[Segment], limit: int) -> int:
    """`limit`, or the base offset of the first segment below it whose index of aborted transactions is damaged."""
    for segment in segments:
        try:
            segment.transactions.load()
        except BadTransactionIndex as error:
            LOGGER.warning("%s; rebuilt from the batches", error)
            segment.transactions.ignore_file()
            limit = min(limit, segment.base_offset)
    return limit


def take_aborted(segment: Segment, from_offset: int, aborted: Aborted) -> None:
    """Replace the entries of a segment's index of aborted transactions from `from_offset` on. Raises OSError."""
    known = segment.transactions.entries()
    wanted = [entry for entry in known if entry.last_offset < from_offset]
    wanted += [AbortedTransaction(*entry) for entry in aborted]
    if wanted != known or segment.transactions.damaged:
        segment.transactions.replace(wanted)


def replay(segment: Segment, from_offset: int, state: ProducerState) -> None:
    """Read producers and transactions from the headers of a segment's batches. Raises OSError."""
    take_aborted(segment, from_offset, note_producers(segment, from_offset, state))


def rebuild(disk: Disk, directory: str, segments: Sequence[Segment], end_offset: int, state: ProducerState) -> None:
    """Rebuild the state of a log that was truncated. Raises OSError.

    Arguments:
        disk, directory: have the snapshots.
        segments: that are left, oldest first.
        end_offset: the new log end.
        state: empty; it is filled.
    """
    from_offset = load_snapshot(disk, directory, end_offset, state)
    ends = [segment.base_offset for segment in segments[1:]]
    for segment, end in zip(segments, [*ends, end_offset], strict=True):
        if end > from_offset:
            replay(segment, from_offset, state)


def write_snapshots(
    disk: Disk, directory: str, due: dict[int, bytes], bases: Iterable[int], *, sync: bool = True
) -> None:
    """Job: write the snapshots of rolls, and remove those that are not needed. Raises OSError.

    Arguments:
        disk, directory: of the partition.
        due: packed producers (`ProducerState.pack`) by offset.
        bases: base offsets of the segments.
        sync: whether the files are also synced.
    """
    for offset, packed in due.items():
        write_packed(disk, directory, offset, packed, sync=sync)
    remove_stray(disk, directory, bases)


def remove(disk: Disk, directory: str, offsets: Iterable[int]) -> None:
    """Remove these snapshots, if they exist, because their batches were truncated. Raises OSError."""
    for offset in set(offsets) & set(snapshot_offsets(disk, directory)):
        disk.remove(snapshot_path(directory, offset))


def remove_stray(disk: Disk, directory: str, bases: Iterable[int]) -> None:
    """Remove the snapshots that are not at the base offset of a segment, except the newest one. Raises OSError."""
    known = set(bases)
    for offset in snapshot_offsets(disk, directory)[:-1]:
        if offset not in known:
            disk.remove(snapshot_path(directory, offset))
