"""Checks the producer snapshots of a partition against its batches; nothing is changed.

1. The state of a producer in a snapshot is the one that its batches below the snapshot produce, unless those were
   deleted with old segments. A producer that is missing in it may have expired.
2. The cleaner may have removed batches and markers that a snapshot includes: only existing batches can contradict it.
3. The snapshots at the base offset of a segment and at the log end are checked, up to the first damaged batch.

Sources: ProducerStateManager.java, `log/producer_state_loader`.
"""

from collections.abc import Iterator, Mapping, Sequence

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.producer_state import Producer, ProducerState
from kafkalite._speedups.storage.recovery_scan import scan
from kafkalite.config.topic import TopicConfig
from kafkalite.storage import names
from kafkalite.storage.log.producer_snapshots import BadSnapshot, read_snapshot
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.verify.verify_segments import NOWHERE, Batches, Violation

SNAPSHOTS_ARE_TRUE = 17
NO_INDEX = 2**63 - 1  # an interval at which nothing is indexed
CONFIG = TopicConfig()


def check_kept(snapshots: Mapping[int, str], bases: set[int]) -> Iterator[Violation]:
    """After a clean end no snapshot stays but those at the base of a segment and the newest; paths by offset."""
    for offset, path in sorted(snapshots.items())[:-1]:
        if offset not in bases:
            yield Violation(SNAPSHOTS_ARE_TRUE, path, NOWHERE, "is at the base of no segment, and not the newest")


def check_producers(
    disk: Disk, directory: str, segments: Sequence[Batches], snapshots: Mapping[int, str], *, compacted: bool
) -> Iterator[Violation]:
    """Read the producers from the batches, and compare them with each snapshot. Raises OSError.

    Arguments:
        disk: has the files.
        directory: of the partition.
        segments: the batches of each segment, oldest first.
        snapshots: the paths of the snapshots by offset.
        compacted: the cleaner may have removed batches of a producer.
    """
    stored = {offset: producers for offset, path in snapshots.items() if (producers := _read(disk, path))}
    if not stored or not segments:
        return
    first, last = segments[0].base_offset, max(stored)
    state = ProducerState()
    for number, batches in enumerate(segments):
        yield from _compare(
            state, stored.pop(batches.base_offset, []), snapshots, batches.base_offset, first, compacted
        )
        if last <= batches.base_offset:
            return
        end = _note(disk, directory, batches.base_offset, state)
        if end is None:
            return
        if number == len(segments) - 1:
            yield from _compare(state, stored.pop(end, []), snapshots, end, first, compacted)


def _read(disk: Disk, path: str) -> list[Producer]:
    try:
        return read_snapshot(disk, path)
    except BadSnapshot:
        return []  # reported by check_snapshot


def _note(disk: Disk, directory: str, base_offset: int, state: ProducerState) -> int | None:
    """Note all batches of a segment; the offset behind them, None where one is damaged. Raises OSError."""
    segment = Segment(base_offset, directory, disk, CONFIG)
    segment.empty_indexes()
    segment.file = file = disk.open(segment.path(names.LOG), read_only=True)
    try:
        found = scan(segment, 0, file.size(), NO_INDEX, state)
    finally:
        file.close()
    return found.next_offset if found.whole else None


def _compare(
    state: ProducerState,
    producers: Sequence[Producer],
    snapshots: Mapping[int, str],
    offset: int,
    first: int,
    compacted: bool,
) -> Iterator[Violation]:
    for stored in producers:
        differs = _cleaned_differs if compacted else _differs
        text = differs(stored, state.entries.get(stored.producer_id), first)
        if text:
            yield Violation(SNAPSHOTS_ARE_TRUE, snapshots[offset], NOWHERE, f"producer {stored.producer_id} {text}")


def _differs(stored: Producer, found: Producer | None, first: int) -> str:
    """Describe how a stored producer differs from the batches, "" for no difference.

    `first`: the base offset of the first segment.
    """
    gone = stored.last_offset < first
    if found is None:
        return "" if gone else f"ends at offset {stored.last_offset}, which no batch has"
    if stored.epoch != found.epoch or (_last(stored) != _last(found) and not (gone and stored.last_offset >= 0)):
        return f"{_producer_text(stored)}; in the batches it {_producer_text(found)}"
    begins, began = stored.first_offset_of_transaction, found.first_offset_of_transaction
    if begins != began and not 0 <= begins < first:
        return f"has a transaction open from {begins} on, in the batches from {began} on (-1: none)"
    return ""


def _cleaned_differs(stored: Producer, found: Producer | None, _first: int) -> str:
    """Describe the difference as `_differs` does, for a compacted log, in which batches may be missing."""
    if found is None or stored.epoch != found.epoch or stored.last_offset < 0:
        return ""
    if stored.last_offset < found.last_offset or (
        stored.last_offset == found.last_offset and stored.last_sequence != found.last_sequence
    ):
        return f"{_producer_text(stored)}; in the batches it {_producer_text(found)}"
    return ""


def _last(producer: Producer) -> tuple[int, int]:
    return producer.last_offset, producer.last_sequence


def _producer_text(producer: Producer) -> str:
    return f"ends at offset {producer.last_offset} with sequence {producer.last_sequence} of epoch {producer.epoch}"
