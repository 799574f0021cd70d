"""Cancellations at each suspension of aiokafka's clients, and exceptions in their callbacks: what was sent is delivered
once or reported, and no commit passes what was not delivered.
"""

import asyncio
import gc
import linecache
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from random import Random
from typing import Any

import pytest
from kafkalite_sdk.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from tests.kit.scripted_broker import ScriptedBroker
from tests.kit.steps import ROOT, Bug, Step, Stepper
from tests.story.sdk.aiokafka_rig import new_consumer, new_producer
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.consumer_rig import A, B, append, committed

COUNT = 6
PARTITIONS = (A, B)
SUSPENSIONS_MAX = 200
WAIT_S = 60


class Interruption:
    """Cancels the running task at one suspension of the calls that it runs.

    Arguments:
        at: number of the suspension; the first one is 0.
        woken: cancel when what the call waits for has arrived, and before the call continues; else when it waits.

    Attributes:
        done: the suspension was reached.
    """

    def __init__(self, at: int, *, woken: bool = False) -> None:
        self.done = False
        self._at = at
        self._woken = woken
        self._count = 0

    def __call__(self, call: Awaitable[Any]) -> Awaitable[Any]:
        return _Interrupted(call, self._suspended)

    def _suspended(self, future: Any) -> None:
        if self._count == self._at:
            self.done = True
            task = asyncio.current_task()
            assert task is not None
            if self._woken and future is not None:
                future.add_done_callback(lambda _: task.cancel())  # before the wake-up of the task
            else:
                task.cancel()
        self._count += 1


class _Interrupted:
    def __init__(self, call: Awaitable[Any], suspended: Callable[[Any], None]) -> None:
        self._call = call
        self._suspended = suspended

    def __await__(self) -> Generator[Any, None, Any]:
        steps = self._call.__await__()
        try:
            future = next(steps)
            while True:
                self._suspended(future)
                try:
                    yield future
                except BaseException as error:
                    future = steps.throw(error)
                else:
                    future = next(steps)
        except StopIteration as end:
            return end.value


