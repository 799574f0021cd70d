"""The readable twin of `_speedups.records` and `_speedups.scan`: batches inspected, patched, scanned in plain Python.

Like `batch`, it is an oracle: the tests hold the engine to it on good and on damaged batches. The order of the checks
is Kafka's (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator), and it decides which
of several faults is told.
"""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from kafkalite._speedups.records.batch_scan import BatchLocation
from kafkalite._speedups.records.validator import BatchError
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import compression
from kafkalite.records.batch_header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE_TO_MAGIC,
    LEADER_EPOCH_AT,
    LEGACY_OVERHEAD,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP_AT,
)
from kafkalite.records.compression import Data
from tests.oracles.batches import (
    HEADER,
    Fault,
    Header,
    read_record,
    sealed,
    wrapped,
)

NO_TIMESTAMP = -1
TIMESTAMP_MIN, TIMESTAMP_MAX = -(2**63), 2**63 - 1
RECORD_ERRORS_MAX = 1000
DECOMPRESSED_RATIO, DECOMPRESSED_FLOOR = 16, 16 << 20


class Rules(NamedTuple):
    compacted: bool
    size_max: int
    decompressed_max: int = 0
    walk_compressed: bool = True
    zstd_allowed: bool = True
    control_allowed: bool = False
    timestamp_min: int = TIMESTAMP_MIN
    timestamp_max: int = TIMESTAMP_MAX


class Refused(Exception):
    """Ends the inspection: Kafka's error code and a text."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Inspection:
    """See `_speedups/records/validator.pyi`."""

    size: int
    error: int = 0
    message: str | None = None
    record_errors: list[tuple[int, str]] = field(default_factory=list)
    base_offset: int = 0
    last_offset_delta: int = 0
    records_count: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    header_max_timestamp: int = 0
    offset_of_max_timestamp: int = 0
    attributes: int = 0
    codec: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    base_sequence: int = 0
    leader_epoch: int = 0
    walked: bool = False

    def fill(self, header: Header) -> None:
        """The header's fields; what only the walk can know is as the header says."""
        for name in ("base_offset", "last_offset_delta", "records_count", "base_timestamp", "max_timestamp"):
            setattr(self, name, getattr(header, name))
        for name in ("attributes", "producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
            setattr(self, name, getattr(header, name))
        self.header_max_timestamp = header.max_timestamp
        self.offset_of_max_timestamp = header.last_offset_delta
        self.codec = header.attributes & CODEC_MASK

    def refresh(self, batch: Data) -> None:
        """Read the header again after our own patches."""
        walked_to = self.offset_of_max_timestamp
        header = Header(*HEADER.unpack_from(bytes(batch)))
        self.fill(header)
        self.size = len(batch)
        if self.walked and not header.attributes & LOG_APPEND_TIME_BIT:
            self.offset_of_max_timestamp = walked_to


def inspect(batch: Data, **rules: int) -> Inspection:
    """Check one client batch completely."""
    data = bytes(batch)
    found = Inspection(len(data))
    try:
        _inspect(found, data, Rules(**rules))  # type: ignore[arg-type]
    except Refused as refused:
        found.error, found.message = refused.code, str(refused)
    return found


def _inspect(found: Inspection, data: bytes, rules: Rules) -> None:
    _check_framing(data)
    header = Header(*HEADER.unpack_from(data))
    found.fill(header)
    _check_header(header, found.codec, len(data), rules)
    if crc32c(data[ATTRIBUTES_AT:]) != header.crc:
        raise Refused(KafkaErrorCode.CORRUPT_MESSAGE, "wrong CRC")
    _check_counts(header, rules)
    records = data[HEADER.size :]
    if found.codec and not rules.walk_compressed:
        return
    if found.codec:
        limit = rules.decompressed_max or max(DECOMPRESSED_RATIO * rules.size_max, DECOMPRESSED_FLOOR)
        try:
            records = compression.decompress(found.codec, records, limit)
        except BatchError as error:
            raise Refused(error.code, str(error)) from error
    _walk(found, records, header, rules)


def _check_framing(data: bytes) -> None:
    if len(data) < HEADER_SIZE_TO_MAGIC:
        raise Refused(KafkaErrorCode.INVALID_RECORD, "no batch")
    length, magic = struct.unpack_from(">i", data, 8)[0], data[16]
    if length < LEGACY_OVERHEAD or magic > 2:
        raise Refused(KafkaErrorCode.CORRUPT_MESSAGE, "impossible length or magic")
    if magic < 2 or length + LENGTH_OVERHEAD != len(data):
        raise Refused(KafkaErrorCode.INVALID_RECORD, "old magic, or not exactly one batch")
    if len(data) < HEADER.size:
        raise Refused(KafkaErrorCode.CORRUPT_MESSAGE, "smaller than a header")


def _check_header(header: Header, codec: int, size: int, rules: Rules) -> None:
    if codec > compression.ZSTD or (codec == compression.ZSTD and not rules.zstd_allowed):
        raise Refused(KafkaErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "compression type")
    if header.base_offset != 0:
        raise Refused(KafkaErrorCode.INVALID_RECORD, "base offset")
    if size > rules.size_max:
        raise Refused(KafkaErrorCode.MESSAGE_TOO_LARGE, "batch size")


def _check_counts(header: Header, rules: Rules) -> None:
    count = header.records_count
    if header.last_offset_delta < 0 or count <= 0 or header.last_offset_delta + 1 != count:
        raise Refused(KafkaErrorCode.INVALID_RECORD, "counts")
    if header.attributes & CONTROL_BIT and not rules.control_allowed:
        raise Refused(KafkaErrorCode.INVALID_RECORD, "control batch")
    if header.producer_id >= 0 and header.base_sequence < 0 and not header.attributes & CONTROL_BIT:
        raise Refused(KafkaErrorCode.INVALID_RECORD, "sequence")
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise Refused(KafkaErrorCode.INVALID_TIMESTAMP, "timestamp type")


def _walk(found: Inspection, data: bytes, header: Header, rules: Rules) -> None:
    """Record by record; what is wrong with a whole record is noted, broken framing ends the walk."""
    position = 0
    largest, largest_at = NO_TIMESTAMP, header.last_offset_delta
    late = False
    for index in range(header.records_count):
        try:
            fields, position = read_record(data, position)
        except Fault as fault:
            found.record_errors.append((index, f"fault {fault.kind}"))
            break
        if fields.offset_delta != index:
            found.record_errors.append((index, "offset delta"))
            break
        timestamp = wrapped(header.base_timestamp + fields.timestamp_delta, 64)
        if timestamp > largest:
            largest, largest_at = timestamp, index
        if rules.compacted and fields.key is None:
            found.record_errors.append((index, "no key"))
        elif timestamp != NO_TIMESTAMP and not rules.timestamp_min <= timestamp <= rules.timestamp_max:
            found.record_errors.append((index, "timestamp"))
            late = True
        if len(found.record_errors) >= RECORD_ERRORS_MAX:
            break
    else:
        if position != len(data):
            found.record_errors.append((header.records_count - 1, "trailing bytes"))
    if found.record_errors:
        raise Refused(
            KafkaErrorCode.INVALID_TIMESTAMP if late else KafkaErrorCode.INVALID_RECORD, "records were refused"
        )
    found.walked = True
    found.max_timestamp, found.offset_of_max_timestamp = largest, largest_at


def set_base_offset(batch: bytearray, base_offset: int) -> None:
    struct.pack_into(">q", batch, 0, base_offset)


def set_leader_epoch(batch: bytearray, leader_epoch: int) -> None:
    struct.pack_into(">i", batch, LEADER_EPOCH_AT, leader_epoch)


def set_max_timestamp(batch: bytearray, timestamp: int) -> bool:
    return _set_timestamp(batch, timestamp, 0)


def set_log_append_time(batch: bytearray, timestamp: int) -> bool:
    return _set_timestamp(batch, timestamp, LOG_APPEND_TIME_BIT)


def _set_timestamp(batch: bytearray, timestamp: int, kind: int) -> bool:
    before = bytes(batch)
    (attributes,) = struct.unpack_from(">H", batch, ATTRIBUTES_AT)
    struct.pack_into(">H", batch, ATTRIBUTES_AT, attributes & ~LOG_APPEND_TIME_BIT | kind)
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, timestamp)
    if batch == before:
        return False
    batch[:] = sealed(bytes(batch))
    return True


