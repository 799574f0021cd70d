"""Verifies that a client is used where it was started: in the same event loop, and so in the same thread and process.

`check` compares the running loop: another thread or a child process after a fork has another one, or none. The reason
is determined only for the error.
"""

import asyncio
import os
import threading

from kafkalite.errors import ClientUseError

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Owner:
    """The event loop, thread and process that started a client.

    Arguments:
        name: of the client's class, for error texts.

    Attributes:
        loop: the event loop; None before the start and after the close.
        closed: the client was closed.
    """

    __slots__ = ("_forks", "_name", "_thread", "closed", "loop")

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._name = name
        self._thread = 0
        self._forks = 0
        self.closed = False

    def begin(self) -> asyncio.AbstractEventLoop:
        """Bind the client to the running event loop.

        Raises:
            ClientUseError: it was started before, or no event loop is running.
        """
        if self.loop is not None or self.closed:
            state = "was closed" if self.closed else "is started"
            raise ClientUseError(f"this {self._name} {state}; create another one")
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise ClientUseError(f"start a {self._name} inside a running event loop, as with asyncio.run()") from error
        self._thread = threading.get_ident()
        self._forks = _forks
        return self.loop

    def abandon(self) -> None:
        """The start has failed: the client may be started again."""
        self.loop = None

    def end(self) -> None:
        """The client is closed."""
        self.loop = None
        self.closed = True

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that started the client."""
        return self._forks != _forks

    def check(self) -> None:
        """Raise ClientUseError unless the loop that started the client is running here."""
        if self.loop is None or asyncio._get_running_loop() is not self.loop:
            raise ClientUseError(self._misuse())

    def _misuse(self) -> str:
        name = self._name
        if self.closed:
            return f"this {name} was closed; create another one"
        if self.loop is None:
            return f'this {name} is not started; use "async with" or await its start()'
        if self.forked:
            return f"this {name} was started before a fork; create another one in the child process"
        if self._thread != threading.get_ident():
            use = "asyncio.run_coroutine_threadsafe() or loop.call_soon_threadsafe()"
            return f"this {name} belongs to another thread; call it through {use}, or create one in this thread"
        return f"this {name} belongs to another event loop; create one in each loop, and close it in its loop"
