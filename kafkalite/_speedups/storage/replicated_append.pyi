from typing import Self

class ReplicatedAppend:
    """Result of `LogCore.append_replicated`; the attributes are described in the `.pyx`."""

    next_offset: int
    count: int
    size: int
    error: int
    offset: int
    reason: str
    restart_offset: int
    def __new__(cls, next_offset: int, leader_epoch: int) -> Self: ...
