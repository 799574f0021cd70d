"""Transactional producers of foreign clients in a process of their own, as they may hang:
`python -m tests.kit.clients.transactional_clients CLIENT ADDRESS TOPIC`.

Each commits a transaction, aborts one and commits another one, with a record in partitions 0 and 1 of the topic. It
prints what `read_committed` consumers of the same client read, a value per line.
"""

from __future__ import annotations

import asyncio
import sys

import aiokafka
import confluent_kafka as ck
import kafka

ID = "orders-writer"
TRANSACTIONS = (("first", True), ("aborted", False), ("second", True))
PARTITIONS = 2
COMMITTED = sorted(f"{name}-{partition}" for name, commit in TRANSACTIONS if commit for partition in range(PARTITIONS))
READ_S = 10.0
QUIET = 2


def confluent(address: str, topic: str) -> list[bytes]:
    """librdkafka."""
    producer = ck.Producer({"bootstrap.servers": address, "transactional.id": ID, "log_level": QUIET})
    producer.init_transactions(READ_S)
    for name, commit in TRANSACTIONS:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, f"{name}-{partition}", partition=partition)
        if commit:
            producer.commit_transaction(READ_S)
        else:
            producer.flush(READ_S)
            producer.abort_transaction(READ_S)
    settings = {"bootstrap.servers": address, "group.id": "g", "isolation.level": "read_committed"}
    consumer = ck.Consumer({**settings, "log_level": QUIET})
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found = [message.value() or b"" for message in consumer.consume(len(COMMITTED), READ_S) if not message.error()]
    consumer.close()
    return found


def kafka_python(address: str, topic: str) -> list[bytes]:
    """kafka-python."""
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=ID)
    producer.init_transactions()
    for name, commit in TRANSACTIONS:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send(topic, f"{name}-{partition}".encode(), partition=partition)
        if commit:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(READ_S * 1000),
    )
    consumer.assign([kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == len(COMMITTED):
            break
    consumer.close()
    return found


def aio(address: str, topic: str) -> list[bytes]:
    """aiokafka."""
    return asyncio.run(_aio(address, topic))


async def _aio(address: str, topic: str) -> list[bytes]:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=ID) as producer:
        for name, commit in TRANSACTIONS:
            await producer.begin_transaction()
            for partition in range(PARTITIONS):
                await producer.send_and_wait(topic, f"{name}-{partition}".encode(), partition=partition)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with consumer:
        consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)])
        async with asyncio.timeout(READ_S):
            return [(await consumer.getone()).value for _ in COMMITTED]


CLIENTS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}


def main(client: str, address: str, topic: str) -> None:
    for value in sorted(CLIENTS[client](address, topic)):
        print(value.decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
