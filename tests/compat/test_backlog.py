"""Readers that ask for as many bytes at least as at most read a backlog without waiting for more records."""

from __future__ import annotations

import confluent_kafka as ck

from tests.compat.conftest import MakeTopic
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.model import Deadline
from tests.kit.isolated import closed_later, dropped_later, killable

BOUND = 1 << 20
RECORDS = 4_000
DEADLINE_S = 50.0  # less than one wait
WAIT_MS = 59_000


@killable
def write(address: str, topic: str) -> None:
    """Write the records, numbered from 0 on."""
    producer = ck.Producer({"bootstrap.servers": address, "batch.size": 100_000, "log_level": QUIET})
    dropped_later(producer)
    for number in range(RECORDS):
        producer.produce(topic, value=number.to_bytes(4, "big") + bytes(2000))
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


@killable
def read(address: str, topic: str, count: int) -> list[int]:
    """The numbers of at least `count` records."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "never-joined",
        "fetch.min.bytes": BOUND,
        "fetch.message.max.bytes": BOUND,
        "fetch.wait.max.ms": WAIT_MS,
        "log_level": QUIET,
    }
    deadline = Deadline(f"{count} records of a backlog", DEADLINE_S)
    consumer = ck.Consumer(settings)
    closed_later(consumer.close)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    values: list[int] = []
    while len(values) < count:
        for message in consumer.consume(1000, deadline.left(1.0)):
            assert message.error() is None, message.error()
            values.append(int.from_bytes(message.value()[:4], "big"))
    return values


def test_librdkafka_with_min_bytes_at_the_partition_bound_reads_a_backlog(address: str, new_topic: MakeTopic) -> None:
    topic = new_topic()
    write(address, topic)
    values = read(address, topic, RECORDS // 2)  # the last fetch may wait: it gets less than it asks for
    assert values == list(range(len(values)))
