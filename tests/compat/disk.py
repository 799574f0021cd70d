"""The batch headers of a partition as they lie in the broker's directory, read by the format's own numbers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp,
# producer id and epoch, base sequence, records count
HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_STARTS_AT = 12
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class BatchOnDisk:
    """One v2 batch header."""

    base_offset: int
    records_count: int
    codec: str
    producer_id: int
    base_sequence: int
    log_append_time: bool


def batches_on_disk(data: Path, topic: str, partition: int = 0) -> list[BatchOnDisk]:
    """Every whole batch of a partition, in the order of its segments."""
    logs = sorted((data / f"{topic}-{partition}").glob("*.log"))
    assert logs, f"no log of {topic}-{partition} in {data}"
    return [batch for log in logs for batch in _batches(log.read_bytes())]


def _batches(log: bytes) -> Iterator[BatchOnDisk]:
    position = 0
    while position + HEADER.size <= len(log):
        base, length, _, magic, _, attributes, _, _, _, producer, _, sequence, count = HEADER.unpack_from(log, position)
        assert magic == 2, f"magic {magic} at {position}"
        yield BatchOnDisk(base, count, CODEC_NAMES[attributes & 7], producer, sequence, bool(attributes & 8))
        position += LENGTH_STARTS_AT + length
