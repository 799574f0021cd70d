"""Reads every batch of a segment file offline, for the checks of the smaller files; nothing is changed.

1. A bad batch is reported with its position. Reading continues after it, by its length or at the next valid batch.
2. Memory is 32 bytes per batch and a chunk of the file, independent of damaged lengths.
3. C code walks over batches without violations (`_speedups/storage/verify_batches`); all violations are reported here.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk, File
from kafkalite._speedups.storage.verify_batches import VerifiedRun, find_batch, run
from kafkalite.records import BatchLocation, Scan, scan_batches
from kafkalite.records.batch_header import BATCH_LENGTH_AT, HEADER_SIZE, LENGTH_OVERHEAD
from kafkalite.storage import names

CHUNK_BYTES = 4 << 20
BATCH_BYTES_MAX = 256 << 20

WHOLE_BATCHES = 2
OFFSETS_GROW = 3
EPOCHS_GROW = 7
NO_GAPS = 11
OFFSET_MAX = 2**63 - 1
NOWHERE = -1  # the position of a violation that has no position

Advance = Callable[[int], object]


class Violation(NamedTuple):
    """An invariant of storage/README.md that does not hold.

    Attributes:
        number: of the invariant.
        path: the file or directory.
        position: in bytes, -1 where it is in no byte in particular.
        text: the violation.
    """

    number: int
    path: str
    position: int
    text: str


class Batches:
    """The positions, offsets and timestamps of the batches of one segment."""

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = 0
        self.positions = array("q")
        self.base_offsets = array("q")
        self.last_offsets = array("q")
        self.max_timestamps = array("q")
        self.epochs: list[tuple[int, int, int]] = []  # (epoch, first offset, position), wherever it changes

    @property
    def next_offset(self) -> int:
        """The last offset plus one; the base offset of an empty segment."""
        return self.last_offsets[-1] + 1 if self.last_offsets else self.base_offset

    @property
    def max_timestamp(self) -> int:
        """The highest timestamp, -1 for none."""
        return max(self.max_timestamps, default=-1)

    def add(self, location: BatchLocation) -> None:
        if not self.epochs or self.epochs[-1][0] != location.leader_epoch:
            self.epochs.append((location.leader_epoch, location.base_offset, location.position))
        self.positions.append(location.position)
        self.base_offsets.append(location.base_offset)
        self.last_offsets.append(location.base_offset + location.last_offset_delta)
        self.max_timestamps.append(location.max_timestamp)

    def extend(self, run: VerifiedRun) -> None:
        """Add batches of the leader epoch of the last one."""
        columns = self.positions, self.base_offsets, self.last_offsets, self.max_timestamps
        for column, data in zip(columns, run.columns(), strict=True):
            column.frombytes(data)

    def forget_last(self) -> None:
        """Remove the last batch, whose offsets are wrong."""
        if self.epochs[-1][2] == self.positions[-1]:
            self.epochs.pop()
        for column in (self.positions, self.base_offsets, self.last_offsets, self.max_timestamps):
            column.pop()

    def at(self, position: int) -> int | None:
        """Number of the batch that begins at a position, None where none does."""
        found = bisect_left(self.positions, position)
        return found if found < len(self.positions) and self.positions[found] == position else None

    def holding(self, offset: int) -> int | None:
        """Number of the batch that has an offset, None where none has."""
        found = bisect_left(self.last_offsets, offset)
        return found if found < len(self.last_offsets) and self.base_offsets[found] <= offset else None


class SegmentReader:
    """Reads the `.log` files of one partition, one after another, in the order of their offsets.

    Arguments:
        disk: the disk port.
        compacted: gaps between offsets are normal, as the cleaner leaves them.
        gaps_until: gaps between segments are normal below it; the cleaner of this broker leaves none.
        advance: called with the bytes read.
    """

    def __init__(self, disk: Disk, *, compacted: bool, advance: Advance, gaps_until: int = OFFSET_MAX) -> None:
        self._disk = disk
        self._compacted = compacted
        self._gaps_until = gaps_until if compacted else 0
        self._advance = advance
        self._next_offset = -1
        self._epoch = -1
        self._before_gap = -1  # the offset expected before the last batch, where that one left some out

    def read(self, path: str, batches: Batches) -> Iterator[Violation]:
        """Fill `batches` from the file and report violations. Raises OSError."""
        if batches.base_offset < self._next_offset:
            text = f"begins at offset {batches.base_offset}, but the segment before it ends at {self._next_offset - 1}"
            yield Violation(OFFSETS_GROW, path, NOWHERE, text)
        elif batches.base_offset > self._next_offset >= self._gaps_until:
            text = f"offsets {self._next_offset} to {batches.base_offset - 1} are missing before this segment"
            yield Violation(NO_GAPS, path, NOWHERE, text)
        self._next_offset = max(self._next_offset, batches.base_offset)
        self._before_gap = -1
        file = self._disk.open(path, read_only=True)
        try:
            batches.size = file.size()
            yield from self._walk(file, batches)
        finally:
            file.close()

    def _walk(self, file: File, batches: Batches) -> Iterator[Violation]:
        position, wanted = 0, CHUNK_BYTES
        while position < batches.size:
            data = file.pread(max(wanted, CHUNK_BYTES), position)
            scan = yield from self._chunk(data, position, batches)
            begin, position = position, position + scan.end
            if scan.error or scan.needs > min(batches.size - position, BATCH_BYTES_MAX):
                message = (scan.message or "truncated batch").partition(" at position")[0]
                if not scan.error:
                    message = (
                        f"a batch of {scan.needs} bytes is truncated: the file has {batches.size - position} of them"
                    )
                yield Violation(WHOLE_BATCHES, batches.path, position, message)
                position, wanted = _behind(file, position, data[scan.end : scan.end + LENGTH_OVERHEAD], batches), 0
            else:
                wanted = scan.needs
            self._advance(position - begin)

    def _chunk(self, data: bytes, position: int, batches: Batches) -> Generator[Violation, None, Scan]:
        """Check the complete batches of a chunk of the file; return why the scan stopped."""
        at = 0
        while True:
            if batches.epochs and batches.epochs[-1][0] == self._epoch:
                base, expected = batches.base_offset, self._next_offset
                found = run(data, at, position, base, expected, self._epoch, self._compacted)
                if found.count:
                    batches.extend(found)
                    at, self._next_offset, self._before_gap = found.end, found.next_offset, found.before_gap
            scan = scan_batches(data, at, 1)
            for location in scan:
                yield from self._batch(batches, location._replace(position=position + location.position))
            at = scan.end
            if not len(scan):
                return scan

    def _batch(self, batches: Batches, location: BatchLocation) -> Iterator[Violation]:
        where, expected = (batches.path, location.position), self._next_offset
        last = location.base_offset + location.last_offset_delta
        if location.base_offset < expected or location.last_offset_delta < 0:
            yield Violation(
                OFFSETS_GROW, *where, f"offsets {location.base_offset} to {last} where {expected} was the next"
            )
            if not 0 <= self._before_gap <= location.base_offset or location.last_offset_delta < 0:
                return
            batches.forget_last()  # without the previous batch, this batch and the next ones are in order
            expected = self._before_gap
        if last - batches.base_offset > 0x7FFFFFFF:
            text = f"offset {last} is too far from the base offset for an index"
            yield Violation(OFFSETS_GROW, *where, text)
            return
        if location.base_offset > expected and not self._compacted:
            yield Violation(
                NO_GAPS, *where, f"offsets {expected} to {location.base_offset - 1} are missing before this"
            )
        if location.leader_epoch < self._epoch:
            text = f"leader epoch {location.leader_epoch} follows {self._epoch}"
            yield Violation(EPOCHS_GROW, *where, text)
        self._epoch = max(self._epoch, location.leader_epoch)
        self._before_gap = expected if location.base_offset > expected else -1
        self._next_offset = last + 1
        batches.add(location)


def _behind(file: File, position: int, frame: bytes, batches: Batches) -> int:
    """Return the position of the next batch after a bad one: by its length, or else by a search."""
    length = (
        LENGTH_OVERHEAD + int.from_bytes(frame[BATCH_LENGTH_AT:], "big", signed=True)
        if len(frame) == LENGTH_OVERHEAD
        else 0
    )
    end = position + length
    if length >= HEADER_SIZE and end < batches.size:
        scan = scan_batches(file.pread(CHUNK_BYTES, end), 0, 1)
        if len(scan) or CHUNK_BYTES < scan.needs <= batches.size - end:
            return end
    position += 1
    while position < batches.size:
        data = file.pread(CHUNK_BYTES, position)
        if (found := find_batch(data, batches.base_offset)) >= 0:
            return position + found
        position += max(len(data) - HEADER_SIZE + 1, 1)
    return batches.size


def base_offset(name: str) -> int:
    """The offset in the name of a segment's file."""
    found = names.parse_file_name(name)
    assert found is not None, "only files of segments are asked for"
    return found[0]
