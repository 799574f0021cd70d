"""The pure Python twin of `_speedups/records/validator`: validates one batch of a client.

The order of the checks is Kafka's (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator);
it decides which of several faults is reported.
"""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from kafkalite._speedups.records.validator import BatchError
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import compression
from kafkalite.records.batch_header import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE_TO_MAGIC,
    LEGACY_OVERHEAD,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
)
from kafkalite.records.compression import Data
from tests.oracles.batches import (
    HEADER,
    Fault,
    Header,
    read_record,
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


class Rejected(Exception):
    """Ends the validation: Kafka's error code and a text."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class ValidationResult:
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
        """Copy the fields of the header."""
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


def validate_batch(batch: Data, **rules: int) -> ValidationResult:
    """Validate one batch of a client."""
    data = bytes(batch)
    found = ValidationResult(len(data))
    try:
        _validate(found, data, Rules(**rules))  # type: ignore[arg-type]
    except Rejected as rejected:
        found.error, found.message = rejected.code, str(rejected)
    return found


def _validate(found: ValidationResult, data: bytes, rules: Rules) -> None:
    _check_framing(data)
    header = Header(*HEADER.unpack_from(data))
    found.fill(header)
    _check_header(header, found.codec, len(data), rules)
    if crc32c(data[ATTRIBUTES_AT:]) != header.crc:
        raise Rejected(KafkaErrorCode.CORRUPT_MESSAGE, "wrong CRC")
    _check_counts(header, rules)
    records = data[HEADER.size :]
    if found.codec and not rules.walk_compressed:
        return
    if found.codec:
        limit = rules.decompressed_max or max(DECOMPRESSED_RATIO * rules.size_max, DECOMPRESSED_FLOOR)
        try:
            records = compression.decompress_appended(found.codec, records, limit)
        except BatchError as error:
            raise Rejected(error.code, str(error)) from error
    _walk(found, records, header, rules)


def _check_framing(data: bytes) -> None:
    if len(data) < HEADER_SIZE_TO_MAGIC:
        raise Rejected(KafkaErrorCode.INVALID_RECORD, "no batch")
    length, magic = struct.unpack_from(">i", data, BATCH_LENGTH_AT)[0], data[MAGIC_AT]
    if length < LEGACY_OVERHEAD or magic > 2:
        raise Rejected(KafkaErrorCode.CORRUPT_MESSAGE, "impossible length or magic")
    if magic < 2 or length + LENGTH_OVERHEAD != len(data):
        raise Rejected(KafkaErrorCode.INVALID_RECORD, "old magic, or not exactly one batch")
    if len(data) < HEADER.size:
        raise Rejected(KafkaErrorCode.CORRUPT_MESSAGE, "smaller than a header")


def _check_header(header: Header, codec: int, size: int, rules: Rules) -> None:
    if codec > compression.ZSTD or (codec == compression.ZSTD and not rules.zstd_allowed):
        raise Rejected(KafkaErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "compression type")
    if header.base_offset != 0:
        raise Rejected(KafkaErrorCode.INVALID_RECORD, "base offset")
    if size > rules.size_max:
        raise Rejected(KafkaErrorCode.MESSAGE_TOO_LARGE, "batch size")


def _check_counts(header: Header, rules: Rules) -> None:
    count = header.records_count
    if header.last_offset_delta < 0 or count <= 0 or header.last_offset_delta + 1 != count:
        raise Rejected(KafkaErrorCode.INVALID_RECORD, "counts")
    if header.attributes & CONTROL_BIT and not rules.control_allowed:
        raise Rejected(KafkaErrorCode.INVALID_RECORD, "control batch")
    if header.producer_id >= 0 and header.base_sequence < 0 and not header.attributes & CONTROL_BIT:
        raise Rejected(KafkaErrorCode.INVALID_RECORD, "sequence")
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise Rejected(KafkaErrorCode.INVALID_TIMESTAMP, "timestamp type")


def _walk(found: ValidationResult, data: bytes, header: Header, rules: Rules) -> None:
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
        raise Rejected(KafkaErrorCode.INVALID_TIMESTAMP if late else KafkaErrorCode.INVALID_RECORD, "invalid records")
    found.walked = True
    found.max_timestamp, found.offset_of_max_timestamp = largest, largest_at
