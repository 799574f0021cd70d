"""One call that a thread of the application has passed to the loop of a client, and its end.

Invariants:
1. A call ends exactly once: with its result, with its error, or with the end of the loop.
2. While a thread waits for a call, functions of the application that the call needs run in that thread.
3. A result is received by the application, or undone: nothing between the end of the wait and the `return` of
   `LoopThread.run_or_undo` calls a function, and Python runs signal handlers only at calls and at loops.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SIGNAL_CHECK_S = 0.5
"""A signal that arrives just before a thread begins to wait does not end the wait: Python runs its handler afterwards.
On Windows no signal ends a wait without a limit."""

_current: contextvars.ContextVar["Operation[Any] | None"] = contextvars.ContextVar("kafkalite_operation", default=None)


class Operation(Generic[T]):
    """A call.

    Arguments:
        work: the call; runs in the loop.

    Attributes:
        ended: it has returned or raised.
        awaited: a thread waits for it, or will.
        calls: the thread that waits runs a function of the application.
        result: what it returned; not set before, and after an error.
        error: what it raised, None = nothing.
    """

    __slots__ = ("_mailbox", "_on_end", "_task", "_undo", "_work", "awaited", "calls", "ended", "error", "result")

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self.ended = False
        self.awaited = True
        self.calls = False
        self.result: T
        self._work: Callable[[], Awaitable[T]] | None = work
        self._mailbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._undo: Callable[[T], object] | None = None
        self.error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._on_end: Callable[[Operation[T]], object] | None = None

    # in the loop

    def begin(self, on_end: Callable[["Operation[T]"], object]) -> None:
        """Start the call, unless it was cancelled before; `on_end` is called when it has ended."""
        if not self.ended:
            self._on_end = on_end
            self._task = asyncio.get_running_loop().create_task(self._perform())
            self._task.add_done_callback(self._done)

    def _done(self, _: asyncio.Task[None]) -> None:
        """The task has ended; one that was cancelled before its first step has not run."""
        if not self.ended:
            self._end(asyncio.CancelledError())

    async def _perform(self) -> None:
        _current.set(self)  # also in the contexts of what the call starts, which may keep this operation for long
        assert self._work is not None
        try:
            self.result = await self._work()
        except BaseException as error:  # raised in the thread that waits
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self.error = error
        self.ended = True
        self._task = self._work = None
        try:
            if self._on_end is not None:
                self._on_end(self)
            if self._undo is not None and error is None:
                self._undo(self.result)
        finally:
            self._mailbox.put(None)

    def abandon(self, undo: Callable[[T], object] | None) -> None:
        """The application does not receive the result: undo it, now or when the call has returned."""
        self.awaited = False
        if not self.ended:
            self._undo = undo
        elif undo is not None and self.error is None:
            undo(self.result)

    def cancel(self) -> None:
        """Cancel the call. One that has not begun ends here."""
        if self._task is not None:
            self._task.cancel()
        elif not self.ended:
            self._end(asyncio.CancelledError())

    async def in_application(self, function: Callable[..., T], *args: object) -> T:
        """Call a function in the thread that waits for this operation, and return its result."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._mailbox.put(lambda: _call_for(outcome, function, *args))
        return await outcome

    # in the thread of the application

    def wait(self) -> None:
        """Wait for the end of the call; run functions of the application meanwhile. Ctrl-C ends the wait."""
        while not self.ended:
            try:
                work = self._mailbox.get(timeout=SIGNAL_CHECK_S)
            except Empty:
                continue
            if work is not None:
                self.calls = True
                try:
                    work()
                finally:
                    self.calls = False

    def raise_error(self) -> None:
        """Raise what the call raised, if anything."""
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame


async def in_application(function: Callable[..., T], *args: object) -> T:
    """Call a function of the application: in the thread that waits for the current operation, else here.

    Raises: what the function raises.
    """
    operation = _current.get()
    if operation is None or operation.ended or not operation.awaited:
        return function(*args)
    result: T = await operation.in_application(function, *args)
    return result


def _call_for(outcome: asyncio.Future[T], function: Callable[..., T], *args: object) -> None:
    """Call a function, and pass its outcome to the loop of `outcome`. Ctrl-C is raised here."""
    loop = outcome.get_loop()
    try:
        result = function(*args)
    except Exception as error:
        loop.call_soon_threadsafe(_complete, outcome, None, error)
    else:
        loop.call_soon_threadsafe(_complete, outcome, result, None)


def _complete(outcome: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if outcome.done():
        return  # cancelled meanwhile
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
