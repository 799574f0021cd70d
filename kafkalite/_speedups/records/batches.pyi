"""Record batches built and read. Sizes are bytes, timestamps milliseconds; codec ids as in `records.codecs`."""

from collections.abc import Iterator, Sequence
from typing import final

from typing_extensions import Buffer

_Header = tuple[str, bytes | None]

@final
class Record:
    """One record; key and value None = null."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[_Header, ...]: ...

@final
class Records:
    def __iter__(self) -> Records: ...
    def __next__(self) -> Record: ...

@final
class Batch:
    """One batch of magic 2 inside a buffer, read lazily; iterating gives its records.

    Arguments: the bytes; where the batch begins; how many bytes its records may decompress to.
    Raises: BatchError, here when no whole batch begins there, and while reading when its records are malformed.
    The buffer stays exported while the batch lives; records own their bytes.
    """

    def __new__(cls, buffer: Buffer, position: int = 0, decompressed_max: int = ...) -> Batch: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def records_count(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def log_append_time(self) -> bool: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def control(self) -> bool: ...
    @property
    def delete_horizon(self) -> bool: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def decompressed_max(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    def check_crc(self) -> None:
        """Raise BatchError (CORRUPT_MESSAGE) unless the CRC-32C is right."""
    def records(self) -> list[Record]:
        """All records at once."""
    def records_bytes(self) -> bytes:
        """The bytes of the records, decompressed."""

def batches(buffer: Buffer, decompressed_max: int = ...) -> list[Batch]:
    """The whole batches in a fetch answer; one cut off at the end is left out. Raises: BatchError."""

@final
class Builder:
    """Collects records and builds a batch of them.

    Argument: `size_max`, the largest uncompressed batch in bytes, header included.
    """

    def __new__(cls, size_max: int = ...) -> Builder: ...
    @property
    def size(self) -> int:
        """Bytes of the uncompressed batch so far, header included."""
    @property
    def size_max(self) -> int: ...
    @property
    def records_count(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def __len__(self) -> int: ...
    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str | bytes, Buffer | None]] | None = None,
    ) -> int:
        """Add a record. Answers its offset delta, or -1 when it does not fit into `size_max` (the first always fits).

        Raises: BatchError (MESSAGE_TOO_LARGE) when no batch at all could hold it; TypeError for a str key or value.
        """
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
        """The batch's bytes. The builder keeps its records, so a batch can be built again with other producer fields.

        Raises: BatchError (UNSUPPORTED_COMPRESSION_TYPE); ValueError when there are no records.
        """
    def clear(self) -> None:
        """Forget all records, keep the memory."""
