"""The subscription of a consumer: one of its group, or partitions that the application assigns; and how that ends."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from kafkalite.errors import ClientUseError, KafkaTimeoutError
from kafkalite.model import TopicPartition
from kafkalite_sdk.client.arguments import check_seconds
from kafkalite_sdk.consumer.application_calls import check_not_inside
from kafkalite_sdk.consumer.driver import AnyDriver
from kafkalite_sdk.consumer.listeners import RebalanceListener
from kafkalite_sdk.membership.patterns import check_pattern

if TYPE_CHECKING:
    from kafkalite_sdk.consumer.assignment_changes import AssignmentChanges
    from kafkalite_sdk.consumer.group_requests import GroupRequests
    from kafkalite_sdk.consumer.offsets.auto_commit import AutoCommit
    from kafkalite_sdk.consumer.poll_loop import PollLoop

CALLS_SHARE, POLL_SHARE = 0.5, 0.75
"""Shares of a timeout after which a listener of an open poll is cancelled, and its other functions are not awaited."""


class Subscriptions:
    """The subscription of one consumer.

    Arguments:
        driver: of the consumer.
        polls: of the consumer.
        changes: of the assignment, None = the consumer has no group.
        auto_commit: None = the application commits.

    Attributes:
        started: what was called before the start has been done.
    """

    def __init__(
        self,
        driver: AnyDriver,
        polls: "PollLoop[Any, Any]",
        changes: "AssignmentChanges | None",
        auto_commit: "AutoCommit | None",
    ) -> None:
        self._driver = driver
        self._polls = polls
        self._changes = changes
        self._auto_commit = auto_commit
        self.started = False
        self._assigned = False
        self._before_start: list[Callable[[], None]] = []

    def _do(self, action: Callable[[], None]) -> None:
        """Do it now, or when the consumer starts."""
        if self.started:
            self._driver.client.check_owner()
            action()
        else:
            self._driver.check_not_closed()
            self._before_start.append(action)

    def start(self) -> None:
        """The consumer has started."""
        self.started = True
        actions, self._before_start = self._before_start, []
        for action in actions:
            action()

    def _group(self) -> "tuple[GroupRequests, AssignmentChanges]":
        if self._driver.group is None or self._changes is None:
            raise ClientUseError('subscribing needs a group: create the Consumer with group="name", or use assign()')
        if self._assigned:
            raise ClientUseError("partitions are assigned by assign(); call unsubscribe() before subscribing")
        return self._driver.group, self._changes

    def subscribe(
        self, topics: Collection[str], pattern: str | None, exclude: str | None, listener: RebalanceListener | None
    ) -> None:
        """Read topics as a member of the group; see `Consumer.subscribe`."""
        group, changes = self._group()
        if bool(topics) == (pattern is not None):
            raise ValueError("pass names of topics, or a pattern")
        if exclude is not None and pattern is None:
            raise ValueError("exclude without a pattern; leave the topics out of the list")
        for each in (pattern, exclude):
            if each is not None:
                check_pattern(each)

        def subscribe() -> None:
            group.membership.subscribe(topics, pattern=pattern, excluded=exclude, now=self._driver.now())
            changes.listener = RebalanceListener() if listener is None else listener
            self._subscribed(group)

        group.subscribed = True
        self._do(subscribe)

    def add_topic(self, topic: str, partition: int | None) -> None:
        """Read one more topic or one partition; see `Consumer.add_topic`."""
        group, _ = self._group()

        def add_topic() -> None:
            group.membership.add_topic(topic, partition, self._driver.now())
            self._subscribed(group)

        group.subscribed = True
        self._do(add_topic)

    def _subscribed(self, group: "GroupRequests") -> None:
        self._driver.use_topics()
        self._driver.work()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; see `Consumer.assign`."""
        if self._driver.group is not None and self._driver.group.subscribed:
            raise ClientUseError("this Consumer has subscribed; call unsubscribe() before assign()")

        def assign() -> None:
            if self._auto_commit is not None:
                self._auto_commit.commit_nowait(self._driver.positions.states.keys() - set(partitions))
            self._driver.assign(partitions)
            self._driver.work()

        self._assigned = bool(partitions)
        self._do(assign)

    def forget(self) -> None:
        """Forget what was subscribed or assigned before the start."""
        self._before_start.clear()
        self._assigned = False
        if self._driver.group is not None:
            self._driver.group.subscribed = False

    async def unsubscribe(self, timeout_s: float) -> None:
        """Release all partitions and leave the group. A poll of another task continues afterwards.

        Arguments:
            timeout_s: of everything.

        Raises: what a listener raised, after the end. ClientUseError: a listener of the caller runs. KafkaTimeoutError:
            a function of the application, called by a poll of another task, has not returned.
        """
        check_seconds("timeout", timeout_s)
        check_not_inside(self._driver)
        deadline = self._driver.now() + timeout_s
        async with self._suspended(timeout_s) as alone:
            if not alone:
                raise KafkaTimeoutError("unsubscribe: what another task has called has not returned in time")
            await self._unsubscribe(deadline)

    @asynccontextmanager
    async def _suspended(self, timeout_s: float) -> AsyncIterator[bool]:
        """Let no other task poll. Yields whether nothing of an open poll runs any more."""
        now, streams = self._driver.now(), self._driver.streams
        until = now + timeout_s * POLL_SHARE
        self._limit_listeners(now + timeout_s * CALLS_SHARE)
        try:
            async with (
                nullcontext() if streams is None else streams.suspend(until),
                self._polls.suspend(until) as alone,
            ):
                self._limit_listeners(None)
                yield alone
        finally:
            self._limit_listeners(None)

    def _limit_listeners(self, deadline: float | None) -> None:
        if self._changes is not None:
            self._changes.limit(deadline)

    async def _unsubscribe(self, deadline: float) -> None:
        """Release all partitions and leave the group, until `deadline` in seconds of the loop's clock.

        Raises what a listener raised, after the end.
        """
        driver, changes = self._driver, self._changes
        raised: Exception | None = None
        if driver.group is not None and changes is not None:
            await self._end_commits(driver.group, deadline)
            if driver.group.subscribed:
                raised = await self._leave(driver.group, changes, deadline)
            elif self._auto_commit is not None and changes.commit_on_revoke:
                await self._auto_commit.commit(None, deadline)
            driver.group.subscribed = False
        self._assigned = False
        driver.assign(())
        if raised is not None:
            raise raised

    async def _end_commits(self, group: "GroupRequests", deadline: float) -> None:
        """Wait for the commits that are open: without their member they would fail."""
        driver = self._driver
        while not group.commits.idle and driver.now() < deadline:
            driver.work()
            await driver.wait(deadline)

    async def _leave(self, group: "GroupRequests", changes: "AssignmentChanges", deadline: float) -> Exception | None:
        """Leave the group; return what a listener raised."""
        driver, raised = self._driver, None
        changes.deadline = deadline
        try:
            group.membership.leave(driver.now())
            while True:
                if changes.pending:
                    raised = await self._carried_out(changes) or raised
                driver.work()
                if group.membership.left or driver.now() >= deadline:
                    return raised
                await driver.wait(deadline)
        finally:
            changes.deadline = None

    @staticmethod
    async def _carried_out(changes: "AssignmentChanges") -> Exception | None:
        """Carry out changes; return what a listener raised: the member must leave in any case."""
        try:
            await changes.carry_out()
        except Exception as error:
            return error
        return None

    async def close(self, timeout_s: float, *, commit: bool) -> None:
        """Leave the group and end the connections of a consumer that is started; afterwards it is closed in any case.

        Arguments:
            timeout_s: of everything.
            commit: whether automatic commits commit what the last poll has returned.
        """
        driver, changes = self._driver, self._changes
        deadline = driver.now() + timeout_s
        try:
            if driver.client.owner.failure is None:
                async with self._suspended(timeout_s) as alone:
                    if changes is not None:
                        changes.commit_on_revoke = commit
                    if alone or changes is None or not changes.busy:
                        await self._unsubscribe(deadline)
        finally:
            await driver.close(max(0.0, deadline - driver.now()))
