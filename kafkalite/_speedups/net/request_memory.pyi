class RequestMemoryHolder:
    held_bytes: int
    denied: bool

class RequestMemory:
    limit: int
    guaranteed: int
    held_bytes: int
    denied_count: int
    def __init__(self, limit: int, guaranteed: int) -> None: ...
