"""Other clients over TLS with a certificate of their own: confluent-kafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.kit.certificates import Authority, Pem
from tests.kit.clients.confluent import QUIET
from tests.kit.isolated import closed_later, dropped_later, killable
from tests.kit.ports import free_port
from tests.kit.tls_broker import HOST, tls_broker

TOPIC, VALUES = "orders", [b"value %d" % each for each in range(20)]


@killable
def with_confluent(address: str, authority: Authority, own: Pem) -> list[bytes]:
    """Produce and consume with librdkafka."""
    common = {
        "bootstrap.servers": address,
        "log_level": QUIET,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.cert),
        "ssl.certificate.location": str(own.cert),
        "ssl.key.location": str(own.key),
    }
    producer = ck.Producer(common)
    dropped_later(producer)
    for value in VALUES:
        producer.produce(TOPIC, value)
    assert producer.flush(60) == 0
    consumer = ck.Consumer({**common, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.assign([ck.TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        found += [message.value() for message in consumer.consume(len(VALUES), 1.0)]
    closed_later(consumer.close)
    return found


def with_kafka_python(address: str, authority: Authority, own: Pem) -> list[bytes]:
    """Produce and consume with kafka-python."""
    common = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.cert),
        "ssl_certfile": str(own.cert),
        "ssl_keyfile": str(own.key),
    }
    producer = kafka.KafkaProducer(**common)
    for value in VALUES:
        producer.send(TOPIC, value, partition=0)
    producer.flush(60)
    producer.close()
    consumer = kafka.KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=60_000, **common)
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def with_aiokafka(address: str, authority: Authority, own: Pem) -> list[bytes]:
    """Produce and consume with aiokafka."""
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.load_cert_chain(own.cert, own.key)

    async def run() -> list[bytes]:
        options = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**options) as producer:
            for value in VALUES:
                await producer.send_and_wait(TOPIC, value)
        async with AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **options) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(run())


@pytest.mark.parametrize("client", [with_confluent, with_kafka_python, with_aiokafka])
async def test_clients_with_certificates(tmp_path: Path, client: Callable[[str, Authority, Pem], list[bytes]]) -> None:
    authority, ports = Authority(tmp_path / "tls"), (free_port(), free_port())
    settings = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cert),
    }
    async with tls_broker(None, authority.issue("broker"), ports, settings):
        found = await asyncio.to_thread(client, f"{HOST}:{ports[1]}", authority, authority.issue("client"))
    assert found == VALUES
