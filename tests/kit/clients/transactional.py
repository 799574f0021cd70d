"""A transactional producer in a process of its own, as it may hang: `python -m ... CLIENT ADDRESS`.

It prints what `init_transactions` raised, or `started`.
"""

import asyncio
import sys

import aiokafka
import kafka
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError

ID = "orders-writer"


def confluent(address: str) -> None:
    """librdkafka, without a timeout, as its users call it."""
    Producer({"bootstrap.servers": address, "transactional.id": ID, "log_level": 2}).init_transactions()


def kafka_python(address: str) -> None:
    """kafka-python; its timeout is far behind the deadline of the test."""
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=ID, max_block_ms=600_000)
    try:
        producer.init_transactions()
    finally:
        producer.close(0)


def aio(address: str) -> None:
    """aiokafka, whose `start` initialises transactions."""

    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=ID)
        try:
            await producer.start()
        finally:
            await producer.stop()

    asyncio.run(start())


CLIENTS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}
RAISED = (KafkaException, KafkaError, aiokafka.errors.KafkaError)


def main(client: str, address: str) -> None:
    try:
        CLIENTS[client](address)
    except RAISED as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("started")


if __name__ == "__main__":
    main(*sys.argv[1:])
