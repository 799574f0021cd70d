"""The callbacks of an application for changes of its assignment; `assignment_changes` decides when they are called."""

import inspect
from collections.abc import Awaitable, Callable, Collection

from kafkalite.model import TopicPartition

Partitions = Collection[TopicPartition]


class RebalanceListener:
    """Base class for listeners of `Consumer.subscribe`. Methods are plain or async; those not overridden do nothing.

    All run inside `poll`, `unsubscribe` or `close`. They may call every method of the consumer except
    `poll`, `unsubscribe` and `close`.
    """

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """The group takes partitions away. No more records of them are returned; offsets may still be committed."""

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """The group has assigned partitions. `seek` sets where they begin."""

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """Partitions are lost and may already be read by another member: commits fail.

        Calls `on_partitions_revoked` unless it is overridden.
        """
        return self.on_partitions_revoked(partitions)


async def call_listener(method: Callable[[Partitions], Awaitable[None] | None], partitions: Partitions) -> None:
    """Call a method of a listener and wait for it if it is async."""
    result = method(sorted(partitions))
    if inspect.isawaitable(result):
        await result
