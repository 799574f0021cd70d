"""A callback of a consumer raises, or an await is cancelled: each record is delivered, and no commit covers more.

The next member of the group gets what the first one has not committed.
"""

import gc
import threading
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import Consumer, Producer, RebalanceListener, TopicPartition, blocking

from kafkalite.testing.thread import BrokerThread
from tests.kit.steps import Bug, Stepper
from tests.story.sdk.blocking_rig import new_topic
from tests.story.sdk.cancelling import Cancelling
from tests.story.sdk.test_cancellation import (
    COUNT,
    FAULTLESS,
    PARTITION,
    SETTINGS,
    VALUES,
    committed,
    each_await,
    new_consumer,
)
from tests.story.sdk.world import World, run

Received = list[bytes | None]


class Listener(RebalanceListener):
    """Counts its calls, and raises in one of them."""

    def __init__(self, fails_at: tuple[str, int] | None) -> None:
        self.calls: Counter[str] = Counter()
        self._fails_at = fails_at

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        if (name, self.calls[name]) == self._fails_at:
            raise Bug(name)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._called("assigned")

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._called("revoked")

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._called("lost")


async def send_values(world: World) -> None:
    async with Producer(world.bootstrap, environment=world.environment(), **SETTINGS) as producer:
        await producer.send_many([("orders", value) for value in VALUES])


