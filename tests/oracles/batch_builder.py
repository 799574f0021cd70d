"""The pure Python twin of `_speedups/records/batch_builder`: builds record batches."""

from collections.abc import Sequence

from kafkalite._speedups.records.validator import BatchError
from kafkalite.errors import KafkaErrorCode
from kafkalite.records import compression as codecs
from kafkalite.records.batch_header import CODEC_MASK, CONTROL_BIT, LENGTH_OVERHEAD, TRANSACTIONAL_BIT
from kafkalite.records.compression import Data
from tests.oracles.batches import HEADER, sealed, wrapped

SIZE_MAX = 2**31 - 1


def varint(value: int, bits: int = 32) -> bytes:
    """Zig-zag LEB128."""
    raw = (value << 1 ^ value >> (bits - 1)) % (1 << bits)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def nullable(data: Data | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + bytes(data)


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Data | None,
    value: Data | None,
    headers: Sequence[tuple[str | bytes, Data | None]] = (),
) -> bytes:
    """One record with its length in front."""
    body = b"\x00" + varint(timestamp_delta, 64) + varint(offset_delta) + nullable(key) + nullable(value)
    body += varint(len(headers))
    for name, content in headers:
        body += nullable(name.encode() if isinstance(name, str) else name) + nullable(content)
    return varint(len(body)) + body


class Builder:
    """Collects records; see `_speedups/records/batch_builder.pyi`."""

    def __init__(self, size_max: int = SIZE_MAX) -> None:
        if not 0 < size_max <= SIZE_MAX:
            raise ValueError(f"size_max must be 1 to {SIZE_MAX}, not {size_max}")
        self.size_max = size_max
        self.clear()

    def clear(self) -> None:
        self.parts: list[bytes] = []
        self.size = HEADER.size
        self.base_timestamp = -1
        self.max_timestamp = -1

    @property
    def records_count(self) -> int:
        return len(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def append(
        self,
        timestamp: int,
        key: Data | None,
        value: Data | None,
        headers: Sequence[tuple[str | bytes, Data | None]] | None = None,
    ) -> int:
        for given in (key, value):
            if isinstance(given, str):
                raise TypeError("keys, values and values of headers are bytes or None, not str; encode the object")
        timestamp_delta = wrapped(timestamp - self.base_timestamp, 64) if self.parts else 0
        record = encode_record(len(self.parts), timestamp_delta, key, value, headers or ())
        if self.size + len(record) > self.size_max and self.parts:
            return -1
        if not self.parts:
            self.base_timestamp = self.max_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.size += len(record)
        self.parts.append(record)
        return len(self.parts) - 1

    def build(
        self,
        codec: int = 0,
        level: int | None = None,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytes:
        if not self.parts:
            raise ValueError("a batch needs at least one record")
        if not 0 <= codec <= CODEC_MASK:
            raise BatchError(KafkaErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {codec}")
        records = b"".join(self.parts)
        if codec:
            records = codecs.compress(codec, records, level)
        attributes = codec | TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
        last = len(self.parts) - 1
        producer = (producer_id, producer_epoch, base_sequence)
        times = (self.base_timestamp, self.max_timestamp)
        length = HEADER.size - LENGTH_OVERHEAD + len(records)
        fields = (base_offset, length, leader_epoch, 2, 0, attributes, last, *times, *producer, last + 1)
        return sealed(HEADER.pack(*fields) + records)
