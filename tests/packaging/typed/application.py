"""A user's application with every public call of the SDK; mypy checks it as strictly as it can. It is never run."""

import asyncio
from collections.abc import Collection, Mapping
from typing import assert_type

from kafkalite_sdk import (
    Consumer,
    ConsumerHealth,
    Environment,
    FutureRecordMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Producer,
    ProducerHooks,
    ProducerRecord,
    RebalanceListener,
    Record,
    RecordMetadata,
    TopicPartition,
    errors,
)

Headers = tuple[tuple[str, bytes | None], ...]
PARTITION = TopicPartition("orders", 0)


class Order:
    """What the application sends and receives."""

    def __init__(self, number: int) -> None:
        self.number = number


class OrderFormat:
    """A serializer and a deserializer that know the topic and the headers."""

    def serialize(self, topic: str, headers: list[tuple[str | bytes, bytes | None]], data: Order, /) -> bytes:
        headers.append(("format", b"decimal"))
        return f"{topic}:{data.number}".encode()

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> Order:
        return Order(int(data.removeprefix(topic.encode())) if headers else 0)


class Hooks(ProducerHooks):
    def request_sent(self, node: int, batches: int, size: int) -> None:
        print(node, batches, size)


class Listener(RebalanceListener):
    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        print([each.topic for each in partitions])


async def produce() -> None:
    async with Producer("localhost:9092", acks="all", linger_ms=5, hooks=Hooks()) as producer:
        future = producer.send("orders", b"value", key=b"key", partition=0, timestamp_ms=1, headers=[("a", b"b")])
        assert_type(future, FutureRecordMetadata)
        metadata = await future
        assert_type(metadata, RecordMetadata)
        assert_type((metadata.topic, metadata.partition, metadata.offset), tuple[str, int, int])
        assert_type(await asyncio.gather(*[producer.send("orders")]), list[RecordMetadata])
        await producer.drain()
        await producer.flush(timeout=1.0)
        print(producer.metrics().records_acknowledged)
    orders = Producer(["a:9092", "b:9092"], key_serializer=str.encode, value_serializer=OrderFormat())
    await orders.start()
    orders.send("orders", Order(1), key="customer")
    outcomes = await orders.send_many([ProducerRecord("orders", Order(2), "customer")])
    assert_type(outcomes, list[RecordMetadata | Exception])
    await orders.close(timeout=5.0)


async def consume() -> None:
    async with Consumer("localhost:9092", group="billing", environment=Environment()) as consumer:
        assert_type(consumer, Consumer[bytes, bytes])
        consumer.subscribe("orders")
        consumer.subscribe(["orders", "returns"], listener=Listener())
        consumer.subscribe(pattern="orders-.*", exclude=".*-old")
        consumer.add_topic("orders")
        consumer.add_topic("orders", 3)
        records = await consumer.poll(timeout=1.0, max_records=100)
        assert_type(records, list[Record[bytes, bytes]])
        for record in records:
            assert_type(record.value, bytes | None)
            assert_type(record.headers, Headers)
            assert_type((record.topic, record.partition, record.offset), tuple[str, int, int])
        async for record in consumer:
            assert_type(record, Record[bytes, bytes])
            break
        await commits(consumer)
        await positions(consumer)
        await consumer.unsubscribe(timeout=1.0)


async def consume_objects() -> None:
    consumer = Consumer(
        ["a:9092", "b:9092"],
        group="billing",
        group_protocol="classic",
        auto_offset_reset="by_duration:PT24H",
        partition_assignment_strategy=["cooperative-sticky"],
        key_deserializer=bytes.decode,
        value_deserializer=OrderFormat(),
    )
    assert_type(consumer, Consumer[str, Order])
    await consumer.start(timeout=10.0)
    for record in await consumer.poll():
        assert_type(record, Record[str, Order])
        assert_type(record.key, str | None)
        if record.value is not None:
            assert_type(record.value.number, int)
    await consumer.close(timeout=5.0, commit=False)


async def commits(consumer: Consumer) -> None:
    await consumer.commit()
    await consumer.commit("orders")
    await consumer.commit(PARTITION)
    await consumer.commit({PARTITION: 7}, timeout=1.0)
    await consumer.commit({PARTITION: OffsetAndMetadata(7, "note")})

    def done(error: errors.KafkaError | None) -> None:
        print(error is not None and error.retriable)

    consumer.commit_nowait()
    consumer.commit_nowait(PARTITION, done)
    assert_type(await consumer.committed(), dict[TopicPartition, OffsetAndMetadata | None])
    assert_type(await consumer.rewind({PARTITION: 0}), dict[TopicPartition, int])
    assert_type(await consumer.rewind(timestamps_ms={PARTITION: -2}), dict[TopicPartition, int])


async def positions(consumer: Consumer) -> None:
    assert_type(consumer.assignment(), frozenset[TopicPartition])
    consumer.assign([PARTITION])
    consumer.seek(PARTITION, 7)
    consumer.seek(PARTITION, OffsetAndMetadata(7, leader_epoch=3))
    consumer.seek_to_beginning(PARTITION)
    consumer.seek_to_end()
    consumer.seek_to_time(1_700_000_000_000, PARTITION)
    assert_type(await consumer.position(PARTITION), int)
    assert_type(await consumer.beginning_offsets(), dict[TopicPartition, int])
    assert_type(await consumer.end_offsets([PARTITION]), dict[TopicPartition, int])
    found = await consumer.offsets_for_times({PARTITION: 1_700_000_000_000})
    assert_type(found, dict[TopicPartition, OffsetAndTimestamp | None])
    assert_type(consumer.lag(), dict[TopicPartition, int | None])
    consumer.pause(PARTITION)
    assert_type(consumer.paused(), frozenset[TopicPartition])
    consumer.resume()
    health = consumer.health()
    assert_type(health, ConsumerHealth)
    assert_type(health.lag, Mapping[TopicPartition, int | None])
