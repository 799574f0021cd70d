"""Whole record batches: inspected and patched in place. Sizes are bytes, timestamps milliseconds."""

from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

class BatchError(ValueError):
    """A batch that cannot be read or built. `code` is Kafka's error code (Errors.java)."""

    code: int
    def __init__(self, code: int, message: str) -> None: ...

@final
class Inspection:
    """What `inspect` found; header fields are 0 when the bytes were refused before the header was read.

    error: Kafka error code, 0 = may be appended; message: for humans, None when good; record_errors: (index, text),
    at most 1,000. max_timestamp and offset_of_max_timestamp (a delta, of the first record that has it): as found by the
    walk when `walked`, else the header's word and the last offset delta. header_max_timestamp: what the header says;
    when it differs, `set_max_timestamp` mends it.
    """

    @property
    def error(self) -> int: ...
    @property
    def message(self) -> str | None: ...
    @property
    def record_errors(self) -> list[tuple[int, str]]: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def records_count(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def header_max_timestamp(self) -> int: ...
    @property
    def offset_of_max_timestamp(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def walked(self) -> bool: ...
    @property
    def decompressed_bytes(self) -> int:
        """Bytes that the records decompressed to; 0 where they did not, or were too many."""

    def refresh(self, batch: Buffer) -> None:
        """Read the header again after our own patches or `recompress`; the verdict and what the walk found stay.

        With LogAppendTime the last record is the one that has the max timestamp. Raises: BatchError for less than a
        header.
        """

_Compress = Callable[[int, bytes | bytearray | memoryview, int | None], bytes]
_Decompress = Callable[[int, bytes | bytearray | memoryview, int], bytes]

def use_codecs(compress: _Compress, decompress: _Decompress) -> None:
    """Hand in the codecs: `compress(codec, data, level)` and `decompress(codec, data, size_max)`."""

def codecs_in_use() -> tuple[_Compress, _Decompress]: ...
def inspect(
    batch: Buffer,
    *,
    compacted: bool,
    size_max: int,
    decompressed_max: int = 0,
    walk_compressed: bool = True,
    zstd_allowed: bool = True,
    control_allowed: bool = False,
    timestamp_min: int = ...,
    timestamp_max: int = ...,
) -> Inspection:
    """Check one client batch completely, in Kafka's order of checks. Changes nothing, raises nothing for bad bytes.

    Arguments:
        batch: the bytes of one partition in a produce request.
        compacted: whether the topic is compacted, so that every record needs a key.
        size_max: largest whole batch in bytes (`max.message.bytes`).
        decompressed_max: largest size of decompressed records in bytes; 0 = 16 * size_max, at least 16 MiB.
        walk_compressed: False leaves compressed records unread; the header's max timestamp is then believed.
        zstd_allowed: False for Produce below version 7.
        control_allowed: True for the broker's own control batches.
        timestamp_min, timestamp_max: allowed record timestamps in ms, both included (-1, no timestamp, always is).

    Error codes: INVALID_RECORD (87) for framing, counts, keys, control batches, undecodable compression;
    CORRUPT_MESSAGE (2) for size, magic, CRC; MESSAGE_TOO_LARGE (10), also when decompressed; INVALID_TIMESTAMP (32);
    UNSUPPORTED_COMPRESSION_TYPE (76). Sources: LogValidator.java, UnifiedLog.java, ProduceRequest.java.
    """

def set_base_offset(batch: Buffer, base_offset: int) -> None:
    """Patch the base offset of one whole, writable batch; it stands outside the CRC."""

def set_leader_epoch(batch: Buffer, leader_epoch: int) -> None:
    """Patch the partition leader epoch of one whole, writable batch; it stands outside the CRC."""

def set_max_timestamp(batch: Buffer, timestamp: int) -> bool:
    """Make a writable batch CreateTime with this max timestamp, CRC included; answers whether anything changed."""

def set_log_append_time(batch: Buffer, timestamp: int) -> bool:
    """Make a writable batch LogAppendTime at `timestamp`, CRC included; answers whether anything changed."""

def recompress(batch: Buffer, codec: int, level: int | None = None, decompressed_max: int = 0) -> bytes:
    """The same batch with another codec: length, codec bits and CRC follow, all other header fields stay.

    Arguments: one whole inspected batch; codec id, 0 = none; level (None = Kafka's default); bound as in `inspect`.
    Raises: BatchError (MESSAGE_TOO_LARGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE).
    """
