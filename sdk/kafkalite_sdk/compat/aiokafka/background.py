"""Work that aiokafka does beside the calls of a consumer: rebalances between polls, and a subscription without a group.

Invariants:
1. One task at a time polls or carries out a change of the assignment; the lock of the consumer decides.
2. A task exists only while a change is carried out.
"""

import asyncio
import inspect
import logging
import re
from collections.abc import Collection
from typing import Any

from kafkalite.errors import ClientUseError
from kafkalite.model import TopicPartition
from kafkalite_sdk.client.cluster_view import MetadataChanges
from kafkalite_sdk.compat.aiokafka.abc import ConsumerRebalanceListener
from kafkalite_sdk.consumer.assignment_changes import AssignmentChanges
from kafkalite_sdk.consumer.driver import AnyDriver
from kafkalite_sdk.consumer.listeners import RebalanceListener

LOGGER = logging.getLogger("kafkalite_sdk.compat.aiokafka")


class ListenerAdapter(RebalanceListener):
    """Calls a listener of aiokafka, with sets; its exceptions are logged.

    Arguments:
        listener: of the application, None = none.
        driver: of the consumer.

    Attributes:
        enabled: False = no more calls, as the consumer stops.
    """

    def __init__(self, listener: ConsumerRebalanceListener | None, driver: AnyDriver) -> None:
        self._listener = listener
        self._driver = driver
        self.enabled = True
        self._revoked = False

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Report the partitions that are taken away or lost."""
        self._revoked = True
        if self._listener is not None:
            await self._call(self._listener.on_partitions_revoked, set(partitions))

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Report all partitions of the member, as aiokafka does; a revocation, maybe of none, comes first."""
        if not self._revoked:
            await self.on_partitions_revoked(())
        self._revoked = False
        if self._listener is not None:
            await self._call(self._listener.on_partitions_assigned, set(self._driver.assignment()))

    async def _call(self, method: Any, partitions: set[TopicPartition]) -> None:
        if not self.enabled:
            return
        try:
            result = method(partitions)
            if inspect.isawaitable(result):
                await result
        except Exception:
            LOGGER.exception("the listener %r failed for %s", self._listener, sorted(partitions))


class Rebalances:
    """Carries out changes of the assignment while no task polls.

    Arguments:
        driver: of the consumer.
        changes: of its assignment.
        lock: held by the task that polls.
    """

    def __init__(self, driver: AnyDriver, changes: AssignmentChanges, lock: asyncio.Lock) -> None:
        self._driver = driver
        self._changes = changes
        self._lock = lock
        self._task: asyncio.Task[None] | None = None
        driver.on_attention = self._attend

    def _attend(self) -> None:
        if self._task is None and self._changes.pending and not self._lock.locked():
            self._task = self._driver.client.loop.create_task(self._carry_out())

    async def _carry_out(self) -> None:
        try:
            if self._changes.pending and not self._lock.locked():  # else the task that polls carries it out
                async with self._lock:
                    await self._changes.carry_out()
        except Exception:
            LOGGER.exception("a change of the assignment has failed; the next call continues it")
        else:
            self._driver.changed()
        finally:
            self._task = None

    async def joined(self) -> None:
        """Wait until the member has its first assignment. Raises what the group fails with."""
        driver, group = self._driver, self._driver.group
        assert group is not None
        while group.membership.state != "stable" or self._changes.pending:
            group.raise_error()
            if driver.on_attention is None:
                raise ClientUseError("the consumer is stopped")
            group.membership.poll(driver.now())
            driver.work()
            if self._changes.pending:
                await self._changes.carry_out()
            elif group.membership.state != "stable":
                await driver.wait(driver.now() + 1)

    async def ended(self) -> None:
        """Wait until the group does not rebalance. Raises what the group fails with."""
        while self.continues():
            self._driver.work()
            await self._driver.wait(self._driver.now() + 1)

    def continues(self) -> bool:
        """Whether the group rebalances, or a change is not carried out yet. Raises what the group fails with."""
        group = self._driver.group
        if group is None or (group.membership.state == "stable" and not self._changes.pending):
            return False
        group.raise_error()
        return self._driver.on_attention is not None and group.subscribed

    async def stop(self) -> None:
        """Wait until no change is carried out any more; none begins."""
        self._driver.on_attention = None
        if self._task is not None:
            await asyncio.wait([self._task])


class GrouplessSubscription:
    """Assigns all partitions of the subscribed topics, as aiokafka's consumer without a group.

    Arguments:
        driver: of the consumer.
        internal: a pattern matches internal topics, too.

    Attributes:
        topics: names, None = there is a pattern or no subscription.
    """

    def __init__(self, driver: AnyDriver, *, internal: bool) -> None:
        self._driver = driver
        self._internal = internal
        self.topics: frozenset[str] | None = None
        self._pattern: re.Pattern[str] | None = None
        driver.client.on_metadata.append(self._metadata_changed)

    def subscribe(self, topics: Collection[str], pattern: str | None) -> None:
        """Subscribe in place of the subscription before.

        Arguments:
            topics: names, or empty.
            pattern: of names, or None.
        """
        self.topics = None if pattern is not None else frozenset(topics)
        self._pattern = None if pattern is None else re.compile(pattern)
        self._driver.awaits_topics = True
        self.follow()

    def unsubscribe(self) -> None:
        """End the subscription."""
        self.topics = self._pattern = None
        self._driver.awaits_topics = False
        self._driver.client.use_all_topics(False)
        self._driver.assign(())

    @property
    def active(self) -> bool:
        """Whether there is a subscription."""
        return self.topics is not None or self._pattern is not None

    def follow(self) -> None:
        """Assign the partitions that the metadata names now."""
        driver = self._driver
        if not self.active or not driver.started:
            return
        driver.client.use_all_topics(self._pattern is not None)
        if self.topics is not None:
            driver.client.use_topics(sorted(self.topics), create=True)
        partitions = [
            TopicPartition(name, number) for name in self.names() for number in range(len(self._view(name).partitions))
        ]
        if set(partitions) != driver.assignment():
            driver.assign(partitions)
            driver.changed()

    def _view(self, name: str) -> Any:
        return self._driver.client.view.topics[name]

    def names(self) -> list[str]:
        """Return the subscribed topics that exist."""
        known = self._driver.client.view.topics
        if self._pattern is None:
            return sorted(name for name in self.topics or () if name in known)
        usable = (name for name, view in known.items() if self._internal or not view.internal)
        return sorted(name for name in usable if self._pattern.match(name))

    def _metadata_changed(self, _: MetadataChanges) -> None:
        self.follow()
