"""Validation of record batches. Sizes are bytes, timestamps milliseconds."""

from collections.abc import Callable
from typing import Protocol, final

from typing_extensions import Buffer

class BatchError(ValueError):
    """A batch that cannot be read or built. `code` is Kafka's error code (Errors.java)."""

    code: int
    def __init__(self, code: int, message: str) -> None: ...

@final
class ValidationResult:
    """The result of `validate_batch`; header fields are 0 if the batch was rejected before its header was read.

    Attributes:
        error: Kafka error code, 0 = the batch may be appended.
        message: text of the error, None for a valid batch.
        record_errors: (index, text) of invalid records, at most 1,000.
        max_timestamp: highest timestamp of the records if `walked`, else of the header.
        offset_of_max_timestamp: offset delta of the first record with this timestamp if `walked`, else the last one.
        header_max_timestamp: of the header; `set_max_timestamp` corrects it where `max_timestamp` differs.
        walked: whether the records were read.
        decompressed_bytes: size of the decompressed records; 0 if they are not compressed, or too large.
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
    def decompressed_bytes(self) -> int: ...
    def refresh(self, batch: Buffer) -> None:
        """Read the header of the patched or recompressed batch again; error and results of the walk are unchanged.

        With LogAppendTime the last record has the max timestamp. Raises: BatchError for bytes without a header.
        """

_Compress = Callable[[int, bytes | bytearray | memoryview, int | None], bytes]
_DecompressAppended = Callable[[int, bytes | bytearray | memoryview, int], bytes]

class _Decompress(Protocol):
    def __call__(
        self, codec: int, data: bytes | bytearray | memoryview, size_max: int, frames_max: int = ..., /
    ) -> bytes: ...

def use_codecs(compress: _Compress, decompress: _Decompress, decompress_appended: _DecompressAppended) -> None:
    """Register the codecs.

    Arguments:
        compress: (codec, data, level) -> bytes.
        decompress: (codec, data, size_max, frames_max) -> bytes; the last argument is optional.
        decompress_appended: the same for lz4 in `validate_batch`; it rejects what the reader of another client rejects.
    """

def codecs_in_use() -> tuple[_Compress, _Decompress]: ...
def validate_batch(
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
) -> ValidationResult:
    """Validate one batch of a client, in the order of Kafka's checks. Invalid bytes are a result, not an exception.

    Arguments:
        batch: the bytes of one partition in a produce request.
        compacted: whether the topic is compacted, so that every record needs a key.
        size_max: largest whole batch in bytes (`max.message.bytes`).
        decompressed_max: largest size of decompressed records in bytes; 0 = 16 * size_max, at least 16 MiB.
        walk_compressed: False: compressed records are not read, and max_timestamp is that of the header.
        zstd_allowed: False for Produce below version 7.
        control_allowed: True for the broker's own control batches.
        timestamp_min, timestamp_max: allowed record timestamps in ms, both included (-1, no timestamp, always is).

    Error codes: INVALID_RECORD for framing, counts, keys, control batches, undecodable compression;
    CORRUPT_MESSAGE for size, magic, CRC; MESSAGE_TOO_LARGE, also when decompressed; INVALID_TIMESTAMP;
    UNSUPPORTED_COMPRESSION_TYPE. Sources: LogValidator.java, UnifiedLog.java, ProduceRequest.java.
    """
