"""Builds record batches. Sizes are bytes, timestamps milliseconds; codec ids as in `records.compression`."""

from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

@final
class Builder:
    """Collects records and builds a batch of them.

    Arguments:
        size_max: largest size of the uncompressed batch in bytes, header included. The first record always fits.
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
        """Add a record. Returns its offset delta, or -1 if it does not fit into `size_max`.

        Arguments:
            timestamp: in ms.
            key, value: None = null.
            headers: (name, value) each.

        Raises: BatchError (MESSAGE_TOO_LARGE) if no batch can contain it; TypeError for a str key or value.
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
        """Build the batch. The builder keeps its records: it can build them again with other producer fields.

        Arguments:
            codec: id of the codec, 0 = none.
            level: compression level, None = Kafka's default.
            producer_id, producer_epoch, base_sequence: -1 = no producer.
            transactional, control: bits of the attributes.
            base_offset, leader_epoch: of the header.

        Raises: BatchError (UNSUPPORTED_COMPRESSION_TYPE); ValueError without records.
        """
    @property
    def compressed(self) -> bool:
        """Whether `compress` was called after the last record."""
    def compress(self, codec: int, level: int | None = None) -> None:
        """Compress the records now, perhaps in a thread, so that `build` with this codec and level does not.

        No record may be added meanwhile. Raises: BatchError (UNSUPPORTED_COMPRESSION_TYPE).
        """
    def clear(self) -> None:
        """Remove all records, keep the memory."""
