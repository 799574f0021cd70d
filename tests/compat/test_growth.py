"""A topic grows under clients that run: they learn of the new partition by themselves and use it."""

from __future__ import annotations

import asyncio
from contextlib import closing

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.kit.brokers import wait_until
from tests.kit.clients import Confluent, Record
from tests.kit.clients.admin import ConfluentAdmin
from tests.kit.clients.confluent import Outgoing, PartitionReader, RecordProducer
from tests.kit.clients.model import DEADLINE_S, Deadline
from tests.kit.clients.python import KafkaConsumer, KafkaProducer
from tests.kit.clients.python import TopicPartition as PythonTopicPartition
from tests.kit.isolated import Isolated

REFRESH_MS = 200


def grow(address: str, topic: str) -> None:
    with ConfluentAdmin(address) as admin:
        admin.grow(topic, 3)


def test_added_partitions_are_discovered_by_librdkafka(address: str, topic: str) -> None:
    settings = {"bootstrap.servers": address, "topic.metadata.refresh.interval.ms": REFRESH_MS}
    with Isolated(RecordProducer, settings) as producer, Isolated(PartitionReader, settings, {(topic, 0): 0}) as reader:
        producer.send(topic, [Outgoing(0, b"before", partition=0)])
        assert producer.flush(DEADLINE_S)[0] == 0
        assert read_one(reader) == b"before"

        grow(address, topic)
        wait_until(lambda: producer.partitions(topic) == 3, "three partitions")
        producer.send(topic, [Outgoing(1, b"after", partition=2)])
        assert producer.flush(DEADLINE_S)[0] == 0
        reader.add(topic, 2, 0)
        assert read_one(reader) == b"after"


def read_one(reader: Isolated) -> bytes | None:
    """The value of the next record."""
    (record,), errors = reader.consume(1, DEADLINE_S)
    assert errors == []
    value: bytes | None = record.value
    return value


async def test_added_partitions_are_discovered_by_aiokafka(address: str, topic: str) -> None:
    settings = {"bootstrap_servers": address, "metadata_max_age_ms": REFRESH_MS}
    consumer = AIOKafkaConsumer(**settings, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False)
    async with asyncio.timeout(DEADLINE_S), AIOKafkaProducer(**settings) as producer, consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await producer.send_and_wait(topic, b"before", partition=0)
        assert (await consumer.getone()).value == b"before"

        await asyncio.to_thread(grow, address, topic)
        while await producer.partitions_for(topic) != {0, 1, 2}:
            await producer.client.force_metadata_update()
        await producer.send_and_wait(topic, b"after", partition=2)
        consumer.assign([TopicPartition(topic, 2)])
        message = await consumer.getone()
        assert (message.value, message.partition) == (b"after", 2)


def test_added_partitions_are_discovered_by_kafka_python(address: str, topic: str) -> None:
    settings = {"bootstrap_servers": address, "metadata_max_age_ms": REFRESH_MS}
    consumer = KafkaConsumer(**settings, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False)
    with closing(KafkaProducer(**settings)) as producer, closing(consumer):
        consumer.assign([PythonTopicPartition(topic, 0)])
        producer.send(topic, b"before", partition=0).get(DEADLINE_S)
        assert one(consumer) == b"before"

        grow(address, topic)
        wait_until(lambda: producer.partitions_for(topic) == {0, 1, 2}, "three partitions")
        producer.send(topic, b"after", partition=2).get(DEADLINE_S)
        consumer.assign([PythonTopicPartition(topic, 2)])
        assert one(consumer) == b"after"


def one(consumer: KafkaConsumer) -> bytes:
    """The value of the next record."""
    deadline = Deadline("one record")
    while True:
        for messages in consumer.poll(int(deadline.left(1.0) * 1000), max_records=1).values():
            return messages[0].value


def test_keys_spread_over_the_new_partitions(address: str, topic: str) -> None:
    """A producer that starts after the growth uses all partitions."""
    grow(address, topic)
    with ConfluentAdmin(address) as admin:
        wait_until(lambda: len(admin.partitions(topic)) == 3, "three partitions")
    Confluent().write(address, topic, [Record(b"x", str(n).encode(), partition=-1) for n in range(100)])
    ends = [Confluent().bounds(address, topic, partition)[1] for partition in range(3)]
    assert sum(ends) == 100
    assert min(ends) > 0