class Application:
    """Reads both partitions with one call of the consumer, commits, and goes on after an exception.

    Attributes:
        delivered: offsets by partition, in the order of their delivery.
    """

    def __init__(self, world: Story, call: str, interrupt: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
        self.delivered: dict[TopicPartition, list[int]] = {each: [] for each in PARTITIONS}
        self.exceptions = 0
        self._world = world
        self._read = {"getone": self._getone, "getmany": self._getmany, "anext": self._anext}[call]
        self._interrupt = interrupt

    def _received(self, record: Any) -> None:
        self.delivered[record.topic, record.partition].append(record.offset)

    async def _getone(self, consumer: AIOKafkaConsumer) -> None:
        self._received(await self._interrupt(consumer.getone()))

    async def _anext(self, consumer: AIOKafkaConsumer) -> None:
        self._received(await self._interrupt(anext(consumer)))

    async def _getmany(self, consumer: AIOKafkaConsumer) -> None:
        for records in (await self._interrupt(consumer.getmany(timeout_ms=500, max_records=4))).values():
            for each in records:
                self._received(each)

    async def attempt(self, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            await call()
        except (Bug, KafkaError, asyncio.CancelledError):
            self.exceptions += 1
            assert self.exceptions <= 5

    async def run(self, consumer: AIOKafkaConsumer) -> None:
        while sum(map(len, self.delivered.values())) < 2 * COUNT:
            await self.attempt(partial(self._read, consumer))
            await self.attempt(lambda: self._interrupt(consumer.commit()))
            self.check_commits()
        for each in PARTITIONS:
            await self.attempt(lambda each=each: self._interrupt(consumer.position(each)))  # type: ignore[misc]
            assert await consumer.position(each) == COUNT
        await consumer.commit()
        assert [await consumer.committed(each) for each in PARTITIONS] == [COUNT, COUNT]

    def check_commits(self) -> None:
        for commit in committed(self._world)[-1:]:
            for (_, number), offset in commit.items():
                assert offset <= len(self.delivered[PARTITIONS[number]]), "a commit passes what was not delivered"


def fill(world: Story) -> None:
    world.broker.cluster.create_topic("orders", 2)
    for partition in PARTITIONS:
        for first in range(0, COUNT, 2):
            append(world, partition, b"%d" % first, b"%d" % (first + 1))


def interrupted(call: str, interruption: Interruption) -> Application:
    application: list[Application] = []

    @story()
    async def run(world: Story) -> None:
        fill(world)
        consumer = new_consumer(world, "orders", group_id="g", enable_auto_commit=False)
        application.append(Application(world, call, interruption))
        await consumer.start()
        await application[0].run(consumer)
        await application[0].attempt(lambda: interruption(consumer.stop()))
        await consumer.stop()

    run()
    return application[0]


@pytest.mark.parametrize("woken", [False, True])
@pytest.mark.parametrize("call", ["getone", "getmany", "anext"])
def test_a_cancellation_at_any_suspension_of_a_consumer_loses_nothing(call: str, woken: bool) -> None:
    for number in range(SUSPENSIONS_MAX):
        interruption = Interruption(number, woken=woken)
        application = interrupted(call, interruption)
        assert application.delivered == {each: list(range(COUNT)) for each in PARTITIONS}, number
        assert application.exceptions == interruption.done, number
        if not interruption.done:
            break
    assert 3 < number < SUSPENSIONS_MAX


@pytest.mark.parametrize("woken", [False, True])
def test_a_cancelled_stop_commits_what_was_returned_or_nothing(woken: bool) -> None:
    @story()
    async def run(world: Story, interruption: Interruption) -> None:
        fill(world)
        consumer = new_consumer(world, "orders", group_id="g", max_poll_records=5)
        await consumer.start()
        found = await consumer.getmany(timeout_ms=500)
        returned = {(each.topic, each.partition): records[-1].offset + 1 for each, records in found.items()}
        try:
            await interruption(consumer.stop())
        except asyncio.CancelledError:
            await consumer.stop()
        commits = [
            some for commit in committed(world) if (some := {each: offset for each, offset in commit.items() if offset})
        ]
        assert commits in ([returned], [] if interruption.done else [returned])

    each_suspension(run, woken)


@pytest.mark.parametrize("woken", [False, True])
def test_a_cancelled_seek_leaves_the_position_before_or_the_one_after(woken: bool) -> None:
    @story()
    async def run(world: Story, interruption: Interruption) -> None:
        fill(world)
        consumer = new_consumer(world, "orders", group_id="g", enable_auto_commit=False)
        await consumer.start()
        await consumer.getmany(timeout_ms=500, max_records=3)
        before = [await consumer.position(each) for each in PARTITIONS]
        for seek, after in ((consumer.seek_to_end, COUNT), (consumer.seek_to_beginning, 0)):
            try:
                await interruption(seek())
            except asyncio.CancelledError:
                await seek()
            assert [await consumer.position(each) for each in PARTITIONS] == [after, after], before
        application = Application(world, "getmany", interruption)
        await application.run(consumer)
        assert application.delivered == {each: list(range(COUNT)) for each in PARTITIONS}
        await consumer.stop()

    each_suspension(run, woken)


def each_suspension(run: Callable[[Interruption], None], woken: bool) -> None:
    """Run a story with a cancellation at each of its suspensions."""
    for number in range(SUSPENSIONS_MAX):
        run(interruption := Interruption(number, woken=woken))
        if not interruption.done:
            break
    assert 0 < number < SUSPENSIONS_MAX


# Callbacks


class Raising:
    """Counts calls of callbacks, and raises in one of them."""

    def __init__(self, name: str = "", number: int = 0) -> None:
        self.calls: Counter[str] = Counter()
        self._fails_at = name, number

    def __call__(self, name: str) -> None:
        self.calls[name] += 1
        if (name, self.calls[name]) == self._fails_at:
            raise Bug(f"{name} {self.calls[name]}")

    def function(self, name: str, function: Callable[[Any], Any] = bytes) -> Callable[[Any], Any]:
        def call(argument: Any) -> Any:
            self(name)
            return function(argument)

        return call

    def each_call(self) -> list[tuple[str, int]]:
        return [(name, number) for name, count in self.calls.items() for number in range(1, count + 1)]


class Listener(ConsumerRebalanceListener):
    def __init__(self, raising: Raising) -> None:
        self._raising = raising

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._raising("revoked")

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._raising("assigned")


@pytest.mark.parametrize("call", ["getone", "getmany", "anext"])
def test_each_callback_of_a_consumer_may_raise(call: str) -> None:
    @story()
    async def run(world: Story, raising: Raising) -> None:
        fill(world)
        consumer = new_consumer(
            world,
            group_id="g",
            enable_auto_commit=False,
            value_deserializer=raising.function("deserializer"),
        )
        consumer.subscribe(["orders"], listener=Listener(raising))
        await consumer.start()
        await read_around_poison(world, consumer, call)
        await consumer.stop()

    run(calls := Raising())
    assert set(calls.calls) == {"revoked", "assigned", "deserializer"}
    for name, number in calls.each_call():
        run(Raising(name, number))


async def read_around_poison(world: Story, consumer: AIOKafkaConsumer, call: str) -> None:
    """An error of a deserializer names the record that is missing then."""
    application = Application(world, call, lambda each: each)
    named: list[str] = []
    while sum(map(len, application.delivered.values())) + len(named) < 2 * COUNT:
        try:
            await application._read(consumer)
        except Bug as error:
            named += error.__notes__
        await consumer.commit()
    for each in PARTITIONS:
        beginning = f"in the value of orders-{each.partition} at offset "
        missing = [int(note.removeprefix(beginning)) for note in named if note.startswith(beginning)]
        offsets = application.delivered[each] + missing
        assert sorted(offsets) == list(range(COUNT))
        assert await consumer.committed(each) == COUNT


# The producer


def sent_with(raising: Raising, interrupt: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    @story()
    async def run(world: Story) -> None:
        world.expect_failures()
        world.broker.cluster.create_topic("orders", 2)
        producer = new_producer(
            world,
            value_serializer=raising.function("serializer"),
            partitioner=lambda _key, numbers, _leaders: raising("partitioner") or numbers[0],
            enable_idempotence=True,
            linger_ms=5,
        )
        try:
            await producer.start()
        except Bug:
            await producer.start()
        await sends(world, producer, interrupt)

    run()


async def sends(
    world: Story, producer: AIOKafkaProducer, interrupt: Callable[[Awaitable[Any]], Awaitable[Any]]
) -> None:
    """Send by each method; the log has what was acknowledged, and nothing twice."""
    futures: dict[bytes, asyncio.Future[Any]] = {}
    unknown: set[bytes] = set()

    async def attempt(value: bytes | None, call: Awaitable[Any]) -> Any:
        try:
            return await interrupt(call)
        except (Bug, asyncio.CancelledError):
            unknown.update([] if value is None else [value])

    for number in range(COUNT):
        value = b"%d" % number
        if (future := await attempt(value, producer.send("orders", value))) is not None:
            futures[value] = future
    await attempt(b"waited", producer.send_and_wait("orders", b"waited"))
    await attempt(None, producer.flush())
    await attempt(None, producer.stop())
    await producer.stop()
    logs = [each.values() for each in world.broker.cluster.topics["orders"].partitions]
    found = Counter(value for log in logs for value in log)
    assert all(future.done() for future in futures.values())
    acknowledged = {value for value, future in futures.items() if not future.cancelled() and not future.exception()}
    assert set(found.values()) == {1}, "nothing is sent twice"
    assert acknowledged <= found.keys() <= futures.keys() | unknown | {b"waited"}
    assert len(unknown) <= 1


@pytest.mark.parametrize("woken", [False, True])
def test_a_cancellation_at_any_suspension_of_a_producer_loses_no_report(woken: bool) -> None:
    each_suspension(lambda interruption: sent_with(Raising(), interruption), woken)


def test_each_callback_of_a_producer_may_raise() -> None:
    sent_with(calls := Raising(), lambda each: each)
    assert set(calls.calls) == {"serializer", "partitioner"}
    for name, number in calls.each_call():
        sent_with(Raising(name, number), lambda each: each)


# Awaits


def each_step(run: Callable[[], None], *sources: str) -> None:
    """Run a story with an exception at each of its awaits in the sources below the SDK."""
    stepper = Stepper(tuple(f"sdk/kafkalite_sdk/{each}" for each in sources), awaits=True)
    found: list[Step]
    with stepper.found() as found:
        run()
    assert len(found) > 10
    failed: dict[str, str] = {}
    for step in found:
        if "self._client.close(" in linecache.getline(str(ROOT / step.file), step.line):
            continue  # the step would not be taken at all, so connections and timers would stay
        with stepper.fails_at(step):
            try:
                run()
            except Exception as error:  # each step is reported
                failed[str(step)] = repr(error)
        assert stepper.raised, step
    gc.collect()  # the warnings of clients whose stop has failed are ignored here
    assert failed == {}


@pytest.mark.filterwarnings("ignore:[Uu]nclosed")  # an exception at an await of the stop
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", ["getone", "getmany", "anext"])
def test_exception_at_any_await_of_a_consumer_loses_nothing(call: str) -> None:
    @story()
    async def run(world: Story) -> None:
        world.expect_failures()
        fill(world)
        application = Application(world, call, lambda each: each)
        ended = False
        while not ended:
            consumer = new_consumer(world, "orders", group_id="g", enable_auto_commit=False)
            try:
                await consumer.start()
                await application.run(consumer)
                ended = True
            except Bug:  # at an await outside of `attempt`
                application.exceptions += 1
            finally:
                await application.attempt(consumer.stop)
                await application.attempt(consumer.stop)
        assert application.exceptions <= 2
        assert {each: sorted(set(offsets)) for each, offsets in application.delivered.items()} == {
            each: list(range(COUNT)) for each in PARTITIONS
        }

    each_step(run, "compat/aiokafka/")


@pytest.mark.filterwarnings("ignore:[Uu]nclosed")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_exception_at_any_await_of_a_producer_loses_no_report() -> None:
    each_step(partial(sent_with, Raising(), lambda each: each), "compat/aiokafka/", "producer/")


# Threads


def test_large_batches_are_sent_and_read_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def fails(thread: threading.Thread) -> None:
        names.append(thread.name)
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        values = [Random(number).randbytes(400_000) for number in range(3)]
        async with ScriptedBroker() as broker, asyncio.timeout(WAIT_S):
            broker.cluster.create_topic("orders")
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, compression_type="gzip")
            consumer = AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
            async with producer, consumer:
                sent = [await producer.send_and_wait("orders", value) for value in values]
                assert [each.offset for each in sent] == [0, 1, 2]
                assert [(await consumer.getone()).value for _ in values] == values

    monkeypatch.setattr(threading.Thread, "start", fails)
    asyncio.run(main())
    assert {name.split("_")[0] for name in names} == {"kafkalite-compress", "kafkalite-decompress"}
