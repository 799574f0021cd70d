"""The producer of Kafka 0.8 on whole brokers in virtual time: brokers by ZooKeeper, partitions, queue, callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafkalite_sdk import Admin, Consumer, ProducerRecord
from kafkalite_sdk.admin import NewTopic
from kafkalite_sdk.interceptors import SealedBatch
from kafkalite_sdk.zk import CallbackHandler, KeyedMessage, Producer
from kafkalite_sdk.zk.producer.partitioner import default_partition

from kafkalite.errors import BufferExhaustedError, KafkaError
from kafkalite.testing.virtual_loop import pass_time
from tests.story.zk.test_bootstrap import BROKERS, TREE, World, virtually

ZOOKEEPER = "zookeeper:2181"
TOPIC, PARTITIONS = "orders", 5


async def create(world: World, partitions: int = PARTITIONS) -> None:
    async with Admin(TREE, environment=world.environment()) as admin:
        (await admin.topics.create(NewTopic(TOPIC, partitions=partitions))).check()


async def read(world: World, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Partition, key and value of so many records, in the order of the partitions."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    reader = Consumer(TREE, environment=world.environment(), group="reader", auto_offset_reset="earliest")
    async with reader as consumer:
        consumer.subscribe(TOPIC)
        async with asyncio.timeout(60.0):
            while len(found) < count:
                found += [(each.partition, each.key, each.value) for each in await consumer.poll(1.0)]
    return sorted(found)


def producer(world: World, **options: Any) -> Producer:
    options.setdefault("request_required_acks", 1)
    return Producer(ZOOKEEPER, environment=world.environment(), **options)


def test_records_of_one_call_are_acknowledged_in_the_partitions_of_their_keys(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await create(world)
        keys = [f"customer {each}" for each in range(20)]
        async with producer(world, serializer=str.encode) as sender:
            messages = [KeyedMessage(TOPIC, f"value of {key}", key) for key in keys]
            sent = await sender.send(*messages[:5], messages[5:])
            assert [each.partition for each in sent] == [default_partition(key, PARTITIONS) for key in keys]
            (one,) = await sender.send((TOPIC, "x", "key", 7))
            assert one.partition == default_partition(7, PARTITIONS), "part_key chooses the partition"
        expected = [(default_partition(key, PARTITIONS), key.encode(), f"value of {key}".encode()) for key in keys]
        assert await read(world, 21) == sorted([*expected, (one.partition, b"key", b"x")])

    virtually(tmp_path, scenario)


def test_records_without_a_key_keep_a_random_partition_for_ten_minutes(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await create(world, 50)
        async with producer(world) as sender:
            first = {(await sender.send((TOPIC, b"x")))[0].partition for _ in range(20)}
            assert len(first) == 1
            later = set()
            for _ in range(4):
                await pass_time(601.0)
                later.add((await sender.send((TOPIC, b"x")))[0].partition)
            assert len(later | first) > 1

    virtually(tmp_path, scenario)


def test_queue_is_sent_with_its_last_record_or_after_its_time(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await create(world)
        batches: list[SealedBatch] = []

        class Watch(CallbackHandler):
            def before_sending_data(self, batch: SealedBatch) -> None:
                batches.append(batch)

        options = {"producer_type": "async", "queue_buffering_max_ms": 2_000, "batch_num_messages": 10}
        async with producer(world, callback_handler=Watch(), **options) as sender:
            for each in range(9):
                assert await sender.send((TOPIC, b"%d" % each)) == []
            await pass_time(1.0)
            assert batches == []
            await sender.send((TOPIC, b"9"))
            await pass_time(0.1)
            assert [each.records_count for each in batches] == [10]
            await sender.send((TOPIC, b"10"))
            await pass_time(1.9)
            assert len(batches) == 1
            await pass_time(0.2)
            assert len(batches) == 2
        assert len(await read(world, 11)) == 11

    virtually(tmp_path, scenario)


@pytest.mark.parametrize("timeout_ms", [0, 500])
def test_full_queue_rejects_records_after_its_timeout(tmp_path: Path, timeout_ms: int) -> None:
    async def scenario(world: World) -> None:
        await create(world)
        added: list[bool] = []

        class Watch(CallbackHandler):
            def after_enqueue(self, message: KeyedMessage, added_: bool) -> None:
                added.append(added_)

        options: dict[str, Any] = {
            "producer_type": "async",
            "queue_buffering_max_messages": 3,
            "batch_num_messages": 3,
            "queue_enqueue_timeout_ms": timeout_ms,
            "callback_handler": Watch(),
        }
        async with producer(world, **options) as sender:
            await sender.send((TOPIC, b"0"))
            await sender.flush()
            for broker in world.cluster.brokers:
                world.network.stall(f"broker{broker}", 9092, seconds=3.0)
            await sender.send(*[(TOPIC, b"x")] * 3)
            began = asyncio.get_running_loop().time()
            with pytest.raises(BufferExhaustedError, match=r"3 records are not acknowledged, at most 3 may be"):
                await sender.send((TOPIC, b"x"))
            assert asyncio.get_running_loop().time() - began == pytest.approx(timeout_ms / 1000, abs=0.01)
        assert added == [True, True, True, True, False]

    virtually(tmp_path, scenario)


def test_send_waits_for_space_without_a_timeout(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await create(world)
        options = {"producer_type": "async", "queue_buffering_max_messages": 3, "batch_num_messages": 3}
        async with producer(world, **options) as sender:
            await asyncio.gather(*[sender.send((TOPIC, b"%d" % each)) for each in range(40)])
        assert len(await read(world, 40)) == 40

    virtually(tmp_path, scenario)


def test_callbacks_are_called_at_the_stages_of_a_record(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await create(world)
        events: list[str] = []

        class Callbacks(CallbackHandler):
            def before_enqueue(self, message: KeyedMessage) -> KeyedMessage:
                events.append("before enqueue")
                return message._replace(message=message.message.upper())

            def after_enqueue(self, message: KeyedMessage, added: bool) -> None:
                events.append(f"after enqueue {message.message!r} {added}")

            def before_sending_data(self, batch: SealedBatch) -> None:
                events.append(f"before sending {batch.records_count}")

            def last_batch_before_close(self) -> Iterable[ProducerRecord[Any, Any]]:
                events.append("last batch")
                return [ProducerRecord(TOPIC, b"last", partition=0)]

            def close(self) -> None:
                events.append("close")

        async with producer(world, callback_handler=Callbacks()) as sender:
            await sender.send((TOPIC, b"one", "key"))
        assert events == [
            "before enqueue",
            "after enqueue b'ONE' True",
            "before sending 1",
            "last batch",
            "before sending 1",
            "close",
        ]
        assert {value for _, _, value in await read(world, 2)} == {b"ONE", b"last"}

    virtually(tmp_path, scenario)


def test_event_handler_receives_the_batches_instead_of_the_cluster() -> None:
    async def main() -> None:
        batches: list[SealedBatch] = []
        async with Producer(broker_list="0:nowhere:1", event_handler=batches.append) as sender:
            await sender.send((TOPIC, b"one"), (TOPIC, b"two"))
        assert [each.value for batch in batches for each in batch.records()] == [b"one", b"two"]

    asyncio.run(main())


def test_failures_are_raised_or_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await create(world)
        large = b"x" * 2_000_000
        async with producer(world) as sender:
            with pytest.raises(KafkaError):
                await sender.send((TOPIC, large))
            with pytest.raises(TypeError, match="is no message"):
                await sender.send("orders")  # type: ignore[arg-type]
        failing = {"message_send_max_retries": 0, "request_timeout_ms": 1_000, "queue_buffering_max_ms": 10}
        async with producer(world, **failing) as sender:
            await sender.send((TOPIC, b"0"))
            for broker in range(1, BROKERS + 1):
                world.remove(broker)
            with pytest.raises(KafkaError) as caught:
                await sender.send((TOPIC, b"1"), (TOPIC, b"2"))
            assert caught.value.__notes__ == ["2 of 2 records of this call have failed"]
        for broker in range(1, BROKERS + 1):
            await world.replace(broker)
        async with producer(world, producer_type="async", **failing) as sender:
            await sender.send((TOPIC, b"0"))
            await sender.flush()
            for broker in range(1, BROKERS + 1):
                world.remove(broker)
            await sender.send((TOPIC, b"1"))
            await pass_time(5.0)
        assert any("a record was not sent" in each.message for each in caplog.records)
        for broker in range(1, BROKERS + 1):
            await world.replace(broker)

    with caplog.at_level(logging.ERROR, "kafkalite_sdk.zk.producer"):
        virtually(tmp_path, scenario)


def test_broker_is_added_and_removed_under_load(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.remove(3)
        await pass_time(5.0)
        random = Random(5)
        async with Admin(TREE, environment=world.environment()) as admin:
            (await admin.topics.create(NewTopic(TOPIC, partitions=4))).check()
        sent: list[bytes] = []
        options = {"producer_type": "async", "queue_buffering_max_ms": 20, "request_required_acks": -1}
        async with producer(world, message_send_max_retries=10, **options) as sender:

            async def load(records: int) -> None:
                for _ in range(records):
                    sent.append(b"%d" % len(sent))
                    await sender.send((TOPIC, sent[-1], f"key {random.randrange(100)}"))
                    await pass_time(0.01)

            await load(100)
            await world.cluster.start(3)  # a broker is added
            await load(100)
            world.remove(1)  # and another one is removed, which returns at another address
            await load(100)
            await world.replace(1)
            await load(100)
        found = await read(world, len(sent))
        assert sorted({int(value or b"") for _, _, value in found}) == list(range(len(sent)))

    virtually(tmp_path, scenario)
