"""The records of an asynchronous producer that are not acknowledged: their number, and when they are sent at once.

Source: AsyncProducerConfig.scala and ProducerSendThread.scala of Kafka 0.8.2.2.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from kafkalite.errors import BufferExhaustedError


class OpenRecords:
    """Counts records, and lets `send` wait while there are too many.

    Arguments:
        records_max: largest number.
        timeout_s: how long a record waits for space; None = without limit, 0 = not at all.
        batch_records: number of queued records with which the queue is sent.
        linger_s: longest time in the queue.
        send: sends the queue.
    """

    def __init__(
        self,
        records_max: int,
        timeout_s: float | None,
        batch_records: int,
        linger_s: float,
        send: Callable[[], object],
    ) -> None:
        self.count = 0
        self._records_max = records_max
        self._timeout_s = timeout_s
        self._batch_records = batch_records
        self._linger_s = linger_s
        self._send = send
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._queued = 0
        self._queued_since = 0.0

    async def space(self) -> None:
        """Wait until another record may be added, and count it. Raises BufferExhaustedError: not in time.

        `added` or `ended` must follow.
        """
        if self.count >= self._records_max:
            await self._wait_for_space()
        self.count += 1

    async def _wait_for_space(self) -> None:
        self._send()  # nothing lingers while `send` waits
        if self._timeout_s == 0:
            raise self._full()
        try:
            async with asyncio.timeout(self._timeout_s):
                while self.count >= self._records_max:
                    await self._wait()
        except TimeoutError:
            raise self._full() from None

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # the space is that of another one now
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _full(self) -> BufferExhaustedError:
        return BufferExhaustedError(
            f"{self.count} records are not acknowledged, at most {self._records_max} may be "
            "(queue_buffering_max_messages)"
        )

    def added(self, now: float) -> None:
        """A record that `space` has counted was queued at a time in seconds."""
        if not self._queued or now - self._queued_since >= self._linger_s:
            self._queued, self._queued_since = 0, now
        self._queued += 1
        if self._queued >= self._batch_records:
            self._queued = 0
            self._send()

    def ended(self) -> None:
        """A record was acknowledged, or has failed."""
        self.count -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
