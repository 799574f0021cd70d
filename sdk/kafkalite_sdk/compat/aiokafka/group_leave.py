"""The end of a subscription in the background: aiokafka's `unsubscribe` and `assign` do not wait.

Invariants:
1. What the application assigns, subscribes or seeks while the member leaves its group is done behind the leave, in the
   order of the calls.
2. `unsubscribe` cancels what waits for an earlier leave.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kafkalite.model import TopicPartition
from kafkalite_sdk.consumer.driver import AnyDriver

LOGGER = logging.getLogger("kafkalite_sdk.compat.aiokafka")

NOTHING: frozenset[TopicPartition] = frozenset()


class GroupLeave:
    """Leaves the group of one consumer.

    Arguments:
        driver: of the consumer.
        leave: releases the partitions and leaves the group.

    Attributes:
        assigned: partitions that `assign` has named meanwhile.
    """

    def __init__(self, driver: AnyDriver, leave: Callable[[], Awaitable[None]]) -> None:
        self.assigned = NOTHING
        self._driver = driver
        self._leave = leave
        self._task: asyncio.Task[None] | None = None
        self._behind: list[Callable[[], object]] = []

    @property
    def active(self) -> bool:
        """Whether the member leaves its group."""
        return self._task is not None

    def begin(self) -> None:
        """Leave the group."""
        self.assigned = NOTHING
        self._behind.clear()
        if self._task is None:
            self._task = self._driver.client.loop.create_task(self._run())

    def then(self, action: Callable[[], object]) -> None:
        """Do something behind the leave; now, if there is none."""
        if self._task is None:
            action()
        else:
            self._behind.append(action)

    async def ended(self) -> None:
        """Wait for the leave."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await self._leave()
        except Exception:
            LOGGER.exception("the consumer has not left its group")
        finally:
            self._task = None
            self.assigned = NOTHING
        self._act()

    def _act(self) -> None:
        behind, self._behind = self._behind, []
        for action in behind:
            try:
                action()
            except Exception:
                LOGGER.exception("a call behind unsubscribe() has failed")
