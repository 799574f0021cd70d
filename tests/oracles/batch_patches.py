"""The pure Python twin of `_speedups/records/batch_patches`."""

import struct

from kafkalite.records import compression
from kafkalite.records.batch_header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP_AT,
)
from kafkalite.records.compression import Data
from tests.oracles.batches import HEADER, Header, sealed
from tests.oracles.validator import DECOMPRESSED_FLOOR


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
