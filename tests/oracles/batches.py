"""The pure Python twin of `_speedups/records/batches`: reads record batches.

The layout is that of DefaultRecordBatch.java and DefaultRecord.java. The twin
also decides which fault is reported first.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from kafkalite._speedups.records.validator import BatchError
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import compression as codecs
from kafkalite.records.batch_header import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from kafkalite.records.compression import Data

HEADER = struct.Struct(">qiibIhiqqqhii")

DECOMPRESSED_MAX = 1 << 30

# What can be wrong with a record's framing; the values are those of `_speedups/records/record_walk.pxd`.
MISSING, LENGTH, FRAMING, HEADERS, TRAILING = 1, 2, 3, 4, 5


class Header(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Fields(NamedTuple):
    """One record as framed, before the batch's bases are added."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Fault(Exception):
    """The framing of a record is malformed; `kind` is the type of the defect."""

    def __init__(self, kind: int) -> None:
        super().__init__(kind)
        self.kind = kind


def wrapped(value: int, bits: int) -> int:
    """`value` as a signed integer of so many bits, as C and Java keep it."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


class Reader:
    """Reads a record's fields; every shortage is a Fault of the kind given."""

    def __init__(self, data: bytes, position: int, end: int, kind: int) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.kind = kind

    def take(self, n: int) -> bytes:
        if n < 0 or n > self.end - self.position:
            raise Fault(self.kind)
        self.position += n
        return self.data[self.position - n : self.position]

    def varint(self, bits: int = 32) -> int:
        """Zig-zag LEB128 of at most 5 or 10 bytes; bits beyond the width are dropped."""
        raw = 0
        for shift in range(0, 35 if bits == 32 else 70, 7):
            (byte,) = self.take(1)
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw %= 1 << bits
                return raw >> 1 ^ -(raw & 1)
        raise Fault(self.kind)

    def nullable(self) -> bytes | None:
        size = self.varint()
        if size < -1:
            raise Fault(self.kind)
        return None if size == -1 else self.take(size)


def read_record(data: bytes, position: int) -> tuple[Fields, int]:
    """The record at `position` and where the next one begins. Raises: Fault."""
    if position >= len(data):
        raise Fault(MISSING)
    outer = Reader(data, position, len(data), LENGTH)
    size = outer.varint()
    outer.take(size)
    body = Reader(data, outer.position - size, outer.position, FRAMING)
    body.take(1)  # attributes
    timestamp_delta = body.varint(64)
    offset_delta = body.varint()
    key = body.nullable()
    value = body.nullable()
    count = body.varint()
    body.kind = HEADERS
    headers = read_headers(body, count)
    if body.position != body.end:
        raise Fault(FRAMING)
    return Fields(timestamp_delta, offset_delta, key, value, headers), outer.position


def read_headers(body: Reader, count: int) -> tuple[tuple[str, bytes | None], ...]:
    if not 0 <= count <= body.end - body.position:
        raise Fault(HEADERS)
    found = []
    for _ in range(count):
        name = body.take(body.varint()).decode("utf-8", "replace")
        found.append((name, body.nullable()))
    return tuple(found)


class Batch:
    """One batch in a buffer; see `_speedups/records/batches.pyi`."""

    def __init__(self, buffer: Data, position: int = 0, decompressed_max: int = DECOMPRESSED_MAX) -> None:
        whole = bytes(buffer)
        if position < 0 or len(whole) - position < HEADER.size:
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, f"no batch begins at {position} of {len(whole)} bytes")
        self.header = header = Header(*HEADER.unpack_from(whole, position))
        if header.magic != 2:
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, f"the batch has magic {header.magic}, not 2")
        self.size = header.batch_length + LENGTH_OVERHEAD
        if not HEADER.size <= self.size <= len(whole) - position:
            raise BatchError(
                KafkaErrorCode.CORRUPT_MESSAGE, f"the batch claims {self.size} bytes, {len(whole) - position} are here"
            )
        self.position = position
        self.decompressed_max = decompressed_max
        self.data = whole[position : position + self.size]
        self.last_offset = wrapped(header.base_offset + header.last_offset_delta, 64)
        self.codec = header.attributes & CODEC_MASK
        self.log_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
        self.transactional = bool(header.attributes & TRANSACTIONAL_BIT)
        self.control = bool(header.attributes & CONTROL_BIT)
        self.delete_horizon = bool(header.attributes & DELETE_HORIZON_BIT)

    def __getattr__(self, name: str) -> int:
        if name not in Header._fields:
            raise AttributeError(name)
        value: int = getattr(self.header, name)
        return value

    def __len__(self) -> int:
        return max(self.header.records_count, 0)

    def check_crc(self) -> None:
        if crc32c(self.data[ATTRIBUTES_AT:]) != self.header.crc:
            raise BatchError(
                KafkaErrorCode.CORRUPT_MESSAGE, f"the batch is corrupt: its CRC is not {self.header.crc:#010x}"
            )

    def records_bytes(self) -> bytes:
        if self.header.records_count < 0:
            raise BatchError(KafkaErrorCode.INVALID_RECORD, f"the batch claims {self.header.records_count} records")
        data = self.data[HEADER.size :]
        return codecs.decompress(self.codec, data, self.decompressed_max) if self.codec else data

    def __iter__(self) -> Iterator[Record]:
        return self._read(self.records_bytes())

    def _read(self, data: bytes) -> Iterator[Record]:
        position = 0
        for index in range(self.header.records_count):
            try:
                fields, position = read_record(data, position)
            except Fault as fault:
                raise BatchError(
                    KafkaErrorCode.INVALID_RECORD, f"record {index} is malformed (fault {fault.kind})"
                ) from fault
            yield self._made(fields)
        if position != len(data):
            raise BatchError(
                KafkaErrorCode.INVALID_RECORD, f"{len(data) - position} bytes are left after the last record"
            )

    def _made(self, fields: Fields) -> Record:
        timestamp = wrapped(self.header.base_timestamp + fields.timestamp_delta, 64)
        return Record(
            wrapped(self.header.base_offset + fields.offset_delta, 64),
            self.header.max_timestamp if self.log_append_time else timestamp,
            *fields[2:],
        )

    def records(self) -> list[Record]:
        return list(self)


def batches(buffer: Data, decompressed_max: int = DECOMPRESSED_MAX) -> list[Batch]:
    """The whole batches in `buffer`; one cut off at the end is left out."""
    whole = bytes(buffer)
    found = []
    position = 0
    while len(whole) - position >= LENGTH_OVERHEAD:
        (length,) = struct.unpack_from(">i", whole, position + BATCH_LENGTH_AT)
        if length > len(whole) - position - LENGTH_OVERHEAD:
            break
        found.append(Batch(whole, position, decompressed_max))
        position += found[-1].size
    return found


def sealed(batch: bytes) -> bytes:
    """The batch with a correct CRC."""
    return batch[:CRC_AT] + struct.pack(">I", crc32c(batch[ATTRIBUTES_AT:])) + batch[ATTRIBUTES_AT:]
