"""Reads messages of magic 0 and 1, the formats before Kafka 0.11; they are never written.

An entry is: int64 offset, int32 size, uint32 CRC-32 of all that follows, int8 magic, int8 attributes, int64 timestamp
(magic 1 only), int32 key size (-1 is null), key, int32 value size, value. The value of a compressed entry is a set of
entries; its offset is that of the last of them, and in magic 1 their offsets are relative. Sources: LegacyRecord.java,
AbstractLegacyRecordBatch.java.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kafkalite._speedups.records.validator import BatchError
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import compression
from kafkalite.records.batch_header import BATCH_LENGTH_AT, CODEC_MASK, LENGTH_OVERHEAD, LOG_APPEND_TIME_BIT, MAGIC_AT
from kafkalite.records.compression import Data

FRAME = struct.Struct(">qiIbb")  # offset, size, CRC, magic, attributes
TIMESTAMP = struct.Struct(">q")
SIZE = struct.Struct(">i")
NO_TIMESTAMP = -1
DECOMPRESSED_MAX = 64 << 20

LZ4_DESCRIPTOR_AT = 4  # after the frame's magic number
XXH_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
UINT32 = 0xFFFFFFFF


class LegacyRecord(NamedTuple):
    offset: int
    timestamp: int  # milliseconds; -1 in magic 0
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LegacyEntry:
    """One entry of a message set: a message, or a wrapper of compressed ones.

    Arguments:
        buffer: the bytes.
        position: of the entry.
        decompressed_max: largest allowed decompressed size in bytes.

    Raises: BatchError if no whole entry of magic 0 or 1 begins there, and while reading if it is malformed.
    """

    def __init__(self, buffer: Data, position: int = 0, decompressed_max: int = DECOMPRESSED_MAX) -> None:
        view = memoryview(buffer)
        if position < 0 or len(view) - position < FRAME.size:
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, f"no entry begins at {position} of {len(view)} bytes")
        self.offset, size, self.crc, self.magic, self.attributes = FRAME.unpack_from(view, position)
        self.size = size + LENGTH_OVERHEAD
        if self.magic not in (0, 1):
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, f"the entry has magic {self.magic}, not 0 or 1")
        if not FRAME.size <= self.size <= len(view) - position:
            raise BatchError(
                KafkaErrorCode.CORRUPT_MESSAGE, f"the entry claims {self.size} bytes, {len(view) - position} are left"
            )
        self.codec = self.attributes & CODEC_MASK
        self.log_append_time = bool(self.attributes & LOG_APPEND_TIME_BIT) and self.magic == 1
        self.decompressed_max = decompressed_max
        self._data = bytes(view[position : position + self.size])
        self.timestamp, self.key, self.value = self._fields()

    def _fields(self) -> tuple[int, bytes | None, bytes | None]:
        at = FRAME.size
        timestamp = NO_TIMESTAMP
        if self.magic == 1:
            if self.size < at + TIMESTAMP.size:
                raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, "the entry ends within its timestamp")
            (timestamp,) = TIMESTAMP.unpack_from(self._data, at)
            at += TIMESTAMP.size
        key, at = self._nullable(at)
        value, at = self._nullable(at)
        if at != self.size:
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, f"{self.size - at} bytes are left in the entry")
        return timestamp, key, value

    def _nullable(self, at: int) -> tuple[bytes | None, int]:
        if at + SIZE.size > self.size:
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, "the entry ends within a size")
        (size,) = SIZE.unpack_from(self._data, at)
        at += SIZE.size
        if size == -1:
            return None, at
        if not 0 <= size <= self.size - at:
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, f"a field claims {size} bytes, {self.size - at} are left")
        return self._data[at : at + size], at + size

    def check_crc(self) -> None:
        """Raise BatchError unless the CRC-32 is right."""
        if zlib.crc32(self._data[MAGIC_AT:]) != self.crc:
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, f"the entry is corrupt: its CRC is not {self.crc:#010x}")

    def records(self) -> list[LegacyRecord]:
        """The messages in this entry, with absolute offsets."""
        if not self.codec:
            return [LegacyRecord(self.offset, self.timestamp, self.key, self.value)]
        inner = self._inner()
        shift = self.offset - inner[-1].offset if self.magic == 1 else 0
        return [
            LegacyRecord(
                entry.offset + shift,
                self.timestamp if self.log_append_time else entry.timestamp,
                entry.key,
                entry.value,
            )
            for entry in inner
        ]

    def _inner(self) -> list["LegacyEntry"]:
        if self.value is None:
            raise BatchError(KafkaErrorCode.CORRUPT_MESSAGE, "a compressed entry has no value")
        data = self.value
        if self.magic == 0 and self.codec == compression.LZ4:
            data = with_right_lz4_checksum(data)
        inner = list(entries(compression.decompress(self.codec, data, self.decompressed_max)))
        if not inner or any(entry.codec or entry.magic != self.magic for entry in inner):
            raise BatchError(
                KafkaErrorCode.CORRUPT_MESSAGE, "a compressed entry is empty, or its inner entries are invalid"
            )
        return inner


def entries(buffer: Data, decompressed_max: int = DECOMPRESSED_MAX) -> Iterator[LegacyEntry]:
    """The whole entries in `buffer`, without a truncated one at its end. Raises: BatchError."""
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= LENGTH_OVERHEAD:
        (size,) = SIZE.unpack_from(view, position + BATCH_LENGTH_AT)
        if size > len(view) - position - LENGTH_OVERHEAD:
            return
        entry = LegacyEntry(view, position, decompressed_max)
        yield entry
        position += entry.size


def with_right_lz4_checksum(frame: bytes) -> bytes:
    """Correct the header checksum of an lz4 frame from magic 0, which covered the magic number, too (KAFKA-3160)."""
    if len(frame) <= LZ4_DESCRIPTOR_AT:
        return frame
    has_content_size = frame[LZ4_DESCRIPTOR_AT] & 0x08
    end = LZ4_DESCRIPTOR_AT + (10 if has_content_size else 2)
    checksum = xxh32_short(frame[LZ4_DESCRIPTOR_AT:end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, enough for a frame descriptor."""
    p1, p2, p3, p4, p5 = XXH_PRIMES
    value = p5 + len(data) & UINT32
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = _rotated(value + int.from_bytes(data[at : at + 4], "little") * p3 & UINT32, 17) * p4 & UINT32
    for byte in data[whole:]:
        value = _rotated(value + byte * p5 & UINT32, 11) * p1 & UINT32
    value = (value ^ value >> 15) * p2 & UINT32
    value = (value ^ value >> 13) * p3 & UINT32
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & UINT32
