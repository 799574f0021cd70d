"""Ctrl-C at each moment of a call of a blocking client: records are received once, and a close ends the thread."""

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pyarrow
import pytest
from kafkalite_sdk.blocking import Admin, ColumnReader, Connection, Consumer, Producer

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
