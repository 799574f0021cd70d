from typing import Any, Self

from kafkalite._speedups.storage.file import File
from kafkalite._speedups.storage.index import OffsetIndex, TimeIndex
from kafkalite._speedups.storage.page_cache import PageCacheMiss, ReadAttempt

class BatchLocation:
    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int

class SegmentCore:
    base_offset: int
    file: File | None
    offset_index: OffsetIndex | None
    time_index: TimeIndex | None
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    bytes_since_index: int
    created_ms: int
    used: int
    written_from: int
    closed: bool
    def __new__(cls, base_offset: int, *args: Any, **kwargs: Any) -> Self: ...
    def open_again(self) -> None: ...
    def index_again(self) -> None: ...
    def report_damage(self, position: int, offset: int) -> None: ...
    def batches(self, position: int = 0) -> list[BatchLocation]: ...
    def batch_behind(self, position: int, size: int) -> int: ...
    def find_time(self, timestamp: int, attempt: ReadAttempt) -> BatchLocation | PageCacheMiss | None: ...
    def read_batch(self, location: BatchLocation, attempt: ReadAttempt) -> bytes | PageCacheMiss: ...
    def end_before(self, position: int) -> int: ...
    def position_of_batch(self, offset: int) -> tuple[int, int] | None: ...
