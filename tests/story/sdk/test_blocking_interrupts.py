"""Ctrl-C at each moment of a call of a blocking client: records are received once, and a close ends the thread."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pyarrow
import pytest
from kafkalite_sdk.blocking import Admin, ColumnReader, Connection, Consumer, Producer
from kafkalite_sdk.blocking.loop_thread import LoopThread
from kafkalite_sdk.blocking.operation import Operation

from kafkalite.errors import KafkaTimeoutError
from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.story.sdk.blocking_rig import new_topic
from tests.story.sdk.interrupts import Interrupts

RECORDS = 600
WAIT_S = 60

Poll = Callable[[Consumer[bytes, bytes]], list[int]]
POLLS: dict[str, Poll] = {
    "poll": lambda consumer: [each.offset for each in consumer.poll(5.0, max_records=3)],
    "iteration": lambda consumer: [next(consumer).offset],
    "getmany": lambda consumer: [
        each.offset for records in consumer.getmany(timeout_ms=5000, max_records=3).values() for each in records
    ],
    "columns": lambda consumer: pyarrow.record_batch(consumer.poll_columns(5.0, 3))["offset"].to_pylist(),
}


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Interrupts:
    return Interrupts(monkeypatch)


@pytest.mark.parametrize("prefetched", [True, False])
@pytest.mark.parametrize("name", [*POLLS])
def test_ctrl_c_at_each_moment_of_a_poll_loses_no_record_for_manual_commits(
    kafkalite_broker: BrokerThread, interrupts: Interrupts, name: str, *, prefetched: bool
) -> None:
    """After each interrupt the application commits what the consumer takes for received."""
    topic = new_topic(kafkalite_broker, records=RECORDS)
    first = TopicPartition(topic, 0)
    received: list[int] = []
    interrupts.locks = True
    group = f"g-{topic}"
    with Consumer(kafkalite_broker.address, group=group, enable_auto_commit=False, fetch_max_wait_ms=1) as consumer:
        consumer.assign([first])
        consumer.seek(first, 0)
        for number in count():
            if not prefetched:
                consumer.seek(first, len(received))
            try:
                with interrupts.at(number):
                    records = POLLS[name](consumer)
            except KeyboardInterrupt:
                consumer.commit()
                committed = consumer.committed([first])[first]
                assert (committed.offset if committed is not None else 0) == len(received), f"moment {number}"
            else:
                received += records
                if interrupts.count <= number:
                    break
            received += POLLS[name](consumer)
            assert received == list(range(len(received))), f"moment {number}"
        assert number >= 3


@pytest.mark.parametrize("second", [None, 1, 2, 3, 5, 8])
@pytest.mark.parametrize("client", [Admin, ColumnReader, Connection, Consumer, Producer])
def test_ctrl_c_once_or_twice_in_close_leaves_no_thread(
    kafkalite_broker: BrokerThread, interrupts: Interrupts, client: type, second: int | None
) -> None:
    """The second one arrives so many moments behind the first one. At the first two moments the close has not begun."""
    interrupts.locks = client is not Producer
    for number in count(2):
        before, name = set(threading.enumerate()), f"kafkalite-{client.__name__.lower()}"
        closed = client(kafkalite_broker.address)
        closed.start()
        (started,) = (each for each in threading.enumerate() if each.name == name and each not in before)
        moments = (number,) if second is None else (number, number + second)
        with suppress(KeyboardInterrupt), interrupts.at(*moments):
            closed.close()
        started.join(WAIT_S)
        assert not started.is_alive(), f"moment {number}, in {interrupts.raised}"
        closed.close()
        if interrupts.count <= number:
            break
    assert number > 5


async def hold(_batch: object) -> None:
    await asyncio.Event().wait()


class InterruptedClose:
    """Raises KeyboardInterrupt in the waits of a close of a producer, in the main thread, at chosen moments.

    Arguments:
        producer: its loop runs no callback until the first interrupt, if `held`.
        held: whether the close is interrupted before its first step, else when it waits for the records.
        interrupts: how many waits are interrupted.
    """

    def __init__(self, producer: Producer[bytes, bytes], *, held: bool, interrupts: int) -> None:
        self._producer = producer
        self._thread = producer._thread()
        self._held = held
        self._left = interrupts
        self._wait = Operation.wait
        self._post = LoopThread._post

    def hold_loop(self) -> None:
        if self._held:
            self._thread.lock.acquire()

    def let_go(self) -> None:
        if self._held:
            self._held = False
            self._thread.lock.release()

    def wait(self, operation: Operation[object]) -> None:
        if not self._left:
            self.let_go()
            self._wait(operation)
            return
        self._left -= 1
        while not self._held and not self._producer._client._closing.begun:
            iteration = threading.Event()
            self._thread.call_soon(iteration.set)
            assert iteration.wait(WAIT_S)
        raise KeyboardInterrupt

    def post(self, thread: LoopThread, *args: object) -> bool:
        """The first call is interrupted before the loop has the operation."""
        if self._left:
            self._left -= 1
            raise KeyboardInterrupt
        return self._post(thread, *args)  # type: ignore[arg-type]


CLOSES = {
    "before the loop has the call": ("post", False, 1),
    "before its first step": ("wait", True, 1),
    "twice before its first step": ("wait", True, 2),
    "while it waits for the records": ("wait", False, 1),
    "again while it is cancelled": ("wait", False, 2),
}


@pytest.mark.parametrize("moment", CLOSES)
def test_close_after_an_interrupted_one_does_not_wait_for_the_records(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before, the next close waited for `close_timeout_ms`, if the first one was interrupted before its first step."""
    name, held, interrupts = CLOSES[moment]
    with Producer("nowhere:9092", handler=hold) as producer:
        sent = producer.send("orders", b"held")
        columns = producer.send_columns("orders", pyarrow.table({"value": [b"a"]}))
        close = InterruptedClose(producer, held=held, interrupts=interrupts)
        close.hold_loop()
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            if name == "post":
                patched.setattr(LoopThread, "_post", lambda thread, *args: close.post(thread, *args))
            else:
                patched.setattr(Operation, "wait", lambda operation: close.wait(operation))
            producer.close()
        close.let_go()
    for each in (sent, columns):
        with pytest.raises(KafkaTimeoutError, match="close was cancelled"):
            each.result(timeout=0)
