from collections.abc import Callable

class RequestMemoryHolder:
    held_bytes: int
    memory_share: RequestMemoryShare | None
    denied: bool

class PreferredFrame: ...

class RequestMemory:
    limit: int
    guaranteed: int
    held_bytes: int
    denied_count: int
    def __init__(self, limit: int, guaranteed: int) -> None: ...

class RequestMemoryShare:
    limit: int
    guaranteed: int
    held_bytes: int
    connections_count: int
    waiting_count: int
    def __init__(self, limit: int, on_full: Callable[[], object], guaranteed: int = ...) -> None: ...
    def add(self, holder: RequestMemoryHolder) -> None: ...
