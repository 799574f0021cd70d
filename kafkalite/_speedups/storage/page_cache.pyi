from typing import Any, final

from kafkalite._speedups.storage.file import File

@final
class PageCacheMiss:
    segment: Any
    file: File | None
    offset: int
    position: int
    size: int
    attempts: int
    def __init__(
        self, segment: object, file: File | None, offset: int, position: int, size: int, attempts: int = 0
    ) -> None: ...
    def at_position(self, position: int) -> PageCacheMiss: ...

@final
class ReadAttempt:
    offset: int
    max_bytes: int
    end_offset: int
    min_one: bool
    wait: bool
    read_ahead: PageCacheMiss | None
    def __init__(
        self,
        offset: int,
        max_bytes: int = 0,
        end_offset: int = ...,
        *,
        min_one: bool = True,
        wait: bool = False,
        read_ahead: PageCacheMiss | None = None,
    ) -> None: ...
    def miss_of_unloaded(self, segment: object, offset: int, size: int) -> PageCacheMiss | None: ...
