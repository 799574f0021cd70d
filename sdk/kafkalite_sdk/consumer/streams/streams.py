"""The streams of a consumer: async iterators for several tasks.

One of the tasks that wait for a record polls; the others wait until it has records for them, or until it returns and
another one polls. Invariants:
1. There is no task but those of the application. While every task handles a record no task polls: the timer of the
   consumer sends heartbeats, and the next request for a record polls if there is something to do.
2. A cancelled task loses no record, and another task that waits polls in its stead.
3. An error of a partition is raised by the stream of that partition, behind the queued records before it; the partition
   is held until then.
Source: `createMessageStreams` of Kafka 0.7.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from math import inf
from typing import Generic, Self

from kafkalite.errors import ClientUseError, KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.client.arguments import check_seconds
from kafkalite_sdk.consumer.arguments import check_count
from kafkalite_sdk.consumer.driver import Driver, K, V
from kafkalite_sdk.consumer.poll_loop import PollLoop
from kafkalite_sdk.consumer.streams.queues import PartitionQueue, StreamQueue, StreamQueues


class Stream(Generic[K, V]):
    """An async iterator of the records of some partitions, for one task.

    Without `explicit`, a record is complete when the next one is requested. A new `async for` first returns the record
    that the former one has not completed: after an exception or a cancellation of the task the record is not lost.
    """

    def __init__(self, streams: "Streams[K, V]", queue: StreamQueue[K, V], *, explicit: bool) -> None:
        self._streams = streams
        self.queue = queue
        self._explicit = explicit
        self._current: Record[K, V] | None = None
        self._waits = False
        self.task: asyncio.Task[object] | None = None  # that has requested the last record
        self.failures: deque[tuple[KafkaError, PartitionQueue[K, V]]] = deque()  # one of each partition at most

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the stream at this time."""
        return self._streams.partitions_of(self)

    def complete(self, record: Record[K, V]) -> bool:
        """Complete a record, in any order: a commit covers it when all records before it are complete, too.

        Returns: False if its partition was revoked or its position changed by `seek` meanwhile, or if it was completed
            before.
        """
        if record is self._current:
            self._current = None
        return self._streams.complete(record)

    def __aiter__(self) -> Self:
        if self._current is not None:
            self._streams.return_record(self._current)
            self._current = None
        return self

    async def __anext__(self) -> Record[K, V]:
        if self._waits:
            raise ClientUseError("this stream is used by another task; use one stream per task")
        if self._current is not None:
            self.complete(self._current)
        streams = self._streams
        self.task = asyncio.current_task()
        record = None if streams.attention or self.failed else self.queue.take()
        if record is None:
            record = await self._wait_for_record()
        streams.returned(record)
        if not self._explicit:
            self._current = record
        return record

    async def _wait_for_record(self) -> Record[K, V]:
        streams = self._streams
        self._waits = True
        try:
            if streams.attention:
                await streams.wait(self, 0.0)
            while True:
                if self.failed:
                    raise streams.take_failure(self)
                record = self.queue.take()
                if record is not None:
                    return record
                await streams.wait(self, inf)
        finally:
            self._waits = False
            streams.hand_over()

    @property
    def failed(self) -> bool:
        """Whether an error is to be raised: the records before it have been returned."""
        return bool(self.failures) and any(not queue.records for _, queue in self.failures)

    @property
    def abandoned(self) -> bool:
        """Whether the incomplete record of the stream has no running task, besides the current one and those that close
        the consumer.
        """
        task = self.task
        waits = task is asyncio.current_task() or task in self._streams.closers
        return not self._explicit and (task is None or task.done() or waits)


