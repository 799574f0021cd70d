"""Coroutines of users that wait for a state of a producer: free memory, or the end of batches."""

import asyncio
from collections.abc import Callable

from kafkalite.errors import KafkaTimeoutError


class Waiters:
    """Futures that end when their condition holds.

    Arguments:
        loop: of the futures.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._conditions: dict[asyncio.Future[None], Callable[[], bool]] = {}

    async def until(self, condition: Callable[[], bool], timeout_s: float | None, text: str) -> None:
        """Wait for a condition.

        Arguments:
            condition: evaluated now and by `check`.
            timeout_s: None = the condition itself ends in time.
            text: of the error.

        Raises:
            KafkaTimeoutError: the time has passed.
        """
        if condition():
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._conditions[future] = condition
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError as error:
            raise KafkaTimeoutError(text) from error
        finally:
            self._conditions.pop(future, None)

    def check(self) -> None:
        """End the futures whose conditions hold."""
        for future, condition in list(self._conditions.items()):
            if not future.done() and condition():
                future.set_result(None)
