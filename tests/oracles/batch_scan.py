"""The pure Python twin of `_speedups/records/batch_scan`: verifies the batches in a buffer."""

import struct
from dataclasses import dataclass, field

from crc32c import crc32c

from kafkalite._speedups.records.batch_scan import BatchLocation
from kafkalite.errors import KafkaErrorCode
from kafkalite.records.batch_header import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_AT,
    HEADER_SIZE_TO_MAGIC,
    LEGACY_OVERHEAD,
    LENGTH_OVERHEAD,
    MAGIC_AT,
)
from kafkalite.records.compression import Data
from tests.oracles.batches import HEADER, Header


@dataclass
class Scan:
    """See `_speedups/records/batch_scan.pyi`."""

    end: int
    locations: list[BatchLocation] = field(default_factory=list)
    needs: int = 0
    error: int = 0

    @property
    def count(self) -> int:
        return len(self.locations)

    def __len__(self) -> int:
        return len(self.locations)

    def __getitem__(self, i: int) -> BatchLocation:
        return self.locations[i]


def scan_batches(buffer: Data, position: int = 0, batches_max: int = 2**63 - 1) -> Scan:
    """Verify whole batches from `position` on."""
    data = bytes(buffer)
    if not 0 <= position <= len(data):
        raise ValueError(f"position {position} is outside the {len(data)} bytes")
    found = Scan(position)
    while len(found) < batches_max:
        left = len(data) - found.end
        if left < HEADER_SIZE_TO_MAGIC:
            found.needs = HEADER_SIZE_TO_MAGIC if left else 0
            break
        length, magic = struct.unpack_from(">i", data, found.end + BATCH_LENGTH_AT)[0], data[found.end + MAGIC_AT]
        found.error = _scan_error(length, magic)
        if found.error:
            break
        size = length + LENGTH_OVERHEAD
        if size > left:
            found.needs = size
            break
        header = Header(*HEADER.unpack_from(data, found.end))
        if crc32c(data[found.end + ATTRIBUTES_AT : found.end + size]) != header.crc:
            found.error = KafkaErrorCode.CORRUPT_MESSAGE
            break
        found.locations.append(_location(found.end, size, header))
        found.end += size
    return found


def _scan_error(length: int, magic: int) -> int:
    if magic < 2 and length >= LEGACY_OVERHEAD:
        return KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    if magic != 2 or length < HEADER.size - LENGTH_OVERHEAD:
        return KafkaErrorCode.CORRUPT_MESSAGE
    return 0


def _location(position: int, size: int, header: Header) -> BatchLocation:
    names = BatchLocation._fields[2:]
    return BatchLocation(position, size, *(getattr(header, name) for name in names))
