"""A callback, an await or the start of a thread of a producer raises: the records that `send` has accepted are
acknowledged, or their failure is reported; and `close` ends the producer.
"""

import asyncio
import linecache
import threading
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from kafkalite_sdk import Producer, blocking
from kafkalite_sdk.interceptors import ProducerInterceptor
from kafkalite_sdk.values import ProducerRecord

from kafkalite.testing.thread import BrokerThread
from tests.kit.scripted_broker import ScriptedBroker
from tests.kit.steps import ROOT, Bug, Step, Stepper
from tests.story.sdk.client_rig import Story, story
from tests.story.sdk.producer_rig import new_producer

COUNT = 10
CALLS_MAX = 3  # of each callback: the first ones, which differ most
WAIT_S = 60
STEPS = ("sdk/kafkalite_sdk/producer/",)


class Faults:
    """Counts the calls of callbacks, and raises in one of them."""

    def __init__(self, fails_at: tuple[str, int] | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self._fails_at = fails_at

    def __call__(self, name: str) -> None:
        self.calls[name] += 1
        if (name, self.calls[name]) == self._fails_at:
            raise Bug(f"{name} {self.calls[name]}")

    def each_call(self) -> list[tuple[str, int]]:
        return [(name, number) for name, count in self.calls.items() for number in range(1, min(count, CALLS_MAX) + 1)]


class Intercepting(ProducerInterceptor):
    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def before_enqueue(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        self._faults("before_enqueue")
        return record

    def after_enqueue(self, _record: object, _future: object) -> None:
        self._faults("after_enqueue")

    def before_send(self, _batch: object) -> None:
        self._faults("before_send")

    def request_sent(self, *_: object) -> None:
        self._faults("request_sent")

    def request_ended(self, *_: object) -> None:
        self._faults("request_ended")

    def on_acknowledgement(self, _batch: object) -> None:
        self._faults("on_acknowledgement")

    def last_batch(self) -> Iterable[ProducerRecord[Any, Any]]:
        self._faults("last_batch")
        return [ProducerRecord("orders", b"last")]


class Ledger:
    """What was sent, and what was reported.

    Attributes:
        errors: raised by methods of the producer.
    """

    def __init__(self, faults: Faults) -> None:
        self.errors: list[BaseException] = []
        self._faults = faults
        self._sent: list[tuple[bytes, Any]] = []
        self._reported = 0

    def options(self) -> dict[str, Any]:
        """Arguments of a producer whose callbacks may raise."""

        def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                self._faults(name)
                return function(*args)

            return call

        return {
            "key_serializer": named("key_serializer", str.encode),
            "value_serializer": named("value_serializer", bytes),
            "partitioner": named("partitioner", lambda key, _value, all_of, _leaders: zlib.crc32(key) % len(all_of)),
            "on_error": named("on_error", self._report),
            "interceptors": [Intercepting(self._faults)],
            "batch_size": 150,
            "delivery_timeout_ms": 5000,
            "request_timeout_ms": 1000,
            "max_block_ms": 2000,
        }

    def _report(self, failed: Any) -> None:
        self._reported += failed.unobserved

    def send(self, producer: Any, number: int) -> None:
        value = b"%d" % number
        try:
            self._sent.append((value, producer.send("orders", value, f"key-{number % 3}")))
        except Exception as error:
            self.errors.append(error)

    async def attempt(self, call: Callable[[], Awaitable[object]]) -> None:
        """Await a call; keep its error."""
        try:
            await call()
        except (Exception, asyncio.CancelledError) as error:
            self.errors.append(error)

    def check_outcomes(self) -> None:
        """Each accepted record is acknowledged, or its failure was reported."""
        assert all(future.done() for _, future in self._sent)
        failed = [value for value, future in self._sent if future.exception() is not None]
        assert not failed or self._reported or self.errors, f"{failed} are lost without a report"

    def check(self, logs: list[list[bytes | None]]) -> None:
        """Compare with the values in each partition."""
        self.check_outcomes()
        found = Counter(value for log in logs for value in log)
        assert set(found.values()) <= {1}, "no record is sent twice"
        for value, future in self._sent:
            if future.exception() is None:
                metadata = future.result()
                assert logs[metadata.partition][metadata.offset] == value
        for log in logs:
            assert log == sorted(log, key=lambda value: (value == b"last", int(value) if value != b"last" else 0)), log


@story()
async def run_with(world: Story, faults: Faults, stepping: Callable[[], Any] | None = None) -> None:
    world.expect_failures()
    world.broker.cluster.create_topic("orders", 2)
    ledger = Ledger(faults)
    producer = new_producer(world, **ledger.options())
    if stepping is None:
        await application(producer, ledger)
    else:
        with stepping():
            await application(producer, ledger)
    partitions = world.broker.cluster.topics["orders"].partitions
    ledger.check([partition.values() for partition in partitions])


async def application(producer: Producer[Any, Any], ledger: Ledger) -> None:
    for _ in range(2):
        await ledger.attempt(producer.start)
    for number in range(COUNT):
        ledger.send(producer, number)
        if number % 3 == 2:
            await ledger.attempt(producer.drain)
    await ledger.attempt(producer.flush)
    await ledger.attempt(lambda: producer.send_many([("orders", b"%d" % COUNT, "key")]))
    ledger.send(producer, COUNT + 1)
    for _ in range(2):
        await ledger.attempt(producer.close)


def test_each_callback_may_raise() -> None:
    calls = Faults()
    run_with(calls)
    every = {"key_serializer", "value_serializer", "partitioner", "last_batch", "before_enqueue", "after_enqueue"}
    every |= {"before_send", "request_sent", "request_ended", "on_acknowledgement"}
    assert set(calls.calls) == every
    for call in calls.each_call():
        run_with(Faults(call))


def test_each_await_of_the_producer_may_raise() -> None:
    stepper = Stepper(STEPS, awaits=True)
    steps: list[Step] = []

    @contextmanager
    def finding() -> Iterator[None]:
        with stepper.found() as found:
            yield
        steps.extend(found)

    run_with(Faults(), finding)
    assert len(steps) > 10
    for step in steps:
        if "self._client.close(" in linecache.getline(str(ROOT / step.file), step.line):
            continue  # the step would not be taken at all, so connections and timers would stay
        run_with(Faults(), partial(stepper.fails_at, step))
        assert stepper.raised, step


def test_each_callback_of_the_blocking_producer_may_raise() -> None:
    with BrokerThread() as broker:
        broker.create_topic("orders", partitions=2)
        run_blocking(broker.address, calls := Faults())
        for call in calls.each_call():
            run_blocking(broker.address, Faults(call))


def run_blocking(address: str, faults: Faults) -> None:
    ledger = Ledger(faults)
    producer = blocking.Producer(address, **ledger.options())
    producer.start()
    producer._thread().call(lambda: asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None))
    for number in range(COUNT):
        ledger.send(producer, number)
    for call in (producer.flush, producer.close, producer.close):
        try:
            call()
        except Exception as error:
            ledger.errors.append(error)
    ledger.check_outcomes()


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No thread of a client can be started; the names of those that were."""
    names: list[str] = []
    start = threading.Thread.start

    def fails(thread: threading.Thread) -> None:
        if not thread.name.startswith(("kafkalite-compress", "kafkalite-producer")):
            start(thread)
            return
        names.append(thread.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    return names


def test_large_batches_are_compressed_without_threads(no_threads: list[str]) -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, asyncio.timeout(WAIT_S):
            broker.cluster.create_topic("orders")
            expected = [b"%d" % number * 100_000 for number in range(5)]
            async with Producer(broker.bootstrap, compression_type="gzip", linger_ms=0) as producer:
                sent = [producer.send("orders", value) for value in expected]
                assert [(await each).offset for each in sent] == list(range(5))
            assert broker.cluster.topics["orders"].partitions[0].values() == expected

    asyncio.run(main())
    assert no_threads


def test_a_blocking_producer_whose_thread_does_not_start_may_be_started_again(
    no_threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer: blocking.Producer[bytes, bytes]
    with BrokerThread() as broker:
        producer = blocking.Producer(broker.address)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            producer.start()
        monkeypatch.undo()
        producer.start()
        assert producer.send("orders", b"v").result(WAIT_S).offset == 0
        producer.close()
    assert no_threads == ["kafkalite-producer"]