async def rebalanced(world: World, listener: Listener, protocol: str) -> tuple[Received, list[Bug]]:
    """Read half of the records, unsubscribe, subscribe again, read the rest, close."""
    raised: list[Bug] = []
    received: Received = []
    consumer = new_consumer(world, protocol)
    await consumer.start()
    for end in (COUNT // 2, COUNT):
        consumer.subscribe("orders", listener=listener)
        while len(received) < end:
            try:
                received += [each.value for each in await consumer.poll(0.5, end - len(received))]
            except Bug as error:
                raised.append(error)
        try:
            await (consumer.unsubscribe if end < COUNT else consumer.close)()
        except Bug as error:
            raised.append(error)
        assert await committed(world, protocol) == end
    return received, raised


@pytest.mark.parametrize("protocol", ["classic", "consumer", "registered"])
def test_each_call_of_a_listener_may_raise(tmp_path: Path, protocol: str) -> None:
    """The exception is raised once, by the poll, unsubscribe or close; the change of the assignment is carried out."""

    def calls(fails_at: tuple[str, int] | None) -> list[tuple[str, int]]:
        listener = Listener(fails_at)

        async def scenario(world: World) -> None:
            await world.create_topics(orders=1)
            await send_values(world)
            received, raised = await rebalanced(world, listener, protocol)
            assert received == VALUES
            assert [str(each) for each in raised] == ([] if fails_at is None else [fails_at[0]])

        run(tmp_path / ("none" if fails_at is None else "-".join(map(str, fails_at))), FAULTLESS, scenario)
        return [(name, number) for name, count in listener.calls.items() for number in range(1, count + 1)]

    found = calls(None)
    assert {name for name, _ in found} >= {"assigned", "revoked"}
    for each in found:
        calls(each)


@pytest.mark.parametrize("protocol", ["consumer", None])
def test_iteration_that_is_cancelled_returns_each_record_once(tmp_path: Path, protocol: str | None) -> None:
    async def application(world: World, cancelling: Cancelling) -> None:
        await send_values(world)
        consumer = await reading(world, protocol)
        received: Received = []
        while len(received) < COUNT:
            record = await cancelling.once(lambda: anext(consumer))
            received += [] if record is None else [record.value]
            if len(received) % 5 == 0:
                await cancelling.once(consumer.commit)
        before = cancelling.cancelled
        await cancelling.again(consumer.close)
        assert received == VALUES
        assert await committed(world, protocol) == COUNT or cancelling.cancelled != before

    assert each_await(tmp_path, application) >= 3


async def reading(world: World, protocol: str | None) -> Consumer[Any, Any]:
    consumer = new_consumer(world, protocol)
    await consumer.start()
    if protocol is None:
        consumer.assign([PARTITION])
    else:
        consumer.subscribe("orders")
    return consumer


@pytest.mark.parametrize(("protocol", "explicit"), [("classic", False), ("consumer", True), (None, True)])
def test_stream_that_is_cancelled_loses_no_record(tmp_path: Path, protocol: str | None, explicit: bool) -> None:
    async def application(world: World, cancelling: Cancelling) -> None:
        await send_values(world)
        consumer = await reading(world, protocol)
        (stream,) = consumer.streams(1, explicit=explicit)
        received: Received = []
        while len(received) < COUNT:
            record = await cancelling.once(lambda: anext(stream))
            if record is None:
                continue
            received.append(record.value)
            if explicit:
                stream.complete(record)
            if len(received) % 5 == 0:
                await cancelling.once(consumer.commit)
            assert consumer.positions()[PARTITION] == len(received) - (not explicit)
        assert received == VALUES
        await cancelling.again(consumer.close)
        assert await committed(world, protocol) >= COUNT - (not explicit)

    assert each_await(tmp_path, application) >= 3


def read_blocking(address: str, topic: str, fails_at: tuple[str, int] | None) -> Listener:
    """Read half of the records, unsubscribe, subscribe again, read the rest; compare commits with what was received."""
    listener, received, raised = Listener(fails_at), 0, 0
    group = f"g-{topic}-{fails_at}"
    consumer: blocking.Consumer[bytes, bytes] = blocking.Consumer(address, group=group, auto_offset_reset="earliest")
    consumer.start()
    for end in (COUNT // 2, COUNT):
        consumer.subscribe(topic, listener=listener)
        while received < end:
            try:
                received += len(consumer.poll(0.5, end - received))
            except Bug:
                raised += 1
        try:
            (consumer.unsubscribe if end < COUNT else consumer.close)()
        except Bug:
            raised += 1
        with blocking.Consumer(address, group=group) as next_member:
            found = next_member.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
            assert found is not None and found.offset == received == end
    assert raised == (fails_at is not None)
    return listener


def test_each_call_of_a_listener_of_a_blocking_consumer_may_raise(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=COUNT)
    calls = read_blocking(kafkalite_broker.address, topic, None).calls
    assert set(calls) >= {"assigned", "revoked"}
    for name, count in calls.items():
        for number in range(1, count + 1):
            read_blocking(kafkalite_broker.address, topic, (name, number))


def test_a_blocking_consumer_whose_thread_does_not_start_may_be_started_again(
    kafkalite_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafkalite_broker, records=COUNT)
    consumer: blocking.Consumer[bytes, bytes] = blocking.Consumer(kafkalite_broker.address)
    consumer.assign([TopicPartition(topic, 0)])

    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="can't start new thread"):
        patched.setattr(threading.Thread, "start", fails)
        consumer.start()
    consumer.start()
    consumer.seek(TopicPartition(topic, 0), 0)
    assert len(consumer.poll(5.0)) == COUNT
    consumer.close()


def use_blocking_clients(address: str, topic: str, group: str) -> int:
    """Send, read all records, commit and close; after an exception call again. Returns the number of exceptions."""
    raised = 0

    def attempt(call: Callable[[], Any]) -> Any:
        nonlocal raised
        try:
            return call()
        except Bug:
            raised += 1
            return None

    def started(client: Any) -> None:
        if attempt(lambda: client.start() or True) is None:
            client.start()

    producer: blocking.Producer[bytes, bytes] = blocking.Producer(address)
    started(producer)
    sent = producer.send(topic, b"last")
    attempt(producer.flush)
    attempt(producer.close)
    assert sent.result(0).offset >= COUNT
    consumer: blocking.Consumer[bytes, bytes] = blocking.Consumer(
        address, group=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    started(consumer)
    consumer.subscribe(topic, listener=RebalanceListener())
    received: list[int] = []
    while len(received) <= sent.result(0).offset:
        received += [each.offset for each in attempt(partial(consumer.poll, 0.5)) or ()]
        attempt(consumer.commit)
    attempt(consumer.commit)
    consumer.commit()
    attempt(consumer.unsubscribe)
    attempt(consumer.close)
    consumer.close()
    assert received == list(range(sent.result(0).offset + 1))
    with blocking.Consumer(address, group=group) as next_member:
        found = next_member.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert found is not None and found.offset == len(received)
    return raised


def threads_of_clients() -> set[threading.Thread]:
    """All threads but those of the broker's jobs, which may begin at any time."""
    return {each for each in threading.enumerate() if not each.name.startswith("kafkalite-job")}


@pytest.mark.filterwarnings("ignore:unclosed")  # an exception at an await of the close
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_each_await_of_the_blocking_clients_may_raise(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=COUNT)
    stepper = Stepper(("sdk/kafkalite_sdk/blocking/",), awaits=True, threads=True)
    with stepper.found() as steps:
        use_blocking_clients(kafkalite_broker.address, topic, "none")
    assert len(steps) >= 6
    threads = threads_of_clients()
    failed: dict[str, str] = {}
    for step in steps:
        with stepper.fails_at(step):
            try:
                assert use_blocking_clients(kafkalite_broker.address, topic, str(step)) == 1
            except Exception as error:  # each step is reported
                failed[str(step)] = repr(error)
        assert stepper.raised, step
    gc.collect()  # the warnings of clients whose close has failed are ignored here
    assert failed == {}
    assert threads_of_clients() <= threads
