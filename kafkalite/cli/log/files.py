"""Reads the files of a partition offline, with their contents and defects; nothing is changed.

Every finding is an event, in the order of the files. After a defect the reader continues where the bytes can be parsed
again. It checks sizes, CRCs, counts and offsets of batches, every record, each index entry against its batch, producer
snapshots, epochs and metadata (what DumpLogSegments of Apache Kafka checks, and what the broker relies on).
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import Batch, BatchError, BatchLocation, Record, scan_batches, set_base_offset, validate_batch
from kafkalite.records.batch_header import BATCH_LENGTH_AT, HEADER_SIZE, LENGTH_OVERHEAD, LOG_APPEND_TIME_BIT
from kafkalite.records.legacy import LegacyEntry, LegacyRecord
from kafkalite.storage import names

CHUNK_BYTES = 4 << 20
SIZE_MAX = 2**31 - 1
DECOMPRESSED_MAX = 1 << 30
RECORD_ERRORS_MAX = 3  # invalid records of one batch that are reported one by one
LENGTH = struct.Struct(">i")


class FileSeen(NamedTuple):
    """The start of a file."""

    path: Path
    size: int


class BatchSeen(NamedTuple):
    """A batch with a valid frame; `location` contains its position in the file."""

    path: Path
    location: BatchLocation


class RecordSeen(NamedTuple):
    path: Path
    record: Record | LegacyRecord


class EntrySeen(NamedTuple):
    """An entry of a smaller file, with named fields."""

    path: Path
    fields: dict[str, int | str]


class Defect(NamedTuple):
    """A defect: `position` in bytes, None if it has no position."""

    path: Path
    position: int | None
    text: str


Event = FileSeen | BatchSeen | RecordSeen | EntrySeen | Defect


class BatchPositions:
    """The positions of the batches of a segment, with which the indexes are compared."""

    def __init__(self) -> None:
        self.positions = array("q")
        self.last_offsets = array("q")
        self.max_timestamps = array("q")

    def add(self, location: BatchLocation) -> None:
        self.positions.append(location.position)
        self.last_offsets.append(location.base_offset + location.last_offset_delta)
        self.max_timestamps.append(location.max_timestamp)

    def last_offset_at(self, position: int) -> int | None:
        """Last offset of the batch that begins there; None when none does."""
        at = bisect_left(self.positions, position)
        found = at < len(self.positions) and self.positions[at] == position
        return self.last_offsets[at] if found else None

    def max_timestamp_of(self, offset: int) -> int | None:
        """Highest timestamp of the batch with this offset; None when none has it."""
        at = bisect_left(self.last_offsets, offset)
        return self.max_timestamps[at] if at < len(self.last_offsets) else None


class LogReader:
    """Reads the `.log` files of one partition, one after another.

    Arguments:
        disk: the disk port.
        compacted: gaps between offsets are normal, as the cleaner leaves them.
        with_records: records become events too.
        advance: called with the bytes read, for a progress bar.
        gap_hint: appended to the text of the first gap.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        compacted: bool,
        with_records: bool,
        advance: Callable[[int], object],
        gap_hint: str = "",
    ) -> None:
        self._disk = disk
        self._gap_hint = gap_hint
        self._compacted = compacted
        self._with_records = with_records
        self._advance = advance
        self.next_offset: int | None = None
        self._epoch = -1
        self.locations = BatchPositions()

    def read(self, path: Path) -> Iterator[Event]:
        """Yield all events of one segment; `locations` has its batches afterwards. Raises OSError."""
        self.locations = BatchPositions()
        file = self._disk.open(str(path), read_only=True)
        try:
            size = file.size()
            yield FileSeen(path, size)
            yield from self._segment_start(path)
            yield from self._batches(path, file, size)
        finally:
            file.close()

    def _segment_start(self, path: Path) -> Iterator[Event]:
        named = names.parse_file_name(path.name)
        if named is None:
            return
        if self.next_offset is not None and named[0] != self.next_offset and not self._compacted:
            text = f"starts at offset {named[0]}, the previous segment ends at {self.next_offset - 1}"
            yield self._gap(path, None, text)
        self.next_offset = named[0] if self.next_offset is None else max(named[0], self.next_offset)

    def _batches(self, path: Path, file: File, size: int) -> Iterator[Event]:
        position, wanted = 0, CHUNK_BYTES
        while position < size:
            data = file.pread(max(wanted, CHUNK_BYTES), position)
            scan = scan_batches(data)
            for location in scan:
                moved = location._replace(position=position + location.position)
                yield from self._batch(path, moved, data[location.position : location.position + location.size])
            position += scan.end
            self._advance(scan.end)
            if scan.error:
                rest = data[scan.end :]
                step = yield from self._fault(path, position, size, rest, scan.error, scan.message or "corrupt batch")
                position += step
                self._advance(step)
            elif scan.needs > size - position:
                yield Defect(path, position, f"a batch of {scan.needs} bytes is truncated to {size - position}")
                return
            wanted = scan.needs

    def _fault(
        self, path: Path, position: int, size: int, data: bytes, error: int, message: str
    ) -> Generator[Event, None, int]:
        """Report an invalid batch; returns how many bytes to skip, up to the end if its size is unknown."""
        left = size - position
        length = LENGTH.unpack_from(data, BATCH_LENGTH_AT)[0] + LENGTH_OVERHEAD if len(data) >= LENGTH_OVERHEAD else 0
        if error == KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT and LENGTH_OVERHEAD < length <= len(data):
            yield from self._legacy(path, position, data)
            return length
        yield Defect(path, position, message)
        if HEADER_SIZE <= length < left:
            return length
        if left > length:
            yield Defect(path, position, f"the remaining {left} bytes cannot be read")
        return left

    def _batch(self, path: Path, location: BatchLocation, data: bytes) -> Iterator[Event]:
        yield from self._in_order(path, location)
        self.locations.add(location)
        yield BatchSeen(path, location)
        yield from self._walked(path, location, data) if self._compacted else self._validated(path, location, data)
        if self._with_records:
            yield from self._records(path, location, data)

    def _in_order(self, path: Path, location: BatchLocation) -> Iterator[Event]:
        expected, last = self.next_offset, location.base_offset + location.last_offset_delta
        if expected is not None and location.base_offset < expected:
            yield Defect(path, location.position, f"duplicate offset {location.base_offset}, expected {expected}")
        elif expected is not None and location.base_offset > expected and not self._compacted:
            missing = (
                f"{expected} to {location.base_offset - 1}" if location.base_offset > expected + 1 else f"{expected}"
            )
            yield self._gap(path, location.position, f"a gap: offsets {missing} are missing")
        if location.leader_epoch < self._epoch:
            yield Defect(path, location.position, f"leader epoch {location.leader_epoch} follows {self._epoch}")
        self._epoch = max(self._epoch, location.leader_epoch)
        self.next_offset = max(last + 1, expected or 0)

    def _gap(self, path: Path, position: int | None, text: str) -> Defect:
        hint, self._gap_hint = self._gap_hint, ""
        return Defect(path, position, text + hint)

    def _validated(self, path: Path, location: BatchLocation, data: bytes) -> Iterator[Event]:
        batch = bytearray(data)
        set_base_offset(batch, 0)  # as its producer sent it
        found = validate_batch(
            batch, compacted=False, size_max=SIZE_MAX, decompressed_max=DECOMPRESSED_MAX, control_allowed=True
        )
        if found.error:
            yield Defect(path, location.position, found.message or "invalid batch")
            for index, text in found.record_errors[:RECORD_ERRORS_MAX]:
                yield Defect(path, location.position, f"record {index}: {text}")
        elif found.max_timestamp != found.header_max_timestamp and not location.attributes & LOG_APPEND_TIME_BIT:
            text = f"max timestamp is {found.header_max_timestamp}, the records' highest is {found.max_timestamp}"
            yield Defect(path, location.position, text)

    def _walked(self, path: Path, location: BatchLocation, data: bytes) -> Iterator[Event]:
        last, end = location.base_offset - 1, location.base_offset + location.last_offset_delta
        try:
            for record in Batch(data, 0, DECOMPRESSED_MAX):
                if not last < record.offset <= end:
                    yield Defect(
                        path, location.position, f"record offset {record.offset} is not in {last + 1} to {end}"
                    )
                last = record.offset
        except BatchError as error:
            yield Defect(path, location.position, str(error))

    def _records(self, path: Path, location: BatchLocation, data: bytes) -> Iterator[Event]:
        records = iter(Batch(data, 0, DECOMPRESSED_MAX))
        for _ in range(location.records_count):
            try:
                record = next(records)
            except (BatchError, StopIteration):
                return  # reported by the check of the whole batch
            yield RecordSeen(path, record)

    def _legacy(self, path: Path, position: int, data: bytes) -> Iterator[Event]:
        """An entry of magic 0 or 1."""
        try:
            entry = LegacyEntry(data)
            entry.check_crc()
            records = entry.records()
        except BatchError as error:
            yield Defect(path, position, str(error))
            return
        highest = max(record.timestamp for record in records)
        first = records[0].offset
        location = BatchLocation(
            position,
            entry.size,
            first,
            entry.offset - first,
            len(records),
            highest,
            highest,
            entry.attributes,
            -1,
            -1,
            -1,
            -1,
        )
        yield from self._in_order(path, location)
        self.locations.add(location)
        yield BatchSeen(path, location)
        if self._with_records:
            yield from (RecordSeen(path, record) for record in records)
