from typing import Any

def run(
    host: str,
    port: int,
    requests: list[bytes],
    connections: int = 1,
    depth: int = 1,
    *,
    count: int = 0,
    seconds: float = 0.0,
    error_at: int = -1,
    timeout_s: float = 30.0,
) -> dict[str, Any]: ...
def consume(
    host: str,
    port: int,
    request: bytes,
    offset_at: int,
    records_at: int,
    *,
    offset: int = 0,
    end_offset: int,
    timeout_s: float = 30.0,
) -> dict[str, Any]: ...
