"""An application is cancelled at each of its awaits in turn: no record is lost, sent twice or returned twice."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Consumer, Producer, TopicPartition

from tests.story.sdk.cancelling import Cancelling
from tests.story.sdk.world import World, run

COUNT = 12
VALUES = [b"%d" % number for number in range(COUNT)]
PARTITION = TopicPartition("orders", 0)
FAULTLESS = 0
AWAITS_MAX = 1000
SETTINGS: dict[str, Any] = {"linger_ms": 5, "batch_size": 64, "retry_backoff_ms": 10}


def each_await(directory: Path, application: Callable[[World, Cancelling], Awaitable[None]]) -> int:
    """Run the application once for each of its awaits, which is cancelled. Return the number of awaits."""
    for number in range(AWAITS_MAX):
        cancelling = Cancelling(number)

        async def scenario(world: World, cancelling: Cancelling = cancelling) -> None:
            await world.create_topics(orders=1)
            await application(world, cancelling)

        run(directory / str(number), FAULTLESS, scenario)
        if not cancelling.cancelled:
            return number
    raise AssertionError("the application has too many awaits")


async def values_of(world: World) -> list[bytes | None]:
    return [value for _, value in (await world.logs(["orders"]))["orders", 0]]


def test_producer_that_is_cancelled_sends_each_record_once_in_order(tmp_path: Path) -> None:
    async def application(world: World, cancelling: Cancelling) -> None:
        settings = {**SETTINGS, "buffer_memory": 300, "max_request_size": 256}
        producer = Producer(world.bootstrap, environment=world.environment(), **settings)
        await cancelling.again(producer.start)
        for value in VALUES[:4]:
            producer.send("orders", value)
            await cancelling.again(producer.drain)
        await cancelling.once(lambda: producer.send("orders", VALUES[4]))
        await cancelling.once(lambda: producer.send_many([("orders", value) for value in VALUES[5:8]]))
        await cancelling.again(producer.flush)
        before = cancelling.cancelled
        last = [producer.send("orders", value) for value in VALUES[8:]]
        await cancelling.again(producer.close)
        acknowledged = [send.exception() is None for send in last]
        assert all(acknowledged) or cancelling.cancelled != before
        values = await values_of(world)
        assert values == VALUES[: len(values)]
        assert len(values) >= COUNT - acknowledged.count(False)

    assert each_await(tmp_path, application) >= 5


@pytest.mark.parametrize("protocol", ["classic", "consumer", "registered", None])
def test_consumer_that_is_cancelled_returns_each_record_once_and_commits_what_it_returned(
    tmp_path: Path, protocol: str | None
) -> None:
    async def application(world: World, cancelling: Cancelling) -> None:
        async with Producer(world.bootstrap, environment=world.environment(), **SETTINGS) as producer:
            await producer.send_many([("orders", value) for value in VALUES])
        consumer = new_consumer(world, protocol)
        await cancelling.again(consumer.start)
        if protocol is None:
            consumer.assign([PARTITION])
        else:
            consumer.subscribe("orders")
        found: list[bytes | None] = []
        while len(found) < COUNT:
            found += [record.value for record in await cancelling.once(lambda: consumer.poll(0.5, 6)) or ()]
        await cancelling.again(consumer.commit)
        assert found == VALUES
        assert await cancelling.again(lambda: consumer.end_offsets([PARTITION])) == {PARTITION: COUNT}
        consumer.seek(PARTITION, 8)
        (record,) = await cancelling.again(lambda: consumer.poll(5.0, 1)) or ()
        assert record.value == VALUES[8]
        before = cancelling.cancelled
        await cancelling.again(consumer.close)
        assert await committed(world, protocol) == 9 or cancelling.cancelled != before

    assert each_await(tmp_path, application) >= 5


def new_consumer(world: World, protocol: str | None) -> Consumer[Any, Any]:
    options: dict[str, Any] = {"group": "g", "auto_offset_reset": "earliest", "retry_backoff_ms": 10}
    if protocol is not None:
        options["group_protocol"] = protocol
    return Consumer(world.bootstrap, environment=world.environment(), **options)


async def committed(world: World, protocol: str | None) -> int:
    async with new_consumer(world, protocol) as consumer:
        found = (await consumer.committed([PARTITION]))[PARTITION]
        assert found is not None
        return found.offset
