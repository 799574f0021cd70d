"""The close of a client, which any number of tasks may call at any time.

Invariants:
1. A client is closed once, by a task of its own. Each caller waits for that task; after its end a call does nothing.
2. A caller that is cancelled, or whose timeout passes, ends its own wait only. When the last caller is cancelled, the
   close is cancelled: it ends at once.
3. A caller with `AT_ONCE` waits for the end only: it does not count as a caller, so the close is cancelled unless
   another one waits. It may be the first one.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from kafkalite.errors import ClientUseError, KafkaTimeoutError
from kafkalite_sdk.client.ownership import Owner

T = TypeVar("T")

AT_ONCE: contextvars.ContextVar[bool] = contextvars.ContextVar("kafkalite_close_at_once", default=False)
"""Whether the application has interrupted a close, and does not wait for what it was to wait for."""


class Closing(Generic[T]):
    """The close of one client.

    Arguments:
        owner: of the client.
        name: of its class, for error texts.

    Attributes:
        callers: the tasks that wait.
    """

    def __init__(self, owner: Owner, name: str) -> None:
        self.callers: set[asyncio.Task[Any] | None] = set()
        self._owner = owner
        self._name = name
        self._task: asyncio.Task[T] | None = None

    @property
    def begun(self) -> bool:
        """Whether the close has begun."""
        return self._task is not None

    async def run(self, close: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T | None:
        """Close the client, or wait for the close that runs.

        Arguments:
            close: called unless the close has begun.
            timeout_s: of a caller that waits for the close of another one, in seconds; None = until it has ended.

        Returns: what `close` returned; None if it had ended before this call, or was cancelled with its other callers.

        Raises: what `close` raises, in each caller. KafkaTimeoutError: the timeout of this caller has passed.
            ClientUseError: `close` has called a function of the application, which waits for its end; or the caller
            belongs to another event loop.
        """
        first = self._task is None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(close(), name=f"close of a {self._name}")
        elif self._task.done():
            return None
        self._check(self._task)
        return await self._wait(self._task, None if first else timeout_s)

    def _check(self, task: "asyncio.Task[T]") -> None:
        if task is asyncio.current_task():
            raise ClientUseError(f"close() of this {self._name} runs, and waits for the function that has called it")
        self._owner.check_running(task)

    async def _wait(self, task: "asyncio.Task[T]", timeout_s: float | None) -> T | None:
        if AT_ONCE.get():
            return await self._end_at_once(task)
        caller = asyncio.current_task()
        self.callers.add(caller)
        try:
            await asyncio.wait((task,), timeout=timeout_s)
        except asyncio.CancelledError:
            self.callers.discard(caller)
            if self._cancel_unawaited(task):
                await asyncio.wait((task,))
            raise
        finally:
            self.callers.discard(caller)
        if not task.done():
            raise KafkaTimeoutError(f"another close() of this {self._name} has not ended within {timeout_s:g} s")
        return None if task.cancelled() else task.result()  # all other callers were cancelled

    async def _end_at_once(self, task: "asyncio.Task[T]") -> T | None:
        try:
            await asyncio.sleep(0)  # a task that is cancelled before its first step does not run
        finally:
            self._cancel_unawaited(task)
        await asyncio.wait((task,))
        return None if task.cancelled() else task.result()

    def _cancel_unawaited(self, task: "asyncio.Task[T]") -> bool:
        """Cancel the close if no caller waits; returns whether none does."""
        if self.callers or task.done():
            return False
        if not task.cancelling():  # a second cancellation would interrupt the end of the connections
            task.cancel()
        return True