class Streams(Generic[K, V]):
    """The streams of one consumer.

    Arguments:
        driver: of the consumer.
        loop: its polls.
        count: number of streams.
        explicit: records are completed by `Stream.complete` only.
        release_s: longest time that a rebalance waits for the handlers of revoked partitions.

    Raises:
        TypeError, ValueError: an argument is not valid.
    """

    def __init__(
        self, driver: Driver[K, V], loop: PollLoop[K, V], count: int, *, explicit: bool, release_s: float
    ) -> None:
        check_count("count", count)
        check_seconds("release_timeout", release_s, least=0)
        self._driver = driver
        self._loop = loop
        self._records_max = driver.settings.records_max
        self._release_s = release_s
        group = driver.settings.group
        if group is not None:
            self._release_s = min(release_s, group.max_poll_interval_s / 2)
        self._queues: StreamQueues[K, V] = StreamQueues(count, driver.positions, self._records_max)
        self.streams = [Stream(self, each, explicit=explicit) for each in self._queues.streams]
        self._of_queue = {each.queue: each for each in self.streams}
        self._waiting: dict[Stream[K, V], asyncio.Future[None]] = {}
        self._polling: asyncio.Future[None] | None = None  # done when the poll ends
        self._suspended = 0
        self._releasing = False
        loop.streamed = True
        driver.on_drop.append(self._dropped)
        driver.positions.on_move.append(self._queues.moved)

    # ---- records ----------------------------------------------------------------------------------------------------

    @property
    def attention(self) -> bool:
        """Whether the consumer has more to do than to return queued records, and no task polls."""
        return self._driver.attention and self._polling is None and not self._suspended and not self._driver.closed

    @property
    def closers(self) -> Collection[object]:
        """The tasks that wait in `close` of the consumer."""
        return self._driver.closing.callers

    def partitions_of(self, stream: Stream[K, V]) -> frozenset[TopicPartition]:
        """The partitions of a stream."""
        self._queues.follow()
        return frozenset(each.state.topic_partition for each in stream.queue.partitions)

    def returned(self, record: Record[K, V]) -> None:
        """A stream returns a record: the application polls."""
        self._driver.iterated = record

    def complete(self, record: Record[K, V]) -> bool:
        """Complete a record."""
        queue = self._queues.complete(record)
        if queue is None:
            return False
        if self._queues.release_if_low(queue.stream) or self._releasing:
            self._driver.changed()
        return True

    def return_record(self, record: Record[K, V]) -> None:
        """Return a record again."""
        self._queues.return_record(record)

    def resumed(self) -> None:
        """Partitions were resumed."""
        self._queues.follow()
        self._wake(self._queues.streams)
        if self._polling is not None:
            self._loop.interrupt()  # its stream may have records now

    def _dropped(self, partitions: Collection[TopicPartition]) -> None:
        """The positions of partitions have changed: their records and errors mean nothing any more."""
        self._queues.clear(partitions)
        for stream in self.streams:
            for failure in [each for each in stream.failures if each[1].state.topic_partition in partitions]:
                stream.failures.remove(failure)
                self._driver.positions.hold([failure[1].state], held=failure[1].stream.held)
        self._driver.changed()

    def bounds(self) -> dict[TopicPartition, Record[K, V]]:
        """The first record of each partition that is not complete."""
        return self._queues.bounds()

    # ---- polls ------------------------------------------------------------------------------------------------------

    async def wait(self, stream: Stream[K, V], timeout_s: float) -> None:
        """Poll, or wait until another stream has polled. Raises StopAsyncIteration when the consumer is closed."""
        if self._driver.closed:
            raise StopAsyncIteration
        if self._polling is None and not self._suspended:
            await self._poll(stream, timeout_s)
        elif timeout_s > 0:
            future = self._waiting[stream] = asyncio.get_running_loop().create_future()
            try:
                await future
            finally:
                del self._waiting[stream]

    async def _poll(self, stream: Stream[K, V], timeout_s: float) -> None:
        self._polling = asyncio.get_running_loop().create_future()
        try:
            records = await self._loop.poll_for_streams(timeout_s, self._records_max)
            self._wake(self._queues.distribute(records))
        except ClientUseError:
            if self._driver.closed:
                raise StopAsyncIteration from None
            raise
        except KafkaError as error:
            self._fail(error)
        finally:
            self._polling.set_result(None)
            self._polling = None

    def hand_over(self) -> None:
        """Have a stream poll that waits, if none does."""
        if self._polling is None and not self._suspended:
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(None)
                    return

    def _wake(self, queues: Collection[StreamQueue[K, V]]) -> None:
        for queue in queues:
            future = self._waiting.get(self._of_queue[queue])
            if future is not None and not future.done():
                future.set_result(None)

    def _fail(self, error: KafkaError) -> None:
        """Pass an error of a partition to its stream; raise any other one in the stream that polls."""
        self._queues.follow()
        name = getattr(error, "topic", None), getattr(error, "partition", None)
        queue = self._queues.get(name)  # type: ignore[arg-type]
        if queue is None:
            raise error
        self._driver.positions.hold([queue.state], held=True)
        failures = self._of_queue[queue.stream].failures
        if all(each is not queue for _, each in failures):  # else a held partition was fetched again
            failures.append((error, queue))
        self._wake([queue.stream])

    def take_failure(self, stream: Stream[K, V]) -> KafkaError:
        """Return the next error of a stream whose partition has no record before it; it is fetched again."""
        failure = next(each for each in stream.failures if not each[1].records)
        stream.failures.remove(failure)
        error, queue = failure
        self._driver.positions.hold([queue.state], held=queue.stream.held)
        self._driver.changed()
        return error

    # ---- rebalances and close ---------------------------------------------------------------------------------------

    async def release(self, partitions: Collection[TopicPartition], began: float, deadline: float | None) -> None:
        """Wait for the handlers of revoked partitions, and set their positions to the first incomplete record.

        Arguments:
            partitions: those that are revoked.
            began: when the wait began, in seconds of the loop's clock; earlier than now after a cancellation.
            deadline: of the close; half of the time is left for requests.
        """
        driver = self._driver
        now = driver.now()
        limit = began + self._release_s
        if deadline is not None:
            limit = min(limit, now + (deadline - now) / 2)
        self._releasing = True
        tasks = [task for each in self.streams if (task := each.task) is not None]
        for task in tasks:
            task.add_done_callback(self._task_ended)
        try:
            while self._handled(partitions) and driver.now() < limit and not driver.closed:
                driver.work()
                await driver.wait(limit)
        finally:
            self._releasing = False
            for task in tasks:
                task.remove_done_callback(self._task_ended)
        for name in partitions:
            self._end(name)

    def _task_ended(self, _: object) -> None:
        self._driver.changed()

    def _handled(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether a handler of the partitions runs."""
        queues = [queue for name in partitions if (queue := self._queues.get(name)) is not None]
        return any(queue.incomplete and not self._of_queue[queue.stream].abandoned for queue in queues)

    def _end(self, name: TopicPartition) -> None:
        queue, state = self._queues.get(name), self._driver.positions.states.get(name)
        first = None if queue is None else queue.first
        if first is not None and state is not None:
            self._driver.drop_fetched([name])
            self._driver.positions.seek(state, first.offset)
        self._queues.forget(name)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions are lost: their records cannot be completed any more."""
        for name in partitions:
            self._queues.forget(name)

    @asynccontextmanager
    async def suspend(self, deadline: float) -> AsyncIterator[None]:
        """End the poll of a stream, and begin no other one meanwhile.

        Arguments:
            deadline: for the end of the poll, in seconds of the loop's clock; a listener may delay it.
        """
        self._suspended += 1
        try:
            if self._polling is not None:
                self._loop.interrupt()
                await asyncio.wait([self._polling], timeout=max(0.0, deadline - self._driver.now()))
            yield
        finally:
            self._suspended -= 1
            if self._driver.closed:
                self._wake(self._queues.streams)
            else:
                self.hand_over()
