"""Complaints of users of other Python clients about producers, by their number in docs/testing.md: they do not apply.

Time is virtual: each deadline is exact.
"""

import asyncio
import threading
import time
from random import Random

import pytest
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.producer.producer import Producer

from kafkalite._speedups.records.batches import batches
from kafkalite.errors import BufferExhaustedError, KafkaConnectionError, KafkaError, KafkaErrorCode, KafkaTimeoutError
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.scripted_broker import ScriptedBroker
from tests.kit.scripted_frames import foreign, huge_count, huge_size, truncated, wrong_correlation_id
from tests.story.sdk.virtual import Stopwatch, virtually

TICK_S = 0.001  # the network needs a few tenths of it


@virtually(nodes=2)
async def test_complaint_05_awaited_send_and_stop_return_while_the_cluster_is_down(
    broker: ScriptedBroker, environment: Environment
) -> None:
    producer = Producer(broker.bootstrap, delivery_timeout_ms=5000, request_timeout_ms=2000, environment=environment)
    await producer.start()
    broker.cluster.create_topic("orders", 2)
    await producer.send("orders", b"before")
    for node in broker.nodes.values():
        node.stop()
    watch = Stopwatch()
    with pytest.raises(KafkaTimeoutError):
        await producer.send("orders", b"down")
    assert 5.0 <= watch.seconds <= 5.0 + TICK_S
    producer.send("orders", b"also down")
    watch = Stopwatch()
    with pytest.raises(KafkaError):
        await producer.close(1.5)
    assert watch.seconds <= 1.5 + TICK_S


@virtually(nodes=2)
async def test_complaint_05_stop_returns_while_brokers_accept_requests_and_do_not_answer(
    broker: ScriptedBroker, environment: Environment
) -> None:
    broker.cluster.create_topic("orders", 2)
    producer = Producer(broker.bootstrap, environment=environment)
    await producer.start()
    await producer.send("orders", b"before")
    for node in broker.nodes.values():
        node.freeze()
    late = producer.send("orders", b"no answer")
    watch = Stopwatch()
    with pytest.raises(KafkaError):
        await producer.close(0.7)
    assert watch.seconds <= 0.7 + 1.0 + TICK_S and late.done() and late.exception() is not None


@virtually()
async def test_complaint_05_start_returns_while_the_cluster_is_down(
    broker: ScriptedBroker, environment: Environment
) -> None:
    broker.nodes[1].stop()
    producer = Producer(broker.bootstrap, default_api_timeout_ms=3000, environment=environment)
    watch = Stopwatch()
    with pytest.raises((KafkaConnectionError, KafkaTimeoutError)):
        await producer.start()
    assert watch.seconds <= 3.0 + TICK_S
    await producer.close()


@virtually()
async def test_complaint_07_send_to_a_deleted_topic_ends_and_a_recreated_one_is_noticed(
    broker: ScriptedBroker, environment: Environment
) -> None:
    broker.cluster.create_topic("orders")
    async with Producer(
        broker.bootstrap,
        delivery_timeout_ms=4000,
        request_timeout_ms=1000,
        max_block_ms=2000,
        environment=environment,
    ) as producer:
        assert (await producer.send("orders", b"first")).offset == 0
        assert (await producer.send("orders", b"second")).offset == 1
        broker.cluster.delete_topic("orders")
        watch = Stopwatch()
        with pytest.raises(KafkaError, match="orders"):
            await producer.send("orders", b"to nothing")
        assert watch.seconds <= 4.0 + TICK_S
        broker.cluster.create_topic("orders")
        assert (await producer.send("orders", b"again")).offset == 0


@virtually()
async def test_complaint_09_full_buffer_raises_with_advice_and_drain_waits_until_half_is_free(
    broker: ScriptedBroker, environment: Environment
) -> None:
    log = broker.cluster.create_topic("orders").partitions[0]
    async with Producer(
        broker.bootstrap, buffer_memory=10_000, batch_size=1000, linger_ms=0, environment=environment
    ) as producer:
        await producer.send("orders", b"first")
        stalled = broker.on(ProduceRequest, stall=True, times=None)
        sent = []
        with pytest.raises(BufferExhaustedError, match=r"await .*drain\(\)"):
            while True:
                sent.append(producer.send("orders", b"%0500d" % len(sent)))
        await stalled.reached()
        draining = asyncio.ensure_future(producer.drain())
        await pass_time(1.0)
        assert not draining.done()
        stalled.release()
        await draining
        sent.append(producer.send("orders", b"fits again"))
        await asyncio.gather(*sent)
    assert log.values() == [b"first", *(b"%0500d" % each for each in range(len(sent) - 1)), b"fits again"]


