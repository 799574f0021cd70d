from collections.abc import Callable
from typing import Self

from kafkalite._speedups.compaction.input import Transactions
from kafkalite._speedups.compaction.offset_map import OffsetMap
from kafkalite._speedups.compaction.tombstone_retention import RetentionRules
from kafkalite._speedups.storage.file import File
from kafkalite._speedups.storage.segment_core import SegmentCore

class Worker:
    offsets: OffsetMap
    stop: bool
    bytes_mapped: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keyless: int
    def __new__(
        cls, offsets: OffsetMap, buffer_bytes: int, throttle: Callable[[int], object] | None = None
    ) -> Self: ...
    def reset(self) -> None: ...
    def map_segment(
        self, file: File, position: int, size: int, base_offset: int, start_offset: int, transactions: Transactions
    ) -> bool: ...
    def clean_segment(
        self,
        file: File,
        size: int,
        base_offset: int,
        target: SegmentCore,
        rules: RetentionRules,
        transactions: Transactions,
        interval: int,
        last: bool,
    ) -> None: ...
