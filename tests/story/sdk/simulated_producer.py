"""Applications that produce in a simulation: they send, await, cancel, drain, flush and close at random."""

import asyncio
from collections.abc import Callable
from typing import Any

from kafkalite_sdk.producer.producer import Producer

from kafkalite.errors import BufferExhaustedError, KafkaError
from kafkalite.testing.virtual_clock import START_WALL_MS
from kafkalite.testing.virtual_loop import pass_time

VALUE_BYTES = (0, 10, 10, 100, 900)


class Sent:
    """A record that was sent.

    Attributes:
        producer, number: the number rises with each record of a producer.
        outcomes: calls of the done callback; at most one is right.
    """

    __slots__ = ("awaitable", "cancelled", "number", "outcomes", "producer", "topic")

    def __init__(self, producer: str, number: int, topic: str, awaitable: Any) -> None:
        self.producer = producer
        self.number = number
        self.topic = topic
        self.awaitable = awaitable
        self.outcomes = 0
        self.cancelled = False

    def observe(self) -> None:
        """Count the outcomes of this record by a callback."""
        self.awaitable.add_done_callback(self._ended)

    def _ended(self, _awaitable: object) -> None:
        self.outcomes += 1


def value_of(producer: str, number: int, size: int) -> bytes:
    """The value that names a record."""
    return b"%s:%d:" % (producer.encode(), number) + bytes(size)


def named(value: bytes | None) -> tuple[str, int]:
    """Producer and number of a value."""
    assert value is not None
    producer, number, _ = value.split(b":", 2)
    return producer.decode(), int(number)


def producer_settings(world: Any) -> dict[str, Any]:
    """Settings at random; delivery may time out."""
    random = world.random
    request_timeout_ms = random.choice((500, 3000, 10_000))
    return {
        "linger_ms": random.choice((0, 5, 50)),
        "batch_size": random.choice((200, 1000, 10_000)),
        "buffer_memory": random.choice((3000, 20_000, 1_000_000)),
        "max_request_size": random.choice((1500, 100_000)),
        "max_in_flight": random.choice((1, 2, 5, 5, 5)),
        "request_timeout_ms": request_timeout_ms,
        "connect_timeout_ms": request_timeout_ms,
        "delivery_timeout_ms": request_timeout_ms + random.choice((100, 3000, 120_000)),
        "max_block_ms": 5000,
        "default_api_timeout_ms": 5000,
        "retry_backoff_ms": random.choice((10, 100)),
        "metadata_max_age_ms": random.choice((1000, 300_000)),
        "compression_type": random.choice(("none", "none", "lz4")),
    }


class ProducerApplication:
    """One application: after each producer that it closes it opens another, under another name.

    Arguments:
        world: the surroundings.
        name: begins the names of its producers.
        topics: where it sends.
        settings: of its producers.
        make: creates a producer.
    """

    def __init__(
        self,
        world: Any,
        name: str,
        topics: list[str],
        settings: dict[str, Any],
        make: Callable[..., Producer[Any, Any]],
    ) -> None:
        self.world = world
        self.random = world.random
        self.name = name
        self.topics = topics
        self.settings = settings
        self.sent: list[Sent] = []
        self.full = 0
        self.drains_late = 0
        self._make = make
        self._opened = 0
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, until: float) -> None:
        """Produce until a time of the loop, in one producer after another."""
        while self.world.loop.time() < until:
            self._opened += 1
            producer = await self._started()
            try:
                await self._produce(producer, until)
                if self.random.random() < 0.5:
                    await self._flush(producer)
            finally:
                began, timeout_s = self.world.loop.time(), self.random.choice((0.0, 0.5, 30.0))
                try:
                    await producer.close(timeout_s)
                except KafkaError:
                    self.world.count("close reports failures")
                assert self.world.loop.time() <= began + timeout_s + 1.5, "close returns too late"
        await asyncio.gather(*self._tasks)

    async def _started(self) -> Producer[Any, Any]:
        while True:
            producer = self._make(self.world.bootstrap, environment=self.world.environment(), **self.settings)
            try:
                await producer.start()
            except KafkaError:
                self.world.count("start fails")
                await producer.close()
                await pass_time(1.0)
            else:
                return producer

    async def _produce(self, producer: Producer[Any, Any], until: float) -> None:
        choose = self.random.random
        while self.world.loop.time() < until and choose() > 0.005:
            for _ in range(self.random.choice((1, 1, 5, 40))):
                if not await self._send(producer):
                    return
            if choose() < 0.05:
                await self._flush(producer)
            await pass_time(self.random.expovariate(4.0) if choose() < 0.9 else 3.0)

    async def _flush(self, producer: Producer[Any, Any]) -> None:
        began = self.world.loop.time()
        try:
            await producer.flush()
        except KafkaError:
            self.world.count("flush reports failures")
        limit_s = (self.settings["delivery_timeout_ms"] + self.settings["request_timeout_ms"]) / 1000
        assert self.world.loop.time() <= began + limit_s + 1.0, "flush returns too late"

    async def _send(self, producer: Producer[Any, Any]) -> bool:
        """Send a record; False = the producer does not accept any more."""
        random = self.random
        name = f"{self.name}{self._opened}"
        topic = random.choice(self.topics)
        number = self._number
        value = value_of(name, number, random.choice(VALUE_BYTES))
        key = b"%d" % random.randrange(20) if random.random() < 0.3 else None
        partition = 0 if random.random() < 0.3 else None
        timestamp_ms = START_WALL_MS + round(self.world.loop.time() * 1000)
        try:
            awaitable = producer.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms)
        except BufferExhaustedError:
            self.full += 1
            try:
                await producer.drain()
            except KafkaError:
                self.world.count("drain reports failures")
            return True
        self._number += 1
        sent = Sent(name, number, topic, awaitable)
        self.sent.append(sent)
        if random.random() < 0.5:
            sent.observe()
        if random.random() < 0.02:
            sent.cancelled = awaitable.cancel()
        elif random.random() < 0.05:
            self._tasks.append(asyncio.ensure_future(self._await(sent)))
        return True

    async def _await(self, sent: Sent) -> None:
        try:
            metadata = await sent.awaitable
        except KafkaError:
            self.world.count("await raises")
        else:
            assert metadata.topic == sent.topic
