"""The blocking consumer: records in lists, commits, listeners in the thread of the application, and its end."""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
from kafkalite_sdk import RebalanceListener, Record
from kafkalite_sdk.blocking import Consumer, Producer

from kafkalite.errors import ClientUseError, PoisonRecordError
from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.story.sdk.blocking_rig import count_switches, interrupted_behind_the_result, new_topic

RECORDS = 3000


@contextmanager
def assigned(broker: BrokerThread, topic: str, **settings: Any) -> Iterator[Consumer]:
    with Consumer(broker.address, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        yield consumer


@contextmanager
def member(
    broker: BrokerThread, topic: str, listener: RebalanceListener | None = None, **settings: Any
) -> Iterator[Consumer]:
    consumer = Consumer(broker.address, group=f"group-{topic}", auto_offset_reset="earliest", **settings)
    consumer.subscribe(topic, listener=listener)
    with consumer:
        yield consumer


def numbers(records: Collection[Record[bytes, bytes]]) -> list[int]:
    return [int(each.value or b"") for each in records]


def poll_until(consumer: Consumer, records: int, **options: Any) -> list[int]:
    found: list[int] = []
    while len(found) < records:
        found += numbers(consumer.poll(5.0, **options))
    return found


def test_poll_returns_every_record_with_few_switches_of_threads(
    kafkalite_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafkalite_broker, records=RECORDS)
    with assigned(kafkalite_broker, topic) as consumer:
        switches = count_switches(monkeypatch)
        assert poll_until(consumer, RECORDS, max_records=100) == list(range(RECORDS))
        assert len(switches) <= 10, "one for each poll would be 30"
        assert consumer.poll(0.0) == []


def test_iteration_returns_every_record_with_few_switches_of_threads(
    kafkalite_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafkalite_broker, records=RECORDS)
    with assigned(kafkalite_broker, topic) as consumer:
        switches = count_switches(monkeypatch)
        found = [record.offset for record in islice(consumer, RECORDS)]
        assert found == list(range(RECORDS))
        assert len(switches) <= 10


def test_commit_covers_returned_records_only(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=RECORDS)
    first = TopicPartition(topic, 0)
    with member(kafkalite_broker, topic, enable_auto_commit=False) as consumer:
        found = poll_until(consumer, 30, max_records=10)
        consumer.commit()
        assert consumer.position(first) == len(found)
        committed = consumer.committed()[first]
        assert committed is not None and committed.offset == len(found)
        next(iter(consumer))
        done = threading.Event()
        consumer.commit_nowait(first, lambda error: done.set())
        done.wait()
        committed = consumer.committed([first])[first]
        assert committed is not None and committed.offset == len(found) + 1
        assert consumer.lag() == {first: RECORDS - len(found) - 1}


def test_exception_commits_nothing_and_the_end_of_the_block_does(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=20)
    with pytest.raises(RuntimeError, match="planted"), member(kafkalite_broker, topic) as consumer:
        assert poll_until(consumer, 10, max_records=10) == list(range(10))
        raise RuntimeError("planted")
    with member(kafkalite_broker, topic) as consumer:
        assert poll_until(consumer, 10, max_records=10) == list(range(10))
    with member(kafkalite_broker, topic) as consumer:
        assert poll_until(consumer, 10, max_records=10) == list(range(10, 20))


def test_positions_and_offsets(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=20)
    first = TopicPartition(topic, 0)
    with assigned(kafkalite_broker, topic) as consumer:
        assert consumer.assignment() == {first}
        assert poll_until(consumer, 5, max_records=5) == list(range(5))
        consumer.seek(first, 15)
        assert poll_until(consumer, 5) == list(range(15, 20))
        consumer.seek_to_beginning()
        consumer.pause()
        assert consumer.paused() == {first}
        assert consumer.poll(0.0) == []
        consumer.resume(first)
        assert consumer.beginning_offsets() == {first: 0}
        assert consumer.end_offsets([first]) == {first: 20}
        found = consumer.offsets_for_times({first: 0})[first]
        assert found is not None and found.offset == 0
        assert numbers(consumer.getmany(first, timeout_ms=5000, max_records=3)[first]) == [0, 1, 2]
        consumer.seek_to_time(0)
        assert consumer.position(first) == 0
        consumer.seek_to_end()
        assert consumer.position(first) == 20
        assert consumer.health().assignment == {first}
        with pytest.raises(ValueError, match="max_records is 0"):
            consumer.poll(0.0, max_records=0)


def test_columns_continue_where_records_end(kafkalite_broker: BrokerThread) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    topic = new_topic(kafkalite_broker, records=20)
    with assigned(kafkalite_broker, topic) as consumer:
        assert poll_until(consumer, 5, max_records=5) == list(range(5))
        offsets: list[int] = []
        while len(offsets) < 15:
            offsets += pyarrow.record_batch(consumer.poll_columns(5.0, columns=["offset"]))["offset"].to_pylist()
        assert offsets == list(range(5, 20))
        consumer.seek(TopicPartition(topic, 0), 18)
        lines = b""
        while lines.count(b"\n") < 2:
            lines += bytes(consumer.poll_lines(5.0).value_bytes)
        assert lines == b"18\n19\n"
        assert consumer.positions() == {TopicPartition(topic, 0): 20}


class Committing(RebalanceListener):
    """Uses the consumer in its methods, and records their threads."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.calls: list[tuple[str, threading.Thread]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", threading.current_thread()))
        assert self.consumer is not None
        for each in partitions:
            self.consumer.seek(each, 10)
        with pytest.raises(ClientUseError, match="listener"):
            self.consumer.close()

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", threading.current_thread()))
        assert self.consumer is not None
        self.consumer.commit(dict.fromkeys(partitions, 12))


def test_listener_runs_in_the_thread_that_waits_and_uses_the_consumer(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=20)
    listener = Committing()
    with member(kafkalite_broker, topic, listener, enable_auto_commit=False) as consumer:
        listener.consumer = consumer
        assert poll_until(consumer, 1)[0] == 10
    here = threading.current_thread()
    assert listener.calls == [("assigned", here), ("revoked", here)]
    with member(kafkalite_broker, topic) as consumer:
        assert poll_until(consumer, 1)[0] == 12


def test_async_listener_and_error_of_a_listener(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=1)

    class Failing(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise RuntimeError("planted")

    with member(kafkalite_broker, topic, Failing()) as consumer:
        with pytest.raises(RuntimeError, match="planted"):
            poll_until(consumer, 1)
        assert poll_until(consumer, 1) == [0]


def test_poison_value_is_raised_behind_the_records_before_it(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=3)
    with Producer(kafkalite_broker.address) as producer:
        producer.send(topic, b"no number")
    consumer = Consumer(
        kafkalite_broker.address, value_deserializer=int, on_poison="raise", auto_offset_reset="earliest"
    )
    with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [consumer.poll(5.0, max_records=1)[0].value for _ in range(3)] == [0, 1, 2]
        with pytest.raises(PoisonRecordError):
            consumer.poll(5.0)


def test_close_in_another_thread_ends_an_iteration(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=3)
    with assigned(kafkalite_broker, topic) as consumer:
        closing: list[threading.Thread] = []
        found = []
        for record in consumer:
            found.append(record.offset)
            if len(found) == 3:
                closing.append(threading.Thread(target=consumer.close))
                closing[0].start()
        closing[0].join()
        assert found == [0, 1, 2]
        assert next(consumer, None) is None
        with pytest.raises(ClientUseError, match="was closed"):
            iter(consumer)
        with pytest.raises(ClientUseError, match="was closed"):
            consumer.poll()


def test_close_in_another_thread_between_two_records_ends_an_iteration(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=1)
    with assigned(kafkalite_broker, topic) as consumer:
        found = []
        for record in consumer:
            found.append(record.offset)
            closing = threading.Thread(target=consumer.close)
            closing.start()
            closing.join()
        assert found == [0]


def test_second_poller_is_rejected(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    with assigned(kafkalite_broker, topic) as consumer:
        polling = threading.Thread(target=consumer.poll, args=(float("inf"),), daemon=True)
        polling.start()
        while consumer.health().waiting_for is None:
            pass
        with pytest.raises(ClientUseError, match="polled by another"):
            consumer.poll(1.0)
        with Producer(kafkalite_broker.address) as producer:
            producer.send(topic, b"1")
        polling.join()


def test_members_of_a_group_share_its_partitions(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, partitions=2, records=20)
    with member(kafkalite_broker, topic) as one:
        poll_until(one, 20)
        with member(kafkalite_broker, topic) as other:
            while not (len(one.assignment()) == len(other.assignment()) == 1):
                one.poll(0.05)
                other.poll(0.05)
            assert one.assignment() != other.assignment()
            one.unsubscribe()
            while len(other.assignment()) < 2:
                other.poll(0.05)


@pytest.mark.parametrize("method", ["poll", "getmany", "poll_columns", "poll_lines", "iteration"])
def test_records_that_ctrl_c_intercepts_are_returned_again(
    kafkalite_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    topic = new_topic(kafkalite_broker, records=20)
    first = TopicPartition(topic, 0)
    with assigned(kafkalite_broker, topic) as consumer:
        assert poll_until(consumer, 5, max_records=5) == list(range(5))
        consumer.seek(first, 5)
        calls = {
            "poll": lambda: consumer.poll(60.0),
            "getmany": lambda: consumer.getmany(timeout_ms=60_000),
            "poll_columns": lambda: consumer.poll_columns(60.0),
            "poll_lines": lambda: consumer.poll_lines(60.0),
            "iteration": lambda: next(consumer),
        }
        with interrupted_behind_the_result(monkeypatch):
            calls[method]()
        assert consumer.position(first) == 5
        assert poll_until(consumer, 15) == list(range(5, 20))
