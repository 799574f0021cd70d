from collections.abc import Sequence
from typing import Self

class RetentionRules:
    now_ms: int
    horizon_ms: int
    upper_offset: int
    def __new__(
        cls,
        now_ms: int,
        delete_retention_ms: int,
        upper_offset: int,
        last_records: Sequence[tuple[int, int, int]],
    ) -> Self: ...