def recompress(batch: Data, codec: int, level: int | None = None, decompressed_max: int = 0) -> bytes:
    """The same batch with another codec."""
    data = bytes(batch)
    header = Header(*HEADER.unpack_from(data))
    records = data[HEADER.size :]
    if header.attributes & CODEC_MASK:
        limit = decompressed_max or DECOMPRESSED_FLOOR
        records = compression.decompress(header.attributes & CODEC_MASK, records, limit)
    if codec:
        records = compression.compress(codec, records, level)
    length = HEADER.size - LENGTH_OVERHEAD + len(records)
    header = header._replace(batch_length=length, attributes=header.attributes & ~CODEC_MASK | codec)
    return sealed(HEADER.pack(*header) + records)


@dataclass
class Scan:
    """See `_speedups/records/batch_scan.pyi`."""

    end: int
    locations: list[BatchLocation] = field(default_factory=list)
    needs: int = 0
    error: int = 0

    @property
    def count(self) -> int:
        return len(self.locations)

    def __len__(self) -> int:
        return len(self.locations)

    def __getitem__(self, i: int) -> BatchLocation:
        return self.locations[i]


def scan_batches(buffer: Data, position: int = 0, batches_max: int = 2**63 - 1) -> Scan:
    """Verify whole batches from `position` on."""
    data = bytes(buffer)
    if not 0 <= position <= len(data):
        raise ValueError(f"position {position} is outside the {len(data)} bytes")
    found = Scan(position)
    while len(found) < batches_max:
        left = len(data) - found.end
        if left < HEADER_SIZE_TO_MAGIC:
            found.needs = HEADER_SIZE_TO_MAGIC if left else 0
            break
        length, magic = struct.unpack_from(">i", data, found.end + 8)[0], data[found.end + 16]
        found.error = _scan_error(length, magic)
        if found.error:
            break
        size = length + LENGTH_OVERHEAD
        if size > left:
            found.needs = size
            break
        header = Header(*HEADER.unpack_from(data, found.end))
        if crc32c(data[found.end + ATTRIBUTES_AT : found.end + size]) != header.crc:
            found.error = KafkaErrorCode.CORRUPT_MESSAGE
            break
        found.locations.append(_location(found.end, size, header))
        found.end += size
    return found


def _scan_error(length: int, magic: int) -> int:
    if magic < 2 and length >= LEGACY_OVERHEAD:
        return KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    if magic != 2 or length < HEADER.size - LENGTH_OVERHEAD:
        return KafkaErrorCode.CORRUPT_MESSAGE
    return 0


def _location(position: int, size: int, header: Header) -> BatchLocation:
    names = BatchLocation._fields[2:]
    return BatchLocation(position, size, *(getattr(header, name) for name in names))