@virtually()
async def test_complaint_10_each_awaited_message_is_delivered_within_linger(
    broker: ScriptedBroker, environment: Environment
) -> None:
    """AIOProducer needs 2 s for one message, and delivers nothing while messages are 0.4 s apart."""
    broker.cluster.create_topic("orders")
    asyncio.get_running_loop().set_debug(True)
    async with Producer(broker.bootstrap, linger_ms=5, environment=environment) as producer:
        await producer.send("orders", b"first")
        for each in range(30):
            watch = Stopwatch()
            await producer.send("orders", b"%d" % each, headers=[("trace", b"id"), ("empty", None)])
            assert watch.seconds <= 0.005 + TICK_S
            await pass_time(0.4)


@virtually()
async def test_complaint_10_linger_begins_with_the_first_record_of_a_batch(
    broker: ScriptedBroker, environment: Environment
) -> None:
    broker.cluster.create_topic("orders")
    async with Producer(broker.bootstrap, linger_ms=50, environment=environment) as producer:
        await producer.send("orders", b"first")
        watch = Stopwatch()
        first = producer.send("orders", b"0")
        while not first.done():
            await pass_time(0.01)
            producer.send("orders", b"more")
        assert watch.seconds <= 0.05 + 0.01 + TICK_S


@virtually()
async def test_complaint_11_producer_creates_no_thread_and_no_task(
    broker: ScriptedBroker, environment: Environment
) -> None:
    broker.cluster.create_topic("orders")
    threads = threading.active_count()
    async with Producer(broker.bootstrap, environment=environment) as producer:
        await asyncio.gather(*(producer.send("orders", b"%d" % each) for each in range(100)))
        open_sends = [producer.send("orders", b"open") for _ in range(100)]
        assert asyncio.all_tasks() == {asyncio.current_task()} and threading.active_count() == threads
        await asyncio.wait_for(asyncio.shield(open_sends[-1]), 1.0)


def cost_of_sends(topics: int) -> float:
    """CPU seconds of 20,000 sends over so many topics, without their delivery."""
    spent = 0.0

    @virtually()
    async def measure(broker: ScriptedBroker, environment: Environment) -> None:
        nonlocal spent
        for each in range(topics):
            broker.cluster.create_topic(f"t{each}")
        names = [f"t{each}" for each in range(topics)]
        async with Producer(broker.bootstrap, linger_ms=0, environment=environment) as producer:
            await asyncio.gather(*(producer.send(name, b"first") for name in names))
            began = time.process_time()
            for each in range(20_000):
                producer.send(names[each % topics], b"value of a record")
            spent = time.process_time() - began
            await producer.flush()

    measure()
    return spent


def test_complaint_08_cost_of_send_does_not_grow_with_the_number_of_topics() -> None:
    few, many = (min(cost_of_sends(topics) for _ in range(3)) for topics in (10, 1000))
    assert many < 6 * few, f"{many / few:.1f}"


@virtually()
async def test_complaint_15_headers_arrive_in_order_with_duplicates_and_null(
    broker: ScriptedBroker, environment: Environment
) -> None:
    log = broker.cluster.create_topic("orders").partitions[0]
    headers = [("b", b"1"), ("a", b""), ("b", b"2"), ("none", None)]
    async with Producer(broker.bootstrap, environment=environment) as producer:
        await producer.send("orders", b"value", headers=headers)
    (record,) = [record for each in log.log for batch in batches(each.data) for record in batch]
    assert list(record.headers) == headers


@pytest.mark.parametrize("frame", [wrong_correlation_id, truncated, huge_size, foreign, huge_count])
@pytest.mark.parametrize("request_class", [ProduceRequest, MetadataRequest])
def test_complaint_15_false_frames_cost_a_connection_and_no_record(frame: object, request_class: object) -> None:
    @virtually()
    async def scenario(broker: ScriptedBroker, environment: Environment) -> None:
        log = broker.cluster.create_topic("orders").partitions[0]
        async with Producer(broker.bootstrap, metadata_max_age_ms=500, environment=environment) as producer:
            await producer.send("orders", b"before")
            rule = broker.on(request_class, frame=frame)  # type: ignore[arg-type]
            sent = producer.send("orders", b"value")
            await pass_time(2.0)
            assert rule.used and (await sent).offset == 1
            await producer.send("orders", b"after")
        assert log.values() == [b"before", b"value", b"after"]

    scenario()


@pytest.mark.parametrize("code", [each for each in KafkaErrorCode if each.retriable], ids=lambda code: code.name)
def test_every_retriable_error_of_produce_is_retried(code: KafkaErrorCode) -> None:
    @virtually()
    async def scenario(broker: ScriptedBroker, environment: Environment) -> None:
        log = broker.cluster.create_topic("orders").partitions[0]
        async with Producer(broker.bootstrap, environment=environment) as producer:
            broker.on(ProduceRequest, error=code, times=3)
            first = producer.send("orders", b"first")
            assert (await first).offset == 0
            broker.on(ProduceRequest, error=code, times=2, applied=Random(code).random() < 0.5)
            sent = [producer.send("orders", b"%d" % each) for each in range(10)]
            await producer.flush()
            assert all(each.exception() is None for each in sent)
        values = log.values()
        assert values == [b"first", *(b"%d" % each for each in range(10))]

    scenario()
