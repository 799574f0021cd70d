"""The streams of a `ConsumerConnector`: async iterators, each over the partitions that the machine has given to it.

1. A stream takes batches of records from the fetcher, of its partitions only. A record that is in a batch and was not
   returned yet counts for nothing: a release drops it.
2. The position of a partition is the offset behind the last record that was returned, also while the application
   handles that record: a commit covers it, as in Java.
3. There is no task but those of the application: a stream that waits for records has the driver of the consumer send
   requests.
4. An error of a partition is raised by its stream; the next iteration tries again.
"""

import asyncio
from collections.abc import Collection, Mapping
from math import inf
from typing import Generic

from kafkalite.errors import ClientUseError, KafkaTimeoutError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk._speedups.record_iterator import RecordIterator
from kafkalite_sdk.consumer.driver import Driver, K, V

RECORDS_MAX = 2000
"""Of a batch; between two batches other tasks run."""


class ConsumerTimeoutError(KafkaTimeoutError):
    """A stream had no record for `consumer_timeout_ms` (ConsumerTimeoutException); it may be iterated again."""


class MessageStream(RecordIterator[Record[K, V]]):
    """An async iterator of records, for one task (KafkaStream).

    Attributes:
        topic: its topic, None = those that match the pattern.
        number: from 0, among the streams of the topic.
        partitions: those that it reads now.
    """

    __slots__ = ("_streams", "number", "partitions", "topic")

    def __init__(self, streams: "MessageStreams[K, V]", topic: str | None, number: int) -> None:
        self.topic = topic
        self.number = number
        self.partitions: frozenset[TopicPartition] = frozenset()
        self._streams = streams

    async def next_record(self) -> Record[K, V]:
        """Wait for records, and return the first one; StopAsyncIteration once the consumer was shut down.

        Raises: ConsumerTimeoutError. KafkaError: of a partition, or what has ended the consumer.
        """
        if not await self._streams.fill(self):
            raise StopAsyncIteration
        return self.take()

    async def next_batch(self) -> list[Record[K, V]]:
        """Return the next records at once, at least one, which costs less per record than an iteration.

        Their positions are behind all of them. It must not be called while another task waits for a record.

        Returns: no record once the consumer was shut down.
        Raises: as an iteration.
        """
        return self.take_all() if await self._streams.fill(self) else []

    def __repr__(self) -> str:
        topic = "" if self.topic is None else f" of {self.topic}"
        return f"<MessageStream {self.number}{topic}, {len(self.partitions)} partitions>"


class MessageStreams(Generic[K, V]):
    """The streams of one consumer.

    Arguments:
        counts: number of streams by topic; of a pattern, by None.
        timeout_s: of the wait for a record, None = no limit.

    Attributes:
        streams: all of them, by topic.
        ended: the consumer has ended; its streams return no more records.
    """

    def __init__(self, counts: Mapping[str | None, int], timeout_s: float | None) -> None:
        self.streams: dict[str | None, list[MessageStream[K, V]]] = {
            topic: [MessageStream(self, topic, number) for number in range(count)] for topic, count in counts.items()
        }
        self.ended = False
        self._error: Exception | None = None
        self._timeout_s = timeout_s
        self._driver: Driver[K, V] | None = None
        self._idle: set[asyncio.Future[None]] = set()  # of streams without partitions

    # The assignment.

    def begin(self, driver: Driver[K, V], numbers: Mapping[TopicPartition, int]) -> None:
        """Return records.

        Arguments:
            driver: of the consumer that fetches them.
            numbers: the stream of each partition.
        """
        self._driver = driver
        for topic, streams in self.streams.items():
            for each in streams:
                each.partitions = frozenset(
                    name for name, number in numbers.items() if number == each.number and topic in (None, name.topic)
                )
        self._wake()

    def release(self) -> None:
        """Return no more records until `begin`."""
        for streams in self.streams.values():
            for each in streams:
                each.partitions = frozenset()
                each.refill([])
        self._wake()

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset behind the last record that was returned, or where reading begins, if that is known."""
        if self._driver is None:
            return {}
        states = self._driver.positions.states
        found = {each: states[each].position for each in partitions if each in states and states[each].position >= 0}
        for streams in self.streams.values():
            for each in streams:
                for record in reversed(each.rest()):
                    name = TopicPartition(record.topic, record.partition)
                    if name in found:
                        found[name] = record.offset
        return found

    def end(self, error: Exception | None) -> None:
        """End the iterations; with an error, each raises it."""
        if not self.ended:
            self.ended, self._error = True, error
            self.release()

    def _wake(self) -> None:
        for each in self._idle:
            if not each.done():
                each.set_result(None)
        if self._driver is not None:
            self._driver.changed()

    # Records.

    async def fill(self, stream: MessageStream[K, V]) -> bool:
        """Wait until a stream has records to return; False = the consumer was shut down."""
        if stream.left:
            return True
        now = asyncio.get_running_loop().time
        deadline = inf if self._timeout_s is None else now() + self._timeout_s
        await asyncio.sleep(0)  # also where records are always there, other tasks and the network continue
        while not self._take(stream):
            if self.ended:
                return False
            if now() >= deadline:
                raise ConsumerTimeoutError(f"{stream!r}: no record within {self._timeout_s:g} s (consumer_timeout_ms)")
            await self._wait(stream, deadline)
        return True

    def _take(self, stream: MessageStream[K, V]) -> bool:
        if self._error is not None:
            raise self._error
        driver, partitions = self._driver, stream.partitions
        if driver is None or not partitions:
            return False
        try:
            records = driver.fetcher.take(RECORDS_MAX, partitions)
        finally:
            driver.work(fetch=True)  # also behind an error: other partitions continue
        if not records:
            for each in partitions:
                if (error := driver.resolver.take_error(each)) is not None:
                    raise error
            return False
        stream.refill(records)
        return True

    async def _wait(self, stream: MessageStream[K, V], deadline: float) -> None:
        """Wait until the consumer has received something, or the stream has other partitions."""
        if stream.partitions and self._driver is not None:
            try:
                await self._driver.wait(deadline)
            except ClientUseError:
                if not self.ended:
                    raise
            return
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._idle.add(future)
        try:
            await asyncio.wait([future], timeout=None if deadline == inf else max(0.0, deadline - loop.time()))
        finally:
            self._idle.discard(future)
