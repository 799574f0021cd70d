"""The stages of a consumer and its poison values in virtual time."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kafkalite_sdk.consumer.poison import DeserializerNotReady
from kafkalite_sdk.interceptors import ConsumerInterceptor, DeadLetterTopic

from kafkalite.errors import KafkaTimeoutError, PoisonRecordError
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, B, append, committed, consuming, new_consumer
from tests.story.sdk.producer_rig import producing


def number(data: bytes) -> int:
    """A deserializer that fails for b"bad"."""
    return int(data)


class Journal(ConsumerInterceptor):
    def __init__(self) -> None:
        self.records: list[int] = []
        self.polls: list[list[int]] = []
        self.commits: list[tuple[dict[Any, int], object]] = []
        self.rejected: set[int] = set()
        self.raises = False

    def on_record(self, record: Any) -> None:
        if record.offset in self.rejected:
            raise KeyError(record.offset)
        self.records.append(record.offset)

    def on_poll(self, records: Sequence[Any]) -> None:
        self.polls.append([record.offset for record in records])
        if self.raises:
            raise ZeroDivisionError

    def on_commit(self, offsets: Mapping[Any, Any], error: object) -> None:
        self.commits.append(({each: offset.offset for each, offset in offsets.items()}, error))


async def drained(consumer: Any, count: int, **named: Any) -> list[Any]:
    """So many records, by one poll after another."""
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.poll(1.0, **named)
    return found


@story()
async def test_interceptors_see_records_polls_and_commits(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    journal = Journal()
    settings = {"group": "g", "group_protocol": "classic", "enable_auto_commit": False}
    async with new_consumer(world, interceptors=[journal], **settings) as consumer:
        consumer.subscribe("orders")
        await drained(consumer, 3, max_records=2)
        assert (journal.records, journal.polls) == ([0, 1, 2], [[0, 1], [2]])
        await consumer.commit()
        assert journal.commits == [({A: 3}, None)]
        assert await consumer.poll(0) == []
        assert len(journal.polls) == 2


@story()
async def test_iteration_calls_the_stages_once_for_each_record(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *[b"%d" % each for each in range(10)])
    journal = Journal()
    settings = {"group": "g", "group_protocol": "classic", "auto_commit_interval_ms": 10}
    async with new_consumer(world, interceptors=[journal], **settings) as consumer:
        consumer.subscribe("orders")
        async for record in consumer:
            await pass_time(0.05)
            if record.offset == 9:
                break
    assert journal.records == list(range(10))
    assert sum(map(len, journal.polls)) == 10


@story()
async def test_exceptions_of_polls_reach_the_loop_and_change_nothing(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0")
    journal = Journal()
    journal.raises = True
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context["exception"]))
    async with consuming(world, A, interceptors=[journal]) as consumer:
        assert len(await consumer.poll(1.0)) == 1
    assert [type(each) for each in errors] == [ZeroDivisionError]
    assert "Journal.on_poll" in errors[0].__notes__[0]


@story()
async def test_record_that_an_interceptor_rejects_is_a_poison_value(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    journal = Journal()
    journal.rejected = {1}
    async with consuming(world, A, interceptors=[journal], on_poison="skip") as consumer:
        assert [each.offset for each in await drained(consumer, 2)] == [0, 2]


@story()
async def test_raise_names_the_position_behind_the_good_records(world: Story) -> None:
    """Other partitions continue; the partition continues where the application seeks."""
    world.broker.cluster.create_topic("orders", 2)
    append(world, A, b"0", b"bad", b"2")
    settings = {"group": "g", "group_protocol": "classic", "enable_auto_commit": False}
    async with new_consumer(world, value_deserializer=number, on_poison="raise", **settings) as consumer:
        consumer.subscribe("orders")
        assert [each.value for each in await drained(consumer, 1)] == [0]
        for _ in range(2):
            with pytest.raises(PoisonRecordError) as caught:
                await drained(consumer, 1)
            error = caught.value
            assert (error.topic, error.partition, error.offset, error.next_offset) == ("orders", 0, 1, 2)
            assert isinstance(error.__cause__, ValueError)
            await consumer.commit()
            assert committed(world)[-1][("orders", 0)] == 1
        append(world, B, b"7")
        other = None
        while other is None:
            try:
                other = (await drained(consumer, 1))[0]
            except PoisonRecordError:
                await pass_time(0.1)
        assert (other.partition, other.value) == (1, 7)
        consumer.seek(A, error.next_offset)
        assert [each.value for each in await drained(consumer, 1)] == [2]


@story()
@pytest.mark.parametrize("failure", [TimeoutError, ConnectionResetError, MemoryError, KafkaTimeoutError])
async def test_policy_does_not_see_a_failure_of_something_outside(world: Story, failure: type[Exception]) -> None:
    """`poll` raises it, and reads the record again."""
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1", b"2")
    failures = 3

    def looked_up(data: bytes) -> int:
        nonlocal failures
        if data == b"1" and failures:
            failures -= 1
            raise failure("the service is not available")
        return int(data)

    async with consuming(world, A, value_deserializer=looked_up, on_poison="skip") as consumer:
        assert [each.value for each in await drained(consumer, 1)] == [0]
        for _ in range(2):
            with pytest.raises(failure):
                await consumer.poll(1.0)
            assert await consumer.position(A) == 1
        assert [each.value for each in await drained(consumer, 2)] == [1, 2]


@story()
async def test_skip_logs_each_error_once(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, *[b"bad"] * 1000, b"1")
    async with consuming(world, A, value_deserializer=number, on_poison="skip", max_poll_records=10) as consumer:
        (record,) = await drained(consumer, 1)
        assert (record.offset, record.value) == (1000, 1)
        check = consumer._loop._check
        assert check._reported == {("orders", ValueError)}


@story()
async def test_dead_letters_have_cause_and_origin_in_headers(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    world.broker.cluster.create_topic("dead")
    append(world, A, b"0", b"bad", b"2")
    async with (
        producing(world) as producer,
        consuming(world, A, value_deserializer=number, on_poison=DeadLetterTopic(producer, "dead")) as consumer,
        new_consumer(world) as reader,
    ):
        assert [each.value for each in await drained(consumer, 2)] == [0, 2]
        reader.assign([("dead", 0)])
        (letter,) = await drained(reader, 1)
    headers = dict(letter.headers)
    assert letter.value == b"bad"
    assert [headers[f"dead-letter.{name}"] for name in ("topic", "partition", "offset", "error")] == [
        b"orders",
        b"0",
        b"1",
        b"builtins.ValueError",
    ]
    assert b"invalid literal" in headers["dead-letter.reason"]


@story()
async def test_dead_letter_that_fails_or_is_cancelled_loses_nothing(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"bad", b"1")
    letters: list[int] = []
    release = asyncio.Event()

    async def keep(record: Any, error: Exception) -> None:
        letters.append(record.offset)
        if len(letters) == 1:
            await release.wait()
        if len(letters) == 2:
            raise ConnectionError("no broker")

    async with consuming(world, A, value_deserializer=number, on_poison=keep) as consumer:
        polling = asyncio.ensure_future(drained(consumer, 1))
        await pass_time(5.0)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        with pytest.raises(PoisonRecordError) as caught:
            await drained(consumer, 1)
        assert isinstance(caught.value.__cause__, ConnectionError)
        assert [each.value for each in await drained(consumer, 1)] == [1]
    assert letters == [0, 0, 0]


class Slow:
    """A deserializer that loads something for the first record."""

    awaits = True

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        self.loads = 0
        self._seconds = seconds
        self._error = error
        self._ready: asyncio.Future[None] | None = None

    def deserialize(self, topic: str, headers: Any, data: bytes) -> int:
        if self._ready is None:
            self.loads += 1
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            loop.call_later(self._seconds, self._ready.set_result, None)
        if not self._ready.done():
            raise DeserializerNotReady(self._ready)
        if self._error is not None:
            raise self._error
        return int(data)


@story()
async def test_poll_waits_for_a_deserializer_within_its_timeout(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1")
    slow = Slow(5.0)
    async with consuming(world, A, value_deserializer=slow) as consumer:
        began = world.now
        assert await consumer.poll(2.0) == []
        assert world.now == pytest.approx(began + 2.0, abs=0.1)
        assert [each.value for each in await drained(consumer, 2)] == [0, 1]
        assert slow.loads == 1


@story()
async def test_deserializer_that_fails_after_its_wait_makes_poison_values(world: Story) -> None:
    world.broker.cluster.create_topic("orders")
    append(world, A, b"0", b"1")
    async with consuming(world, A, value_deserializer=Slow(1.0, LookupError("no schema"))) as consumer:
        with pytest.raises(PoisonRecordError) as caught:
            await drained(consumer, 1)
        assert isinstance(caught.value.__cause__, LookupError)


def test_policies_are_checked() -> None:
    from kafkalite_sdk.consumer.consumer import Consumer

    with pytest.raises(ValueError, match="on_poison is 'drop'"):
        Consumer("a:1", on_poison="drop")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="subclass of ConsumerInterceptor"):
        Consumer("a:1", interceptors=[object()])  # type: ignore[list-item]
