"""Checks the smaller files of a partition against the batches of its segments; nothing is changed."""

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import names
from kafkalite.storage.checkpoints import BadCheckpoint, read_epochs
from kafkalite.storage.log.index_entries import OFFSET_ENTRY, TIME_ENTRY
from kafkalite.storage.log.producer_snapshots import BadSnapshot, read_snapshot
from kafkalite.storage.log.transaction_index import ENTRY as ABORTED_ENTRY
from kafkalite.storage.verify.verify_segments import EPOCHS_GROW, NOWHERE, Batches, Violation, base_offset

INDEX_BYTES_MAX = 1 << 30

NO_EPOCH = -1  # of batches that are older than leader epochs

ENTRY_AT_A_BATCH = 4
TIMES_GROW = 6
SNAPSHOTS_READ = 12
ABORTED_IN_ORDER = 13


def _entries(
    disk: Disk, number: int, path: str, layout: struct.Struct, *, preallocated: bool
) -> Iterator[Violation | tuple[int, tuple[int, ...]]]:
    """(position, fields) of each entry; zeros at the end of a `preallocated` file are free space, as in Kafka.

    Raises OSError.
    """
    if disk.size(path) > INDEX_BYTES_MAX:
        yield Violation(number, path, NOWHERE, f"{disk.size(path)} bytes are too many for an index")
        return
    data = disk.read_bytes(path)
    end = len(data)
    if preallocated:
        end = min(end, -(-len(data.rstrip(b"\0")) // layout.size) * layout.size)
    for position in range(0, end - end % layout.size, layout.size):
        yield position, layout.unpack_from(data, position)
    if end % layout.size:
        yield Violation(number, path, end - end % layout.size, f"the size is not a multiple of {layout.size}")


def check_offset_index(disk: Disk, path: str, batches: Batches, *, preallocated: bool) -> Iterator[Violation]:
    """`.index`: each entry names the start of a batch, and an offset at or behind it. Raises OSError."""
    before = (-1, -1)
    for found in _entries(disk, ENTRY_AT_A_BATCH, path, OFFSET_ENTRY, preallocated=preallocated):
        if isinstance(found, Violation):
            yield found
            continue
        at, (relative, position) = found
        text = _wrong_offset(batches, batches.base_offset + relative, position)
        if relative <= before[0] or position <= before[1]:
            text = f"offset {batches.base_offset + relative} at {position} does not come after the entry before"
        if text is not None:
            yield Violation(ENTRY_AT_A_BATCH, path, at, text)
        before = relative, position


def _wrong_offset(batches: Batches, offset: int, position: int) -> str | None:
    number = batches.at(position)
    if number is None:
        return f"the entry maps offset {offset} to position {position}, where no batch begins"
    named = batches.holding(offset)
    if named is None or named < number:
        base = batches.base_offsets[number]
        return f"the entry maps offset {offset} to position {position}, where offset {base} begins"
    if batches.last_offsets[named] != offset:
        return f"offset {offset} is not the last one of a batch"
    return None


def check_time_index(
    disk: Disk, path: str, batches: Batches, *, closed: bool, preallocated: bool
) -> Iterator[Violation]:
    """Check a `.timeindex`: it has the highest timestamps so far. Raises OSError.

    Arguments:
        disk: has the file.
        path: of the file.
        batches: of its segment.
        closed: the segment is not the active one: the last entry is its highest timestamp.
        preallocated: zeros at the end of the file are no entries.
    """
    before = (-1, -1)
    for found in _entries(disk, TIMES_GROW, path, TIME_ENTRY, preallocated=preallocated):
        if isinstance(found, Violation):
            yield found
            continue
        at, (timestamp, relative) = found
        text = _wrong_time(batches, timestamp, batches.base_offset + relative)
        if timestamp <= before[0] or relative < before[1]:
            text = f"timestamp {timestamp} does not come after the entry before"
        if text is not None:
            yield Violation(TIMES_GROW, path, at, text)
        before = timestamp, relative
    if closed and before[0] != batches.max_timestamp:
        text = f"the last entry is {before[0]}, the highest timestamp of the segment {batches.max_timestamp}"
        yield Violation(TIMES_GROW, path, NOWHERE, text)


def _wrong_time(batches: Batches, timestamp: int, offset: int) -> str | None:
    number = batches.holding(offset)
    if number is None:
        return f"the entry maps timestamp {timestamp} to offset {offset}, which no batch has"
    if batches.max_timestamps[number] != timestamp:
        highest = batches.max_timestamps[number]
        return f"the entry maps timestamp {timestamp} to offset {offset}, in a batch with the maximum {highest}"
    return None


def check_aborted(disk: Disk, path: str, batches: Batches) -> Iterator[Violation]:
    """`.txnindex`: aborted transactions in the order of their last offsets, which are in the segment. OSError."""
    before = -1
    for found in _entries(disk, ABORTED_IN_ORDER, path, ABORTED_ENTRY, preallocated=False):
        if isinstance(found, Violation):
            yield found
            continue
        at, (version, _producer_id, first, last, stable) = found
        if version != 0:
            yield Violation(ABORTED_IN_ORDER, path, at, f"unknown version {version}")
        elif not 0 <= first <= last or last < before or stable < 0:
            text = f"offsets {first} to {last} (last stable offset {stable}) are out of order"
            yield Violation(ABORTED_IN_ORDER, path, at, text)
        elif not batches.base_offset <= last < batches.next_offset:
            yield Violation(ABORTED_IN_ORDER, path, at, f"last offset {last} is not in this segment")
        before = last


def check_snapshot(disk: Disk, path: str, log_end: int) -> Iterator[Violation]:
    """`.snapshot`: it is readable, not beyond the log end, and contains only offsets below its own. Raises OSError."""
    offset = base_offset(os.path.basename(path))
    if offset > log_end:
        yield Violation(SNAPSHOTS_READ, path, NOWHERE, f"is of offset {offset}, but the log ends at {log_end}")
    try:
        producers = read_snapshot(disk, path)
    except BadSnapshot as error:
        yield Violation(SNAPSHOTS_READ, path, NOWHERE, str(error).removeprefix(f"{path}: "))
        return
    for producer in producers:
        if producer.last_sequence >= 0 and producer.last_offset >= offset:
            text = f"producer {producer.producer_id} has offset {producer.last_offset}, not below {offset}"
            yield Violation(SNAPSHOTS_READ, path, NOWHERE, text)


def check_epochs(disk: Disk, path: str, segments: list[Batches], log_start: int, log_end: int) -> Iterator[Violation]:
    """Check `leader-epoch-checkpoint`: it grows, ends before the log end, and agrees with the batches. Raises OSError.

    An epoch that begins at the log end has no batch yet: its leader wrote it when it began.

    Arguments:
        disk: has the file.
        path: of the file.
        segments: the batches of each segment, oldest first.
        log_start, log_end: offsets of the log.
    """
    try:
        entries = read_epochs(disk, path)
    except BadCheckpoint as error:
        yield Violation(EPOCHS_GROW, path, NOWHERE, str(error).removeprefix(f"{path}: "))
        return
    if entries and entries[-1][1] > log_end:
        text = f"epoch {entries[-1][0]} begins at {entries[-1][1]}, the log ends at {log_end}"
        yield Violation(EPOCHS_GROW, path, NOWHERE, text)
    begins = dict(entries)
    ends = {epoch: following[1] for (epoch, _), following in pairwise(entries)}
    for batches in segments:
        runs = pairwise([*batches.epochs, (NO_EPOCH, batches.next_offset, batches.size)])
        for (epoch, first, position), (_, _, following) in runs:
            last = batches.last_offsets[bisect_left(batches.positions, following) - 1]  # a gap may come after it
            if epoch == NO_EPOCH or first < log_start:
                continue
            if epoch not in begins:
                text = f"leader epoch {epoch} is not in {names.LEADER_EPOCH_CHECKPOINT}"
            elif begins[epoch] > first:
                text = f"leader epoch {epoch} begins at {begins[epoch]} in the checkpoint, but offset {first} has it"
            elif epoch in ends and last >= ends[epoch]:
                text = f"leader epoch {epoch} ends at {ends[epoch]} in the checkpoint, but offset {last} has it"
                position = batches.positions[bisect_left(batches.last_offsets, ends[epoch])]
            else:
                continue
            yield Violation(EPOCHS_GROW, batches.path, position, text)
