"""Verifies that a client is used where it was started: in the same event loop, and so in the same thread and process.

`check` compares the running loop: another thread or a child process after a fork has another one, or none. The reason
is determined only for the error.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

from kafkalite.callbacks import call_each
from kafkalite.errors import ClientFailedError, ClientUseError

Arguments = ParamSpec("Arguments")

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
        failure: an unexpected exception inside the client, which cannot continue; None = there was none.
        on_failure: functions that are called with it.
    """

    __slots__ = ("_ended", "_forks", "_name", "_thread", "closed", "failure", "loop", "on_failure")

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._name = name
        self._thread = 0
        self._forks = 0
        self._ended: asyncio.Future[None] | None = None
        self.closed = False
        self.failure: ClientFailedError | None = None
        self.on_failure: list[Callable[[ClientFailedError], object]] = []

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

    @contextmanager
    def ending(self) -> Iterator[None]:
        """The client is closed, and its connections end inside this block."""
        ended = self._ended = asyncio.get_running_loop().create_future()
        self.end()
        try:
            yield
        finally:
            ended.set_result(None)

    @property
    def ended(self) -> bool:
        """Whether the client is closed, and `ending` is over."""
        return self.closed and (self._ended is None or self._ended.done())

    async def wait_ended(self) -> None:
        """Wait until `ending` is over in the task that closes the client. Raises ClientUseError in another loop."""
        if self._ended is not None and not self._ended.done():
            self.check_running(self._ended)
            await asyncio.wait((self._ended,))

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that started the client."""
        return self._forks != _forks

    def fail(self, error: Exception) -> None:
        """A callback or timer of the client has raised: later calls raise an error that names it, open ones end."""
        if self.failure is None and self.loop is not None:
            name = self._name
            failure = ClientFailedError(f"this {name} has failed: {error!r}; close it and create another one")
            failure.__cause__ = error
            self.failure = failure
            self.loop.call_exception_handler({"message": str(failure), "exception": error})
            call_each(lambda function: function(failure), self.on_failure)

    def guard(self, function: Callable[Arguments, object]) -> Callable[Arguments, None]:
        """Return `function` for a timer or a callback of the loop: an exception fails the client."""

        def guarded(*args: Arguments.args, **named: Arguments.kwargs) -> None:
            try:
                function(*args, **named)
            except Exception as error:
                self.fail(error)

        return guarded

    def check(self) -> None:
        """Raise ClientUseError unless the loop that started the client is running here; raise a failure."""
        self.check_loop()
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def check_loop(self) -> None:
        """Raise ClientUseError unless the loop that started the client is running here."""
        if self.loop is None or asyncio._get_running_loop() is not self.loop:
            raise ClientUseError(self._misuse())

    def check_running(self, future: "asyncio.Future[Any]") -> None:
        """Raise ClientUseError unless the loop of a future, which a close has left, is running here."""
        if asyncio._get_running_loop() is not future.get_loop():
            raise ClientUseError(f"this {self._name} is being closed in another event loop")

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
        if asyncio._get_running_loop() is None:
            return f"this {name} is used outside of its event loop; call it in a coroutine or callback of that loop"
        return f"this {name} belongs to another event loop; create one in each loop, and close it in its loop"
