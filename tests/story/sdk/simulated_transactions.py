"""An application with transactions in a simulation: it commits, aborts, cancels and closes at random.

A value is "number-index" of a transaction and a record. A transaction whose commit has no outcome is asked again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from kafkalite_sdk import Producer, TopicPartition

from kafkalite.errors import (
    ClientUseError,
    KafkaError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortedError,
)
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.world import World

TOPICS, PARTITIONS, GROUP = ("a", "b", "c", "d"), 2, "group"
ATTEMPTS = 100


class Outcome(Enum):
    """What the application knows of a transaction."""

    COMMITTED = "all records are visible"
    ABORTED = "no record is visible"
    UNKNOWN = "all records are visible, or none is: another producer has fenced this one"


class TransactionalApplication:
    """One application with one transactional id; it opens another producer after each failure that needs one.

    Arguments:
        world: the surroundings.

    Attributes:
        outcomes: by the number of the transaction.
        values: of the records, by the number of the transaction.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random = world.random
        self._settings: dict[str, Any] = {
            "transactional_id": "me",
            "transaction_timeout_ms": random.choice((1_500, 4_000, 20_000)),
            "linger_ms": random.choice((0, 5)),
            "retry_backoff_ms": 20,
            "request_timeout_ms": random.choice((800, 3_000)),
            "delivery_timeout_ms": random.choice((3_100, 8_000)),
            "default_api_timeout_ms": random.choice((2_000, 10_000)),
        }
        self._producer: Producer[bytes, bytes] | None = None
        self.outcomes: dict[int, Outcome] = {}
        self.values: dict[int, list[bytes]] = {}

    async def run(self, until: float) -> None:
        """Run transactions until a time of the loop."""
        while self._world.loop.time() < until:
            producer = self._producer or await self._start()
            if producer is not None:
                await self._transaction(producer)
        await self._close()

    async def _start(self) -> Producer[bytes, bytes] | None:
        producer = self._producer = Producer(
            self._world.bootstrap, environment=self._world.environment(), **self._settings
        )
        try:
            await producer.start()
        except KafkaError:
            self._world.count("start fails")
            await self._close()
            await pass_time(0.2)
        return self._producer

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    async def _transaction(self, producer: Producer[bytes, bytes]) -> None:
        number = len(self.values) + 1
        self.values[number] = [b"%d-%d" % (number, index) for index in range(self._random.choice((2, 6, 40)))]
        self.outcomes[number] = Outcome.ABORTED
        ends: tuple[Callable[[Producer[bytes, bytes]], Awaitable[Outcome]], ...]
        ends = *[self._commit] * 4, self._abort, self._end_with_close, self._cancel
        try:
            await producer.begin_transaction()
            await self._send(producer, number)
            self.outcomes[number] = await self._random.choice(ends)(producer)
        except OutcomeUnknownError:
            self._world.count("commit in doubt")
            self.outcomes[number] = await self._ask(producer)
        except TransactionAbortedError:
            self._world.count("aborted by an error")
            await self._abort_or_close(producer)
        except KafkaError as error:  # also of an abort that continues: another producer waits for it
            self._world.count("failed")
            if isinstance(error.__cause__, OutcomeUnknownError):
                self.outcomes[number] = Outcome.UNKNOWN
            await self._close()

    async def _send(self, producer: Producer[bytes, bytes], number: int) -> None:
        """Send the records to one topic, which the producer perhaps does not know yet."""
        topic = self._random.choice(TOPICS)
        for index, value in enumerate(self.values[number]):
            producer.send(topic, value, partition=index % PARTITIONS)
            if self._random.random() < 0.05:
                await pass_time(self._random.choice((0.001, 0.3, 2.0)))
        if self._random.random() < 0.4:
            await producer.send_offsets({TopicPartition(topic, 0): number}, GROUP)

    async def _commit(self, producer: Producer[bytes, bytes]) -> Outcome:
        await producer.commit_transaction(timeout=self._random.choice((None, None, None, None, 0.0, 0.05, 1.0)))
        return Outcome.COMMITTED

    async def _abort(self, producer: Producer[bytes, bytes]) -> Outcome:
        await producer.abort_transaction()
        return Outcome.ABORTED

    async def _end_with_close(self, _producer: Producer[bytes, bytes]) -> Outcome:
        await self._close()
        return Outcome.ABORTED

    async def _cancel(self, producer: Producer[bytes, bytes]) -> Outcome:
        """Cancel a commit; a second one has the outcome if EndTxn has left."""
        task = asyncio.ensure_future(producer.commit_transaction())
        await pass_time(self._random.choice((0.0, 0.001, 0.005, 0.2)))
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()
            return Outcome.COMMITTED
        try:
            await producer.commit_transaction()
        except ClientUseError:
            return Outcome.ABORTED
        self._world.count("commit after a cancellation")
        return Outcome.COMMITTED

    async def _ask(self, producer: Producer[bytes, bytes]) -> Outcome:
        """Commit again until the outcome is known; the coordinator may have answered meanwhile."""
        await pass_time(self._random.choice((0.0, 0.1, 3.0)))
        for _ in range(ATTEMPTS):
            try:
                await producer.commit_transaction(timeout=self._random.choice((0.5, 10.0)))
            except OutcomeUnknownError:
                continue
            except TransactionAbortedError:
                return Outcome.ABORTED
            except ProducerFencedError:
                await self._close()
                return Outcome.UNKNOWN
            return Outcome.COMMITTED
        raise AssertionError("a commit has no outcome")

    async def _abort_or_close(self, producer: Producer[bytes, bytes]) -> None:
        try:
            await producer.abort_transaction()
        except KafkaError:
            await self._close()
