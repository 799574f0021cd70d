"""The work of `poll` and `async for`: changes of the assignment, records, requests for more of them.

`membership.poll_interval` enforces `max_poll_interval_ms`: a member that does not poll in time leaves its group.

Invariants:
1. One task at a time polls.
2. Requests for more records leave as soon as records were taken: the next ones arrive while the application processes.
3. A poll that finds records at once still lets other tasks run, at least every `YIELD_AFTER_S`.
4. Whatever raises behind `take`, the records that it has read are returned by a later poll; until then no commit covers
   them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Generic

from kafkalite.errors import ClientUseError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.column_builder import ColumnBuilder
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.client.arguments import check_seconds
from kafkalite_sdk.consumer.arguments import check_count
from kafkalite_sdk.consumer.driver import Driver, K, V
from kafkalite_sdk.consumer.fetch.partition_buffer import Target
from kafkalite_sdk.values import OffsetAndMetadata

if TYPE_CHECKING:
    from kafkalite_sdk.consumer.assignment_changes import AssignmentChanges
    from kafkalite_sdk.consumer.offsets.auto_commit import AutoCommit
    from kafkalite_sdk.consumer.poison import PoisonCheck, Rejected

YIELD_AFTER_S = 0.01


class PollLoop(Generic[K, V]):
    """The polls of one consumer.

    Arguments:
        driver: of the consumer.
        changes: of the assignment, None = the consumer has no group.
        auto_commit: None = the application commits.
        check: of the records before they are returned; None = they are not checked.

    Attributes:
        polled_at: time of the last poll on the loop's clock, -infinity = none.
        busy: a task polls.
        streamed: the consumer has streams, which poll.
    """

    def __init__(
        self,
        driver: Driver[K, V],
        changes: "AssignmentChanges | None",
        auto_commit: "AutoCommit | None",
        check: "PoisonCheck | None" = None,
    ) -> None:
        self.polled_at = -inf
        self.busy = False
        self.streamed = False
        self._deadline = -inf
        self._suspensions = 0
        self._waits_for_suspension = False
        self._driver = driver
        self._changes = changes
        self._auto_commit = auto_commit
        self._check = check
        self._yielded_at = -inf
        self._moved: list[Record[K, V]] = []  # from the iteration to columns that are not returned yet

    @property
    def checks(self) -> bool:
        """Whether records are checked before they are returned."""
        return self._check is not None

    async def poll(
        self, timeout_s: float, records_max: int | None, only: Collection[TopicPartition] = ()
    ) -> list[Record[K, V]]:
        """Return records, or an empty list when the time is over.

        Arguments:
            timeout_s: longest time to wait for records; infinity = until there are some.
            records_max: the most records to return; None = `max_poll_records`.
            only: partitions whose records are returned; empty = all.
        """
        self._check_not_streamed()
        if records_max is None:
            records_max = self._driver.settings.records_max
        else:
            check_count("max_records", records_max)
        if type(timeout_s) is not float:
            check_seconds("timeout", timeout_s)
        records = await self.poll_for_streams(timeout_s, records_max, only)
        if self._auto_commit is not None:
            self._driver.unhandled = tuple(records)
        return records

    async def poll_for_streams(
        self, timeout_s: float, records_max: int, only: Collection[TopicPartition] = ()
    ) -> list[Record[K, V]]:
        """Return records for the streams of the consumer; see `poll`."""
        records = await self._alone(timeout_s, partial(self._take, records_max, only), [])
        assert isinstance(records, list)
        return records

    async def poll_columns(self, timeout_s: float, columns: ColumnBuilder) -> None:
        """Append records to columns, as `poll` returns them.

        Arguments:
            timeout_s: as of `poll`.
            columns: without records.

        Raises:
            ClientUseError: the consumer has interceptors of records, which columns would bypass.
        """
        self._check_not_streamed()
        check_seconds("timeout", timeout_s)
        if self._check is not None and self._check.intercepts:
            raise ClientUseError("poll_columns calls no interceptors of records; use poll, or another Consumer")
        start: dict[TopicPartition, OffsetAndMetadata] = {}
        await self._alone(timeout_s, partial(self._take_columns, columns, start), columns)
        self._driver.columns_start = start

    def _check_not_streamed(self) -> None:
        if self.streamed:
            raise ClientUseError("this Consumer has streams; read the records from them")

    async def _alone(self, timeout_s: float, take: Callable[[], Target[K, V]], nothing: Target[K, V]) -> Target[K, V]:
        self._driver.client.check_owner()
        if self.busy:
            raise ClientUseError(
                "this Consumer is polled by another task, or poll was called in a listener; use one consumer per task"
            )
        self.busy = True
        self._driver.handled()
        try:
            return await self._poll(timeout_s, take, nothing)
        finally:
            self.busy = False
            if self._suspensions:
                self._driver.changed()

    def interrupt(self) -> None:
        """Have the open poll return at once."""
        self._deadline = -inf
        self._driver.changed()

    # close, and the end of an assignment

    @asynccontextmanager
    async def suspend(self, deadline: float) -> AsyncIterator[bool]:
        """Let no poll continue; one that is open waits for the end of the block, or returns nothing at its timeout.

        Arguments:
            deadline: of the wait for listeners and other functions that the open poll calls, and for another block, in
                seconds of the loop's clock.

        Yields: whether nothing of that runs any more.
        """
        driver = self._driver
        while self._suspensions and driver.now() < deadline:
            driver.work()
            await driver.wait(deadline)
        alone = not self._suspensions
        self._suspensions += 1
        try:
            driver.changed()
            while self._runs and driver.now() < deadline:
                driver.work()
                await driver.wait(deadline)
            yield alone and not self._runs
        finally:
            self._suspensions -= 1
            driver.changed()

    @property
    def _runs(self) -> bool:
        """Whether a poll does anything but wait for the end of a `suspend` block."""
        return self.busy and not self._waits_for_suspension

    async def _wait_for_suspension(self) -> bool:
        """Wait for the end of a `suspend` block; return whether it has ended before the timeout of the poll."""
        driver = self._driver
        self._waits_for_suspension = True
        driver.changed()
        try:
            while self._suspensions and driver.now() < self._deadline:
                driver.work()
                await driver.wait(self._deadline)
        finally:
            self._waits_for_suspension = False
        return not self._suspensions

    async def _poll(self, timeout_s: float, take: Callable[[], Target[K, V]], nothing: Target[K, V]) -> Target[K, V]:
        """Call `take` until it returns records, or the time is over."""
        driver = self._driver
        now = self.polled_at = driver.now()
        self._deadline = now + timeout_s
        if now >= self._yielded_at + YIELD_AFTER_S:
            await asyncio.sleep(0)
            driver.client.check_owner()
            self._yielded_at = driver.now()
        while True:
            if self._suspensions and not await self._wait_for_suspension():
                return nothing
            if not driver.reads:
                raise ClientUseError("nothing to poll: call subscribe(), add_topic() or assign() first")
            self._polled(now)
            if self._changes is not None and self._changes.pending:
                await self._changes.carry_out()
                if self._suspensions:
                    continue
            records, taken, rejected = self._taken(take)
            if rejected is not None and self._check is not None:
                await self._check.handle(rejected)
                driver.client.check_owner()
            now = driver.now()
            if records or now >= self._deadline:
                return records
            if self._changes is not None and self._changes.pending:
                continue  # `work` has begun a change
            if taken and not self._waits():
                await asyncio.sleep(0)  # poison values were skipped: there may be more records
                continue
            await driver.wait(min(self._deadline, self._auto_commit.next_at if self._auto_commit is not None else inf))
            now = self._yielded_at = driver.now()

    def _taken(self, take: Callable[[], Target[K, V]]) -> "tuple[Target[K, V], bool, Rejected | None]":
        """Return the records that `poll` returns of what `take` returns, and send the requests for more.

        Returns: the records, whether `take` has returned some, and the first one that was rejected.
        """
        records: Target[K, V] | None = None
        try:
            try:
                records = take()
            finally:
                self._driver.work(fetch=True)  # also behind an error: other partitions continue
            if self._check is None or not records or not isinstance(records, list):
                return records, bool(records), None
            good, rejected = self._check.returnable(records)
        except BaseException:
            if records:
                self._give_back(records)
            raise
        return good, True, rejected

    def _give_back(self, records: Target[K, V]) -> None:
        """The application does not receive records that were taken: the next poll returns them."""
        iteration = self._driver.iteration.records
        if isinstance(records, list):
            iteration += reversed(records)
        elif self._moved:
            iteration += self._moved
        else:
            self._driver.fetcher.give_back()

    def _waits(self) -> bool:
        return self._check is not None and self._check.waits

    def _polled(self, now: float) -> None:
        if self._driver.group is not None:
            self._driver.group.membership.poll(now)
        if self._auto_commit is not None:
            self._auto_commit.polled(now)

    def _take(self, records_max: int, only: Collection[TopicPartition]) -> list[Record[K, V]]:
        self._raise_group_error()
        records = self._driver.iteration.take(records_max, only)
        if not records:
            records = self._driver.fetcher.take(records_max, only)
        if not records:
            self._raise_lookup_error(only)
        return records

    def _take_columns(self, columns: ColumnBuilder, start: dict[TopicPartition, OffsetAndMetadata]) -> ColumnBuilder:
        """Append records to columns, and the offset of the first one of each partition to `start`."""
        self._raise_group_error()
        start.clear()
        left = self._driver.iteration.records
        count = 0
        while count < len(left) and not columns.full and columns.add(left[-1 - count]):
            count += 1
        self._moved = left[len(left) - count :]
        del left[len(left) - count :]
        for each in reversed(self._moved):
            if (key := TopicPartition(each.topic, each.partition)) not in start:
                start[key] = OffsetAndMetadata(each.offset, "", each.leader_epoch)
        if not columns:
            self._driver.fetcher.take_columns(columns)
            start |= self._driver.fetcher.last_take_starts()
        if not columns:
            self._raise_lookup_error(())
        return columns

    def _raise_group_error(self) -> None:
        if self._driver.group is not None:
            self._driver.group.raise_error()

    def _raise_lookup_error(self, only: Collection[TopicPartition]) -> None:
        for partition in only or (None,):
            if (error := self._driver.resolver.take_error(partition)) is not None:
                raise error

    async def next(self) -> Record[K, V]:
        """Return the next record of `async for`, and keep those behind it in `driver.iteration`.

        Raises: StopAsyncIteration when the consumer is closed while this waits.
        """
        driver = self._driver
        driver.client.check_owner()
        try:
            records = await self.poll(inf, None)
        except ClientUseError:
            if driver.closed:
                raise StopAsyncIteration from None
            raise
        records.reverse()
        driver.iteration.records += records
        driver.unhandled = ()
        driver.iterated = record = driver.iteration.records.pop()
        return record
