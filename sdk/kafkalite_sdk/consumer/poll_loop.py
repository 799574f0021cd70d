"""The work of `poll` and `async for`: changes of the assignment, records, requests for more of them.

Invariants:
1. One task at a time polls.
2. Requests for more records leave as soon as records were taken: the next ones arrive while the application processes.
3. A poll that finds records at once still lets other tasks run, at least every `YIELD_AFTER_S`.
"""

import asyncio
from math import inf
from typing import Generic

from kafkalite.errors import ClientUseError
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.consumer.assignment_changes import AssignmentChanges
from kafkalite_sdk.consumer.auto_commit import AutoCommit
from kafkalite_sdk.consumer.driver import Driver, K, V

YIELD_AFTER_S = 0.01


class PollLoop(Generic[K, V]):
    """The polls of one consumer.

    Arguments:
        driver: of the consumer.
        changes: of the assignment, None = the consumer has no group.
        auto_commit: None = the application commits.

    Attributes:
        polled_at: time of the last poll on the loop's clock, -infinity = none.
        busy: a task polls.
    """

    def __init__(self, driver: Driver[K, V], changes: AssignmentChanges | None, auto_commit: AutoCommit | None) -> None:
        self.polled_at = -inf
        self.busy = False
        self._driver = driver
        self._changes = changes
        self._auto_commit = auto_commit
        self._yielded_at = -inf

    async def poll(self, timeout_s: float, records_max: int) -> list[Record[K, V]]:
        """Return records, or an empty list when the time is over.

        Arguments:
            timeout_s: longest time to wait for records; infinity = until there are some.
            records_max: the most records to return.
        """
        self._driver.client.check_owner()
        if self.busy:
            raise ClientUseError(
                "this Consumer is polled by another task, or poll was called in a listener; use one consumer per task"
            )
        self.busy = True
        try:
            return await self._poll(timeout_s, records_max)
        finally:
            self.busy = False

    async def _poll(self, timeout_s: float, records_max: int) -> list[Record[K, V]]:
        driver = self._driver
        now = self.polled_at = driver.now()
        deadline = now + timeout_s
        if now >= self._yielded_at + YIELD_AFTER_S:
            await asyncio.sleep(0)
            driver.client.check_owner()
            self._yielded_at = driver.now()
        while True:
            self._polled(now)
            if self._changes is not None and self._changes.pending:
                await self._changes.carry_out()
            records = self._take(records_max)
            driver.work(fetch=True)
            now = driver.now()
            if records or now >= deadline:
                return records
            await driver.wait(min(deadline, self._auto_commit.next_at if self._auto_commit is not None else inf))
            now = self._yielded_at = driver.now()

    def _polled(self, now: float) -> None:
        if self._driver.group is not None:
            self._driver.group.membership.poll(now)
        if self._auto_commit is not None:
            self._auto_commit.polled(now)

    def _take(self, records_max: int) -> list[Record[K, V]]:
        driver = self._driver
        if driver.group is not None:
            driver.group.raise_error()
        records = driver.iteration.take(records_max)
        if records:
            return records
        records = driver.fetcher.take(records_max)
        if not records and (error := driver.resolver.take_error()) is not None:
            raise error
        return records

    async def next(self) -> Record[K, V]:
        """Return the next record of `async for`, and keep those behind it in `driver.iteration`.

        Raises: StopAsyncIteration when the consumer is closed while this waits.
        """
        driver = self._driver
        driver.client.check_owner()
        try:
            records = await self.poll(inf, driver.settings.records_max)
        except ClientUseError:
            if driver.closed:
                raise StopAsyncIteration from None
            raise
        records.reverse()
        driver.iteration.records += records
        return driver.iteration.records.pop()
