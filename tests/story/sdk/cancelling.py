"""Cancels a task at one of its awaits, chosen by its number."""

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Cancelling:
    """The awaits of an application, one of which is cancelled.

    Arguments:
        number: of the await to cancel, from 0 on.

    Attributes:
        cancelled: the await was reached. If not, the application has fewer awaits.
    """

    def __init__(self, number: int) -> None:
        self.cancelled = False
        self._left = number

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await a call; if it is cancelled, call again."""
        found = await self.once(call)
        return await call() if found is None and self.cancelled else found  # type: ignore[return-value]

    async def once(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Await a call; None if it is cancelled."""
        before = self.cancelled
        try:
            return await self._counted(call())
        except asyncio.CancelledError:
            assert self.cancelled and not before, "the cancellation is not that of `_counted`"
            return None
        finally:
            if self.cancelled and not before:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()

    @types.coroutine
    def _counted(self, awaitable: Awaitable[T]) -> Generator[Any, Any, T]:
        steps = awaitable.__await__()
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                waits_for = resume()
            except StopIteration as end:
                return end.value
            if self._left == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                self.cancelled = True
            self._left -= 1
            try:
                yield waits_for
            except BaseException as error:
                resume = partial(steps.throw, error)  # type: ignore[attr-defined]  # of a generator or a future
            else:
                resume = partial(next, steps)
