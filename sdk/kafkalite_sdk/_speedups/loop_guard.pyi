"""Finds out for a few nanoseconds whether the code runs in the event loop that it belongs to."""

import asyncio
from typing import final

__all__ = ["LoopGuard"]

@final
class LoopGuard:
    """Confirms that the caller runs in an event loop, in the process that created the guard.

    Arguments:
        loop: the event loop.

    Attributes:
        closed: no caller passes any more.
    """

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> LoopGuard: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Let no caller pass any more."""

    def open(self) -> None:
        """Let callers of the loop pass again."""
