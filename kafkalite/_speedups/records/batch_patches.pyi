"""Patches of whole record batches. Sizes are bytes, timestamps milliseconds."""

from typing_extensions import Buffer

def set_base_offset(batch: Buffer, base_offset: int) -> None:
    """Patch the base offset of one whole, writable batch; the CRC does not cover it."""

def set_leader_epoch(batch: Buffer, leader_epoch: int) -> None:
    """Patch the partition leader epoch of one whole, writable batch; the CRC does not cover it."""

def set_max_timestamp(batch: Buffer, timestamp: int) -> bool:
    """Set CreateTime, this max timestamp in ms and the CRC of a writable batch. Returns whether it changed."""

def set_log_append_time(batch: Buffer, timestamp: int) -> bool:
    """Set LogAppendTime, this max timestamp in ms and the CRC of a writable batch. Returns whether it changed."""

def recompress(batch: Buffer, codec: int, level: int | None = None, decompressed_max: int = 0) -> bytes:
    """Compress a batch with another codec. Length, codec bits and CRC change, all other header fields are copied.

    Arguments:
        batch: one whole, validated batch.
        codec: id of the new codec, 0 = none.
        level: compression level, None = Kafka's default.
        decompressed_max: largest size of the decompressed records in bytes, 0 = 16 MiB.

    Raises: BatchError (MESSAGE_TOO_LARGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE).
    """
