"""Complaints of users of other Python clients about consumers, by their number in docs/testing.md: they do not apply.

Time is virtual: each deadline is exact.
"""

import asyncio
import gc
import threading
from collections.abc import Collection
from random import Random
from typing import Any

import pytest
from kafkalite_sdk.client.environment import Environment
from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.consumer.listeners import RebalanceListener

from kafkalite.errors import CorruptRecordError, KafkaError, KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.testing.virtual_loop import VirtualLoop, pass_time
from tests.kit.scripted_broker import ScriptedBroker
from tests.kit.scripted_frames import foreign, huge_count, huge_size, negative_size, truncated, wrong_correlation_id
from tests.kit.server import batch
from tests.story.sdk.virtual import Stopwatch, virtually

TICK_S = 0.01
ORDERS = TopicPartition("orders", 0)


def opened(broker: ScriptedBroker, environment: Environment, **options: Any) -> Consumer[Any, Any]:
    """A consumer that begins with the first record, alone or in a classic group."""
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "default_api_timeout_ms": 5000, **options}
    if "group" in options:
        settings.setdefault("group_protocol", "classic")
    return Consumer(broker.bootstrap, environment=environment, **settings)


async def values_of(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    """The values of the next records, at least so many."""
    found: list[Any] = []
    async with asyncio.timeout(60.0):
        while len(found) < count:
            found += [each.value for each in await consumer.poll(1.0)]
    return found


def fill(broker: ScriptedBroker, count: int, partitions: int = 1) -> None:
    topic = broker.cluster.create_topic("orders", partitions)
    for partition in topic.partitions:
        for each in range(count):
            partition.append(batch(b"%d" % each))


@virtually()
async def test_complaint_01_cooperative_member_reads_on_while_another_one_joins(
    broker: ScriptedBroker, environment: Environment
) -> None:
    fill(broker, 1, 2)
    options = {"group": "g", "partition_assignment_strategy": ["cooperative-sticky"], "heartbeat_interval_ms": 100}
    revoked: list[Collection[TopicPartition]] = []

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            revoked.append(partitions)

    async with opened(broker, environment, **options) as one, opened(broker, environment, **options) as two:
        one.subscribe("orders", listener=Listener())
        assert len(await values_of(one, 2)) == 2
        two.subscribe("orders")
        joining = asyncio.ensure_future(two.poll(30.0))
        while not two.assignment():
            await one.poll(0.1)
            assert one.assignment(), "the member has no partition during the rebalance"
        joining.cancel()
        assert [len(each) for each in revoked] == [1] and len(one.assignment()) == 1


@virtually()
async def test_complaint_02_listener_and_poll_loop_may_share_a_lock(
    broker: ScriptedBroker, environment: Environment
) -> None:
    """The loop holds the lock while it handles records, the listener takes it for its own work."""
    fill(broker, 3)
    lock, assigned = asyncio.Lock(), asyncio.Event()

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            async with lock:
                assigned.set()

    async with opened(broker, environment, group="g") as consumer:
        consumer.subscribe("orders", listener=Listener())
        handled = 0
        while handled < 3:
            records = await consumer.poll(1.0)
            async with lock:
                handled += len(records)
                await consumer.commit()
        assert assigned.is_set()


@virtually(nodes=2)
async def test_complaint_04_consumer_continues_after_brokers_restart_and_health_says_what_it_waits_for(
    broker: ScriptedBroker, environment: Environment
) -> None:
    fill(broker, 1)
    async with opened(broker, environment, group="g", heartbeat_interval_ms=200) as consumer:
        consumer.subscribe("orders")
        assert await values_of(consumer, 1) == [b"0"]
        assert await consumer.poll(0.5) == []
        healthy = consumer.health()
        assert healthy.assignment == {ORDERS} and healthy.last_heartbeat_s is not None
        for node in broker.nodes.values():
            node.stop()
        assert await consumer.poll(3.0) == []
        ill = consumer.health()
        assert not any(each.connected for each in ill.brokers.values())
        assert ill.last_heartbeat_s is not None and ill.last_heartbeat_s > 2.0
        for node in broker.nodes.values():
            await node.start()
        broker.cluster.topics["orders"].partitions[0].append(batch(b"after"))
        assert await values_of(consumer, 1) == [b"after"]


@pytest.mark.parametrize("frozen", [False, True])
def test_complaint_05_stop_returns_while_the_cluster_is_down(frozen: bool) -> None:
    @virtually(nodes=2)
    async def scenario(broker: ScriptedBroker, environment: Environment) -> None:
        fill(broker, 1)
        consumer = opened(broker, environment, group="g")
        await consumer.start()
        consumer.subscribe("orders")
        await values_of(consumer, 1)
        for node in broker.nodes.values():
            node.freeze() if frozen else node.stop()
        watch = Stopwatch()
        await consumer.close(2.0)
        assert watch.seconds <= 2.0 + TICK_S

    scenario()


@virtually()
async def test_complaint_06_cancelled_poll_loses_no_record_and_the_next_one_works(
    broker: ScriptedBroker, environment: Environment
) -> None:
    fill(broker, 1)
    async with opened(broker, environment) as consumer:
        consumer.assign([ORDERS])
        assert await values_of(consumer, 1) == [b"0"]
        for each in range(20):
            polling = asyncio.ensure_future(consumer.poll(30.0))
            await pass_time(Random(each).uniform(0.0, 0.002))
            broker.cluster.topics["orders"].partitions[0].append(batch(b"%d" % each))
            await pass_time(Random(each + 100).choice((0.0, 0.0001, 0.0003)))
            if polling.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await polling
                assert await values_of(consumer, 1) == [b"%d" % each]
            else:
                assert [record.value for record in await polling] == [b"%d" % each]


@virtually()
async def test_complaint_06_pause_and_resume_in_any_order_do_not_stop_poll(
    broker: ScriptedBroker, environment: Environment
) -> None:
    fill(broker, 1)
    async with opened(broker, environment) as consumer:
        consumer.assign([ORDERS])
        assert await values_of(consumer, 1) == [b"0"]
        for each in range(10):
            consumer.pause(ORDERS)
            broker.cluster.topics["orders"].partitions[0].append(batch(b"%d" % each))
            assert await consumer.poll(0.1) == []
            consumer.resume(ORDERS)
            consumer.resume(ORDERS)
            assert await values_of(consumer, 1) == [b"%d" % each]


@virtually()
async def test_complaint_07_commit_of_a_deleted_topic_ends_with_an_error(
    broker: ScriptedBroker, environment: Environment
) -> None:
    fill(broker, 1)
    async with opened(broker, environment, group="g", enable_auto_commit=False) as consumer:
        consumer.subscribe("orders")
        await values_of(consumer, 1)
        broker.cluster.delete_topic("orders")
        watch = Stopwatch()
        with pytest.raises(KafkaError, match="orders"):
            await consumer.commit(timeout=2.0)
        assert watch.seconds <= 2.0 + TICK_S


@virtually()
async def test_complaint_07_recreated_topic_is_read_from_its_beginning(
    broker: ScriptedBroker, environment: Environment
) -> None:
    fill(broker, 3)
    async with opened(broker, environment, metadata_max_age_ms=500) as consumer:
        consumer.assign([ORDERS])
        assert len(await values_of(consumer, 3)) == 3
        broker.cluster.delete_topic("orders")
        fill(broker, 1)
        assert await values_of(consumer, 1) == [b"0"]


@virtually()
async def test_complaint_11_long_handler_keeps_its_partitions_without_threads_and_tasks(
    broker: ScriptedBroker, environment: Environment
) -> None:
    fill(broker, 1)
    threads = threading.active_count()
    async with opened(broker, environment, group="g", session_timeout_ms=6000, heartbeat_interval_ms=500) as consumer:
        consumer.subscribe("orders")
        await values_of(consumer, 1)
        joins = len(broker.requests(JoinGroupRequest))
        assert asyncio.all_tasks() == {asyncio.current_task()} and threading.active_count() == threads
        await pass_time(18.0)
        await consumer.commit()
        await consumer.poll(1.0)
        assert len(broker.requests(JoinGroupRequest)) == joins and consumer.assignment() == {ORDERS}


@virtually()
async def test_complaint_12_polls_of_an_idle_topic_leave_nothing_behind(
    broker: ScriptedBroker, environment: Environment
) -> None:
    fill(broker, 0)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with opened(broker, environment) as consumer:
        consumer.assign([ORDERS])

        async def idle(polls: int) -> tuple[int, int]:
            for _ in range(polls):
                assert await consumer.poll(0.01) == []
            broker.log.clear()
            gc.collect()
            return len(gc.get_objects()), len(loop.pending_timers)

        await idle(200)
        objects, timers = await idle(200)
        more_objects, more_timers = await idle(1000)
        assert more_timers <= timers + 2 and more_objects < objects + 200


@pytest.mark.parametrize("frame", [wrong_correlation_id, huge_size, negative_size, foreign])
@pytest.mark.parametrize("request_class", [FetchRequest, ListOffsetsRequest])
def test_complaint_15_false_frames_cost_a_connection_and_no_record(frame: Any, request_class: Any) -> None:
    @virtually()
    async def scenario(broker: ScriptedBroker, environment: Environment) -> None:
        fill(broker, 2)
        rule = broker.on(request_class, frame=frame)
        async with opened(broker, environment) as consumer:
            consumer.assign([ORDERS])
            assert await values_of(consumer, 2) == [b"0", b"1"] and rule.used

    scenario()


@pytest.mark.parametrize("frame", [truncated, huge_count])
def test_complaint_15_responses_that_do_not_parse_cost_no_record(frame: Any) -> None:
    @virtually()
    async def scenario(broker: ScriptedBroker, environment: Environment) -> None:
        fill(broker, 2)
        rule = broker.on(FetchRequest, frame=frame)
        found: list[Any] = []
        async with opened(broker, environment) as consumer, asyncio.timeout(60.0):
            consumer.assign([ORDERS])
            while len(found) < 2:
                try:
                    found += [each.value for each in await consumer.poll(1.0)]
                except KafkaError as error:
                    assert "byte" in str(error)
        assert found == [b"0", b"1"] and rule.used

    scenario()


@pytest.mark.parametrize("request_class", [FetchRequest, ListOffsetsRequest], ids=lambda each: each.__name__)
@pytest.mark.parametrize("code", [each for each in KafkaErrorCode if each.retriable], ids=lambda code: code.name)
def test_every_retriable_error_of_reading_is_retried(code: KafkaErrorCode, request_class: Any) -> None:
    @virtually()
    async def scenario(broker: ScriptedBroker, environment: Environment) -> None:
        fill(broker, 3)
        rule = broker.on(request_class, error=code, times=3)
        async with opened(broker, environment) as consumer:
            consumer.assign([ORDERS])
            if code == KafkaErrorCode.CORRUPT_MESSAGE and request_class is FetchRequest:
                with pytest.raises(CorruptRecordError, match="orders-0 at offset 0"):
                    await consumer.poll(1.0)
                rule.end()
            assert await values_of(consumer, 3) == [b"0", b"1", b"2"] and rule.used

    scenario()
