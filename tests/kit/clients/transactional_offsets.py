"""Consume-transform-produce with foreign clients, in a process of their own, as they may hang:
`python -m tests.kit.clients.transactional_offsets CLIENT ADDRESS TOPIC`.

Each writes four records, reads them with a group, commits the offset 2 in a transaction, and aborts a transaction with
the offset 4. It prints the committed offset of the group.
"""

from __future__ import annotations

import asyncio
import sys

import aiokafka
import confluent_kafka as ck
import kafka
from kafka.structs import OffsetAndMetadata

ID = "copier"
GROUP = "readers"
COUNT = 4
TRANSACTIONS = ((2, True), (COUNT, False))
COMMITTED = 2
WAIT_S = 30.0
QUIET = 2


def confluent(address: str, topic: str) -> int:
    """librdkafka, whose producer sends the generation of the member (KIP-447)."""
    producer = ck.Producer({"bootstrap.servers": address, "transactional.id": ID, "log_level": QUIET})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number in range(COUNT):
        producer.produce(topic, f"record-{number}", partition=0)
    producer.commit_transaction(WAIT_S)
    settings = {"bootstrap.servers": address, "group.id": GROUP, "auto.offset.reset": "earliest", "log_level": QUIET}
    consumer = ck.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    found = consumer.consume(COUNT, WAIT_S)
    assert len(found) == COUNT
    for offset, commit in TRANSACTIONS:
        producer.begin_transaction()
        producer.produce(topic, f"copy-{offset}", partition=1)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([ck.TopicPartition(topic, 0, offset)], metadata, WAIT_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)
    (committed,) = consumer.committed([ck.TopicPartition(topic, 0)], WAIT_S)
    consumer.close()
    return int(committed.offset)


def kafka_python(address: str, topic: str) -> int:
    """kafka-python, which names the group alone."""
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=ID)
    producer.init_transactions()
    for offset, commit in TRANSACTIONS:
        producer.begin_transaction()
        producer.send(topic, f"copy-{offset}".encode(), partition=1)
        producer.send_offsets_to_transaction({kafka.TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}, GROUP)
        (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id=GROUP)
    committed = consumer.committed(kafka.TopicPartition(topic, 0))
    consumer.close()
    return int(committed)


def aio(address: str, topic: str) -> int:
    """aiokafka, which names the group alone."""
    return asyncio.run(_aio(address, topic))


async def _aio(address: str, topic: str) -> int:
    partition = aiokafka.TopicPartition(topic, 0)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=ID) as producer:
        for offset, commit in TRANSACTIONS:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, f"copy-{offset}".encode(), partition=1)
            await producer.send_offsets_to_transaction({partition: offset}, GROUP)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=address, group_id=GROUP) as consumer:
        consumer.assign([partition])
        return int(await consumer.committed(partition))


CLIENTS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}


def main(client: str, address: str, topic: str) -> None:
    print(CLIENTS[client](address, topic))


if __name__ == "__main__":
    main(*sys.argv[1:])
