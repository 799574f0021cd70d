from collections.abc import Sequence

class Uncleanable(ValueError): ...
class Stopped(Exception): ...

class Transactions:
    def __init__(self, aborted: Sequence[tuple[int, int, int, int]]) -> None: ...
    def take_kept(self) -> list[tuple[int, int, int, int]]: ...

class Rules:
    now_ms: int
    horizon_ms: int
    upper_offset: int
    def __init__(
        self,
        now_ms: int,
        delete_retention_ms: int,
        upper_offset: int,
        last_records: Sequence[tuple[int, int, int]],
    ) -> None: ...
