"""The consumer of the SDK in the thread of a blocking consumer, and what other threads read of it.

Records change threads in lists. The loop puts the records of a poll into the list from which `async for` takes them, so
commits, positions and rebalances treat those that the application has not received as such. Records that were taken and
that Ctrl-C keeps from the application return to that list.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Generic

from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.column_batch import ColumnBatch
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk._speedups.shared_sends import LoopLock
from kafkalite_sdk.blocking.operation import in_application
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.consumer import consumer as asynchronous
from kafkalite_sdk.consumer.arguments import check_count
from kafkalite_sdk.consumer.consumer import K, V
from kafkalite_sdk.consumer.listeners import Partitions, RebalanceListener
from kafkalite_sdk.values import OffsetAndMetadata

RECORDS_PER_SWITCH = 4000
"""Records that the loop prepares while the application waits; `poll` returns them without a switch of threads."""

Consumed = dict[TopicPartition, OffsetAndMetadata]


class LoopConsumer(asynchronous.Consumer[K, V], Generic[K, V]):
    """A consumer of the SDK whose records other threads take.

    Attributes:
        undelivered: what `take` has returned, until the application receives it.
    """

    @property
    def cluster(self) -> ClusterClient:
        return self._driver.client

    @property
    def closed(self) -> bool:
        return self._driver.closed

    @property
    def _commits(self) -> bool:
        return self._driver.settings.auto_commit_interval_s is not None

    undelivered: list[Record[K, V]] | None = None

    # in another thread, with the lock of the client

    def ready(self, records_max: int | None) -> list[Record[K, V]]:
        """Return records that are ready; none when the loop has more to do first.

        Arguments:
            records_max: None = `max_poll_records`.
        """
        driver = self._driver
        if driver.attention or self._loop.busy or driver.closed:
            return []
        driver.iterated = []  # a poll, and no record of the iteration
        return self.take(records_max)

    def undo_taken(self) -> None:
        """The application has not received what `take` has returned, if it has: the next poll returns it."""
        if self.undelivered is not None:
            self.give_back(self.undelivered)
            self.undelivered, self._driver.unhandled = None, ()

    def iterator(self, lock: LoopLock) -> Callable[[], Record[K, V] | None]:
        """Return a function that returns one record as `ready`, without the lock; None = no record is ready.

        Arguments:
            lock: of the client.
        """
        driver, records, pop = self._driver, self._iteration, lock.pop

        def next_ready() -> Record[K, V] | None:
            if driver.attention:
                return None
            try:
                return pop(records, driver)
            except BaseException:
                if not lock.interrupted():  # else `pop` has not removed a record
                    lock.inside(undo)
                raise

        def undo() -> None:
            if isinstance(record := driver.iterated, Record):
                records.append(record)
                driver.iterated = []

        return next_ready

    def take(self, records_max: int | None) -> list[Record[K, V]]:
        """Return the records that `fill` has prepared."""
        driver = self._driver
        count = driver.settings.records_max if records_max is None else records_max
        if self._commits:  # before they are taken: a signal between the two commits none of them
            driver.unhandled = tuple(driver.iteration.records[: -count - 1 : -1])
        self.undelivered = records = driver.iteration.take(count)
        return records

    def return_to_committed(self) -> None:
        """Continue at the committed offsets, after an aborted transaction; `work_soon` follows in the loop."""
        driver = self._driver
        if driver.started and not driver.closed:
            self._return_to_committed([each for each in driver.positions.states.values() if not each.revoking])
            driver.attention = True  # the next poll waits for the loop

    def withhold(self) -> None:
        """See `Driver.withhold`."""
        self._driver.withhold()

    # in the loop

    def work_soon(self) -> None:
        """Send what follows from `return_to_committed`."""
        self._driver.changed()

    async def fill(self, timeout: float, records_max: int | None) -> None:
        """Poll, and prepare the records for `take`.

        Arguments:
            timeout, records_max: as of `poll`. More records are prepared, unless interceptors or a policy for poison
                values would see them early.
        """
        if records_max is not None:
            check_count("max_records", records_max)
        else:
            records_max = self._driver.settings.records_max
        if not self._loop.checks:
            records_max = max(records_max, RECORDS_PER_SWITCH)
        self.give_back(await self._loop.poll(timeout, records_max))
        self._driver.unhandled = ()

    def give_back(self, records: list[Record[K, V]]) -> None:
        """The application has not received records: the next poll returns them."""
        self._iteration += records[::-1]

    def give_back_by_partition(self, records: dict[TopicPartition, list[Record[K, V]]]) -> None:
        """Give records back as `give_back` does."""
        for each in records.values():
            self.give_back(each)

    async def columns(self, poll: Callable[[], Awaitable[ColumnBatch]]) -> tuple[ColumnBatch, Consumed]:
        """Return what `poll` returns, and where it begins, by partition."""
        batch = await poll()
        return batch, self._driver.columns_start

    def give_back_columns(self, polled: tuple[ColumnBatch, Consumed]) -> None:
        """The application has not received a batch: continue where it begins."""
        driver = self._driver
        for each, offset in polled[1].items():
            state = driver.positions.states.get(each)
            if state is not None and state.position > offset.offset:
                driver.drop_fetched([each])
                driver.positions.seek(state, offset.offset, offset.leader_epoch)


class ApplicationListener(RebalanceListener):
    """Calls the listener of an application in the thread that waits for the poll, where it may call the consumer.

    Arguments:
        listener: its methods are plain; those that are async run in the loop.
    """

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        await self._call(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        await self._call(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        await self._call(self._listener.on_partitions_lost, partitions)

    @staticmethod
    async def _call(method: Any, partitions: Collection[TopicPartition]) -> None:
        result = await in_application(method, partitions)
        if inspect.isawaitable(result):
            await result
