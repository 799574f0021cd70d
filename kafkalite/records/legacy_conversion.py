"""Rewrites messages of magic 0 and 1, the formats before Kafka 0.11, as records of magic 2 for the consumer.

Pure. Sources: LegacyRecord.java, AbstractLegacyRecordBatch.java, DefaultRecord.java of Apache Kafka 4.3.
"""

from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.records import BatchError
from kafkalite.records.legacy import LegacyEntry, LegacyRecord

NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
OFFSET_MAX = 2**63 - 2
OFFSET_DELTA_MAX = 2**31 - 1


class RewrittenBatch(NamedTuple):
    """The records of one entry.

    Attributes:
        records: in magic 2; timestamp deltas are relative to 0, offset deltas to `base_offset`.
        records_count: of them.
        base_offset, last_offset: of the first and the last record.
        timestamp_type: -1 none (magic 0), 0 create time, 1 log append time.
        append_timestamp: log append time in ms.
    """

    records: bytes
    records_count: int
    base_offset: int
    last_offset: int
    timestamp_type: int
    append_timestamp: int


def rewrite(data: bytes, decompressed_max: int, *, check_crc: bool) -> RewrittenBatch:
    """Return the records of an entry.

    Arguments:
        data: one entry, a message or a wrapper of compressed messages.
        decompressed_max: largest size of the decompressed messages, in bytes.
        check_crc: whether the CRC is checked.

    Raises:
        BatchError: the entry is malformed, or decompresses to more than `decompressed_max`.
    """
    entry = LegacyEntry(data, 0, decompressed_max)
    if check_crc:
        entry.check_crc()
    records = entry.records()
    first, last = records[0].offset, records[-1].offset
    if not 0 <= first <= last <= min(OFFSET_MAX, first + OFFSET_DELTA_MAX):
        raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, f"an entry claims the offsets {first} to {last}")
    kind = NO_TIMESTAMP if entry.magic == 0 else LOG_APPEND_TIME if entry.log_append_time else CREATE_TIME
    encoded = b"".join(_encoded(record, record.offset - first) for record in records)
    return RewrittenBatch(encoded, len(records), first, last, kind, entry.timestamp)


def _encoded(record: LegacyRecord, offset_delta: int) -> bytes:
    body = b"\0" + _varint(record.timestamp) + _varint(offset_delta) + _nullable(record.key) + _nullable(record.value)
    body += _varint(0)  # headers
    return _varint(len(body)) + body


def _nullable(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Zig-zag varint, at most 64 bits."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
