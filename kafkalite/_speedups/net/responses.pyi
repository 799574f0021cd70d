from collections.abc import Callable, Sequence
from typing import Any, final

from kafkalite._speedups.net.loop import ConnectionBase

class RespondingConnection(ConnectionBase):
    unsent: int
    requests_bytes: int

@final
class Reply:
    request_size: int  # bytes of the frame
    connection: Any  # a Connection of `framing`, which creates replies
    on_gone: Callable[[], object] | None
    in_progress: bool
    @property
    def done(self) -> bool: ...
    def send(self, parts: bytes | bytearray | memoryview | Sequence[Any]) -> None: ...
    def skip(self) -> None: ...
    def close(self, reason: str) -> None: ...
    def pause(self) -> None: ...
    def resume(self, pinned: bool) -> None: ...
