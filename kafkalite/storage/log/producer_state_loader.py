"""How the producers and transactions of a log are found again: from a snapshot, and from the batches behind it.

Laws:
1. The newest snapshot that reads, at or below what is known to be on the disk, is believed; what follows it is read
   from the headers of the batches. Without a snapshot all batches are read.
2. The index of aborted transactions of a segment is, from the snapshot on, what its batches say.
3. Kept are the snapshots at the base offset of a segment, and the newest. None stays above the end of the log.
4. Producers are not forgotten here by the timestamps of their batches, as Kafka does.

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
logger = logging.getLogger(__name__)


def snapshot_path(directory: str, offset: int) -> str:
    """Where the snapshot as of `offset` is."""
    return os.path.join(directory, names.file_name(offset, names.SNAPSHOT))


def load_snapshot(
    disk: Disk, directory: str, limit: int, state: ProducerState, offsets: Sequence[int] | None = None
) -> int:
    """Put the newest snapshot at or below `limit` into `state`; answer its offset, 0 where there is none.

    Those above `limit` and those that do not read are removed. Raises OSError.

    Arguments:
        offsets: of the snapshots in the directory, the newest last; it is listed without them.
    """
    state.clear()
    for offset in reversed(snapshot_offsets(disk, directory) if offsets is None else offsets):
        path = snapshot_path(directory, offset)
        if offset <= limit:
            try:
                state.load(read_snapshot(disk, path))
                return offset
            except BadSnapshot as error:
                logger.warning("%s; the producer state is rebuilt from the batches", error)
        disk.remove(path)
    return 0


def readable_until(segments: Sequence[Segment], limit: int) -> int:
    """`limit`, or the base of the first segment below it whose index of aborted transactions must be built again."""
    for segment in segments:
        try:
            segment.transactions.load()
        except BadTransactionIndex as error:
            logger.warning("%s; rebuilt from the batches", error)
            segment.transactions.disbelieve()
            limit = min(limit, segment.base_offset)
    return limit


def take_aborted(segment: Segment, from_offset: int, aborted: Aborted) -> None:
    """Let the segment's index hold what was found in its batches from `from_offset` on. Raises OSError."""
    known = segment.transactions.entries()
    wanted = [entry for entry in known if entry.last_offset < from_offset]
    wanted += [AbortedTransaction(*entry) for entry in aborted]
    if wanted != known or segment.transactions.damaged:
        segment.transactions.replace(wanted)


def replay(segment: Segment, from_offset: int, state: ProducerState) -> None:
    """Read producers and transactions from the headers of a segment's batches. Raises OSError."""
    take_aborted(segment, from_offset, note_producers(segment, from_offset, state))


def rebuild(disk: Disk, directory: str, segments: Sequence[Segment], end_offset: int, state: ProducerState) -> None:
    """Bring `state` to the end of a log that was cut to `end_offset`. Raises OSError."""
    from_offset = load_snapshot(disk, directory, end_offset, state)
    ends = [segment.base_offset for segment in segments[1:]]
    for segment, end in zip(segments, [*ends, end_offset], strict=True):
        if end > from_offset:
            replay(segment, from_offset, state)


def write_snapshots(
    disk: Disk, directory: str, due: dict[int, bytes], bases: Iterable[int], *, sync: bool = True
) -> None:
    """Job: write the snapshots taken at rolls, and remove those that serve nobody. Raises OSError.

    Arguments:
        due: offset -> packed producers (`ProducerState.pack`).
        bases: base offsets of the log's segments.
        sync: also to the disk, where the caller does not sync them with others.
    """
    for offset, packed in due.items():
        write_packed(disk, directory, offset, packed, sync=sync)
    remove_stray(disk, directory, bases)


def remove(disk: Disk, directory: str, offsets: Iterable[int]) -> None:
    """Remove these snapshots, where they are: they tell of what was cut since. Raises OSError."""
    for offset in set(offsets) & set(snapshot_offsets(disk, directory)):
        disk.remove(snapshot_path(directory, offset))


def remove_stray(disk: Disk, directory: str, bases: Iterable[int]) -> None:
    """Remove the snapshots that are at no segment's base, but for the newest of all. Raises OSError."""
    known = set(bases)
    for offset in snapshot_offsets(disk, directory)[:-1]:
        if offset not in known:
            disk.remove(snapshot_path(directory, offset))
