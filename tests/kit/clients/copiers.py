"""Foreign clients that copy a topic in transactions, with the offsets of their group; a part of them is aborted.

Each function copies `count` records from one topic to another and returns. After an abort it continues from the
committed offsets.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from random import Random

import aiokafka
import kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kit import jvm
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.model import DEADLINE_S, Deadline
from tests.kit.clients.truncation import franz
from tests.kit.isolated import closed_later, dropped_later, killable

ABORTED_SHARE = 0.3
RECORDS = 20  # of a transaction
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TIMEOUT_MS = 10_000
SEED = 1
Copy = Callable[[str, str, str, str, int], None]


@killable
def by_librdkafka(address: str, source: str, target: str, group: str, count: int) -> None:
    """confluent-kafka."""
    random = Random(SEED)
    settings = {"bootstrap.servers": address, "log_level": QUIET}
    producer = Producer({**settings, "transactional.id": group, "transaction.timeout.ms": TIMEOUT_MS})
    dropped_later(producer)
    reading = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, **reading, "auto.offset.reset": "earliest"})
    closed_later(consumer.close)
    consumer.subscribe([source])
    producer.init_transactions(DEADLINE_S)
    copied, deadline = 0, Deadline("copies of librdkafka")
    while copied < count:
        messages = [each for each in consumer.consume(RECORDS, deadline.left(0.5)) if not each.error()]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), message.key())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
        if random.random() < ABORTED_SHARE:
            producer.abort_transaction(DEADLINE_S)
            for each in consumer.committed(consumer.assignment(), DEADLINE_S):
                consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
        else:
            producer.commit_transaction(DEADLINE_S)
            copied += len(messages)


@killable
def by_kafka_python(address: str, source: str, target: str, group: str, count: int) -> None:
    """kafka-python."""
    random = Random(SEED)
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=group, transaction_timeout_ms=TIMEOUT_MS)
    consumer = kafka.KafkaConsumer(
        source,
        bootstrap_servers=address,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=RECORDS,
    )
    closed_later(consumer.close)
    closed_later(producer.close)
    producer.init_transactions()
    copied, deadline = 0, Deadline("copies of kafka-python")
    while copied < count:
        polled = consumer.poll(timeout_ms=round(deadline.left(0.5) * 1000))
        messages = [message for part in polled.values() for message in part]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.send(target, key=message.key, value=message.value)
        offsets = {each: kafka.OffsetAndMetadata(consumer.position(each), "", -1) for each in polled}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if random.random() < ABORTED_SHARE:
            producer.abort_transaction()
            for each in consumer.assignment():
                consumer.seek(each, consumer.committed(each) or 0)
        else:
            producer.commit_transaction()
            copied += len(messages)


@killable
def by_aiokafka(address: str, source: str, target: str, group: str, count: int) -> None:
    """aiokafka."""
    asyncio.run(_aiokafka(address, source, target, group, count))


async def _aiokafka(address: str, source: str, target: str, group: str, count: int) -> None:
    random = Random(SEED)
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=address, transactional_id=group, transaction_timeout_ms=TIMEOUT_MS
    )
    consumer = aiokafka.AIOKafkaConsumer(
        source,
        bootstrap_servers=address,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await producer.start()
    await consumer.start()
    try:
        copied, deadline = 0, Deadline("copies of aiokafka")
        while copied < count:
            timeout_ms = round(deadline.left(0.5) * 1000)
            polled = await consumer.getmany(timeout_ms=timeout_ms, max_records=RECORDS)
            messages = [message for part in polled.values() for message in part]
            if not messages:
                continue
            await producer.begin_transaction()
            for message in messages:
                await producer.send(target, key=message.key, value=message.value)
            offsets = {each: await consumer.position(each) for each in polled}
            await producer.send_offsets_to_transaction(offsets, group)
            if random.random() < ABORTED_SHARE:
                await producer.abort_transaction()
                for each in consumer.assignment():
                    consumer.seek(each, await consumer.committed(each) or 0)
            else:
                await producer.commit_transaction()
                copied += len(messages)
    finally:
        await consumer.stop()
        await producer.stop()


def by_franz_go(address: str, source: str, target: str, group: str, count: int) -> None:
    """franz-go, which also aborts where its group rebalances."""
    command = [franz(), "copy", address, source, target, group, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr[-4000:]


def by_java(version: str) -> Copy:
    """Kafka's TransactionalMessageCopier of a version; it copies partition 0."""

    def copy(address: str, source: str, target: str, group: str, count: int) -> None:
        copier = ["--input-topic", source, "--input-partition", "0", "--output-topic", target, "--broker-list", address]
        ids = ["--consumer-group", group, "--transactional-id", group, "--transaction-timeout", str(TIMEOUT_MS)]
        amounts = ["--max-messages", str(count), "--transaction-size", str(RECORDS)]
        how = ["--enable-random-aborts", "--use-group-metadata"]
        args = [*copier, *ids, *amounts, *how]
        done = jvm.run_tool(version, COPIER, args, timeout=DEADLINE_S)
        assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"

    return copy
