from typing import Any, Self

from kafkalite._speedups.storage.file import File
from kafkalite._speedups.storage.index import OffsetIndex, TimeIndex

ATTEMPTS_MAX: int

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
    def __new__(cls, base_offset: int, *args: Any, **kwargs: Any) -> Self: ...
    def open_again(self) -> None: ...
    def index_again(self) -> None: ...
    def report_damage(self, position: int, offset: int) -> None: ...
    def batches(self, position: int = 0) -> list[tuple[int, int, int, int, int, int]]: ...
    def batch_behind(self, position: int, size: int) -> int: ...
    def find_time(
        self, timestamp: int, from_offset: int, wait: bool = True, brought: PageCacheMiss | None = None
    ) -> tuple[int, int] | PageCacheMiss | None: ...
    def batch_now(self, position: int, size: int, brought: PageCacheMiss | None = None) -> bytes | PageCacheMiss: ...
    def position_of_batch(self, offset: int) -> tuple[int, int] | None: ...

class PageCacheMiss:
    segment: Any
    file: File | None
    offset: int
    position: int
    size: int
    attempts: int
    def __init__(
        self, segment: SegmentCore, file: File | None, offset: int, position: int, size: int, attempts: int = 0
    ) -> None: ...
    def at_position(self, position: int) -> PageCacheMiss: ...
