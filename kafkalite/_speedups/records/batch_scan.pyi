"""Verification of many batches. Positions and sizes are bytes, timestamps milliseconds."""

from collections.abc import Iterator
from typing import NamedTuple, final

from typing_extensions import Buffer

class BatchLocation(NamedTuple):
    """Position and header of a batch that `scan_batches` has verified."""

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
    """The result of `scan_batches`: the valid batches up to position `end`, and why the scan ended there.

    Attributes:
        count: number of valid batches.
        end: position behind the last valid batch.
        needs: size in bytes of the truncated batch at `end`; 0 = the buffer ends there, or `batches_max` is reached.
        error: Kafka error code of the batch at `end`: CORRUPT_MESSAGE, or UNSUPPORTED_FOR_MESSAGE_FORMAT for magic 0 or
            1 (see records.legacy); 0 = none.
        message: text of the error.
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
    """Verify size, magic and CRC of batches, up to the end of the buffer or the first invalid one.

    Arguments:
        buffer: the bytes.
        position: of the first batch.
        batches_max: number of batches after which the scan ends.
    """
