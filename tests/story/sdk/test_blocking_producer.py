"""The blocking producer: sends from any thread, waits, errors, and the end of its thread."""

import asyncio
import gc
import threading
import traceback
from typing import Any

import pytest
from kafkalite_sdk import ProducerRecord
from kafkalite_sdk.blocking import Consumer, Producer, RecordFuture
from kafkalite_sdk.interceptors import ProducerInterceptor

from kafkalite.errors import (
    ClientUseError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageTooLargeError,
    UnknownServerError,
)
from kafkalite.model import TopicPartition
from kafkalite.testing.thread import BrokerThread
from tests.kit.ports import free_port
from tests.story.sdk.blocking_rig import count_switches, new_topic


def values(address: str, topic: str, records: int, partition: int = 0) -> list[bytes | None]:
    with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        found: list[bytes | None] = []
        while len(found) < records:
            found += [each.value for each in consumer.poll(5.0)]
        return found


def test_results_have_the_position_of_their_records(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    with Producer(kafkalite_broker.address) as producer:
        assert producer.send(topic, b"first", key=b"k", headers=[("a", b"b")]).result().offset == 0
        sent = [producer.send(topic, b"%d" % number) for number in range(1000)]
        producer.flush()
        assert all(each.done() for each in sent)
        assert [each.result().offset for each in sent] == list(range(1, 1001))
        assert sent[0].exception() is None
    assert sent[-1].result(timeout=0).offset == 1000, "results are known after the close"


def test_sends_of_several_threads_keep_their_order(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    with Producer(kafkalite_broker.address, batch_size=2000, linger_ms=0) as producer:

        def send(name: str) -> None:
            for number in range(3000):
                producer.send(topic, f"{name} {number}".encode())

        threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    found = [(value or b"").split() for value in values(kafkalite_broker.address, topic, 12_000)]
    for name in (b"a", b"b", b"c", b"d"):
        assert [int(number) for sender, number in found if sender == name] == list(range(3000))


def test_sends_switch_no_threads(kafkalite_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(kafkalite_broker)
    with Producer(kafkalite_broker.address) as producer:
        producer.send(topic).result()
        switches = count_switches(monkeypatch)
        for _ in range(10_000):
            producer.send(topic, b"value")
            producer.drain()
        assert switches == []
        producer.flush()
        assert len(switches) == 1
        assert producer.metrics().records_acknowledged == 10_001


def test_client_has_one_thread_that_ends_with_it(kafkalite_broker: BrokerThread) -> None:
    before = set(threading.enumerate())
    with Producer(kafkalite_broker.address) as producer:
        assert [each.name for each in set(threading.enumerate()) - before] == ["kafkalite-producer"]
        assert repr(producer).endswith("open>")
    assert set(threading.enumerate()) == before
    assert repr(producer).endswith("closed>")


def test_rejected_records_raise_in_send(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    with Producer(kafkalite_broker.address, max_request_size=1000) as producer:
        producer.send(topic).result()
        with pytest.raises(MessageTooLargeError):
            producer.send(topic, bytes(2000))
        with pytest.raises(ValueError, match="has partitions 0 to 0, not 7"):
            producer.send(topic, partition=7)
        with pytest.raises(TypeError):
            producer.send(topic, "text")  # type: ignore[arg-type]
        assert producer.send(topic, b"fits").result().offset == 1


def failing(batch: object) -> None:
    raise UnknownServerError("planted")


def test_failure_without_reader_is_raised_by_flush_with_the_line_of_the_caller() -> None:
    producer = Producer("nowhere:9092", handler=failing)
    producer.start()
    producer.send("orders")
    with pytest.raises(UnknownServerError, match="planted") as caught:
        producer.flush()  # the line of the caller
    assert "producer.flush()  # the line of the caller" in "".join(traceback.format_exception(caught.value))
    sent = producer.send("orders")
    assert isinstance(sent.exception(), UnknownServerError)
    with pytest.raises(UnknownServerError):
        sent.result()
    producer.close()
    producer.close()


def test_full_buffer_makes_send_wait() -> None:
    released = threading.Event()

    async def until_released(batch: object) -> None:
        await asyncio.to_thread(released.wait)

    with Producer("nowhere:9092", handler=until_released, buffer_memory=2000, batch_size=1000) as producer:
        sent = [producer.send("orders", bytes(900)) for _ in range(3)]
        waiting = threading.Thread(target=lambda: sent.append(producer.send("orders", bytes(900))))
        waiting.start()
        assert len(sent) == 3
        released.set()
        waiting.join()
        assert [each.result().partition for each in sent] == [0] * 4


async def hold(batch: object) -> None:
    await asyncio.Event().wait()


def test_wait_for_space_and_for_a_record_have_their_limits() -> None:
    producer = Producer("nowhere:9092", handler=hold, buffer_memory=1000, max_block_ms=50)
    producer.start()
    sent = producer.send("orders", bytes(700))
    producer.send("orders", bytes(700))
    with pytest.raises(KafkaTimeoutError, match="no space within max_block_ms"):
        producer.send("orders", b"more")
    with pytest.raises(KafkaTimeoutError, match=r"no acknowledgement within 0\.01 s"):
        sent.result(timeout=0.01)
    with pytest.raises(KafkaTimeoutError):
        producer.flush(timeout=0.01)
    with pytest.raises(KafkaTimeoutError):
        producer.close(timeout=0.01)
    with pytest.raises(KafkaTimeoutError):
        sent.result()


def test_callbacks_may_send_and_must_not_wait(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    ended = threading.Event()
    seen: list[object] = []

    def called(sent: RecordFuture) -> None:
        seen.append(sent.result().offset)
        try:
            producer.flush()
        except ClientUseError as error:
            seen.append(str(error))
        seen.append(producer.send(topic, b"from the callback"))
        ended.set()

    with Producer(kafkalite_broker.address) as producer:
        producer.send(topic).add_done_callback(called)
        ended.wait()
        assert seen[0] == 0
        assert "a callback of this Producer has called a method that waits" in str(seen[1])
        assert isinstance(seen[2], RecordFuture) and seen[2].result().offset == 1


def test_functions_of_the_application_may_wait_for_threads_that_send() -> None:
    lock = threading.Lock()
    reported: list[object] = []
    entered, ended = threading.Event(), threading.Event()

    def report(failed: object) -> None:
        entered.set()
        with lock:
            reported.append(failed)
        ended.set()

    producer = Producer("nowhere:9092", handler=failing, on_error=report)
    producer.start()
    with lock:
        producer.send("orders")
        entered.wait()
        producer.send("orders").add_done_callback(report)
    ended.wait()
    with pytest.raises(UnknownServerError):
        producer.close()
    assert len(reported) == 2


def test_interceptors_and_serializers_run_in_the_thread_that_sends(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    threads = []

    class Source(ProducerInterceptor):
        def before_enqueue(self, record: ProducerRecord[str, str]) -> ProducerRecord[str, str]:
            threads.append(threading.current_thread())
            return record._replace(value=f"{record.value} changed")

    def encode(text: str) -> bytes:
        threads.append(threading.current_thread())
        return text.encode()

    with Producer(kafkalite_broker.address, value_serializer=encode, interceptors=[Source()]) as producer:
        producer.send(topic, "text").result()
        assert threads == [threading.current_thread()] * 2
    assert values(kafkalite_broker.address, topic, 1) == [b"text changed"]


def test_partitioner_of_the_application_chooses_and_fails_in_send(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, partitions=3)

    def choose(key: bytes | None, *_: object) -> int:
        return int(key or b"")

    with Producer(kafkalite_broker.address, partitioner=choose) as producer:
        producer.send(topic, key=b"0").result()
        assert producer.send(topic, key=b"2").result().partition == 2
        with pytest.raises(ValueError, match="invalid literal"):
            producer.send(topic, key=b"two")


def test_many_records_and_tables(kafkalite_broker: BrokerThread) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    topic = new_topic(kafkalite_broker)
    with Producer(kafkalite_broker.address, max_request_size=1000) as producer:
        outcomes = producer.send_many([ProducerRecord(topic, b"a"), ProducerRecord(topic, bytes(2000))])
        assert [type(each).__name__ for each in outcomes] == ["RecordMetadata", "MessageTooLargeError"]
        table = pyarrow.table({"value": [b"b", b"c"]})
        sent = producer.send_columns(topic, table)
        assert sent.result() == [(topic, 0, 1, 2)]
        assert sent.done()
        with pytest.raises(ValueError, match="key"):
            producer.send_columns(topic, table, require_key=True)
    assert values(kafkalite_broker.address, topic, 3) == [b"a", b"b", b"c"]


def test_table_waits_while_the_buffer_is_full() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    settings = {"buffer_memory": 1000, "max_block_ms": 50}
    producer = Producer("nowhere:9092", handler=hold, **settings)
    producer.start()
    for _ in range(2):
        producer.send("orders", bytes(700))
    with pytest.raises(KafkaTimeoutError, match="no space within max_block_ms"):
        producer.send_columns("orders", pyarrow.table({"value": [b"b"]}))
    with pytest.raises(KafkaTimeoutError):
        producer.close(timeout=0)


def test_misuse_names_the_next_step(kafkalite_broker: BrokerThread) -> None:
    producer = Producer(kafkalite_broker.address)
    for use in (producer.flush, producer.drain, lambda: producer.send("orders")):
        with pytest.raises(ClientUseError, match=r'is not started; use "with" or its start\(\)'):
            use()
    producer.start()
    with pytest.raises(ClientUseError, match="is started"):
        producer.start()
    producer.close()
    for use in (producer.flush, producer.drain, producer.start, lambda: producer.send("orders")):
        with pytest.raises(ClientUseError, match="was closed; create another one"):
            use()


def test_start_may_be_repeated_after_a_failure() -> None:
    producer = Producer(f"127.0.0.1:{free_port()}")
    before = threading.active_count()
    for _ in range(2):
        with pytest.raises(KafkaConnectionError):
            producer.start()
    assert threading.active_count() == before
    producer.close()
    with pytest.raises(ClientUseError, match="was closed"):
        producer.start()


def test_forgotten_producer_sends_its_records_and_warns(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    before = set(threading.enumerate())
    producer = Producer(kafkalite_broker.address)
    producer.start()
    (thread,) = set(threading.enumerate()) - before
    producer.send(topic, b"kept")
    with pytest.warns(ResourceWarning, match="a Producer was not closed"):
        del producer
        gc.collect()
    thread.join()
    assert values(kafkalite_broker.address, topic, 1) == [b"kept"]


async def test_client_works_where_a_loop_runs(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    with Producer(kafkalite_broker.address) as producer:
        assert producer.send(topic, b"value").result().offset == 0
    assert values(kafkalite_broker.address, topic, 1) == [b"value"]
    await asyncio.sleep(0)


def test_overridden_methods_of_a_subclass_are_called(kafkalite_broker: BrokerThread) -> None:
    topic, calls = new_topic(kafkalite_broker), []

    class Counting(Producer[bytes, bytes]):
        def send(self, *args: Any, **named: Any) -> RecordFuture:
            calls.append("send")
            return super().send(*args, **named)

        def drain(self) -> None:
            calls.append("drain")
            super().drain()

        def close(self, timeout: float | None = None) -> None:
            calls.append("close")
            super().close(timeout)

    with Counting(kafkalite_broker.address) as producer:
        producer.send(topic, b"first").result()
        producer.drain()
    assert calls == ["send", "drain", "close"]
    assert values(kafkalite_broker.address, topic, 1) == [b"first"]
