"""The scan over many batches. Positions and sizes are bytes, timestamps milliseconds."""

from collections.abc import Iterator
from typing import NamedTuple, final

from typing_extensions import Buffer

class BatchLocation(NamedTuple):
    """One batch that `scan_batches` found good: where it is, and its header."""

    position: int
    size: int
    base_offset: int
    last_offset_delta: int
    records_count: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

@final
class Scan:
    """What `scan_batches` found: good batches up to position `end`, and why it ended there.

    error 0 and needs 0: the buffer ended with a batch (or `batches_max` was reached). needs: bytes that a buffer that
    begins at `end` must hold to go on (a batch cut off; at the end of a file, a torn tail). error: Kafka error code of
    what stands at `end`: CORRUPT_MESSAGE, or UNSUPPORTED_FOR_MESSAGE_FORMAT for magic 0 or 1 (see records.legacy).
    """

    @property
    def count(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def needs(self) -> int: ...
    @property
    def error(self) -> int: ...
    @property
    def message(self) -> str | None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> BatchLocation: ...
    def __iter__(self) -> Iterator[BatchLocation]: ...

def scan_batches(buffer: Buffer, position: int = 0, batches_max: int = ...) -> Scan:
    """Verify size, magic and CRC of whole batches from `position` on, until the buffer ends or one is bad."""
