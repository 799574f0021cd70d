"""A member does not wait a heartbeat interval for an assignment that the broker computes outside its heartbeat."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.brokers import Broker, broker_under_test
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.model import Deadline
from tests.kit.isolated import closed_later, dropped_later, killable

TOPICS = 2_000
INTERVAL_MS = 600_000
DEADLINE_S = 60.0  # less than one interval
SETTINGS = {
    "group.consumer.max.heartbeat.interval.ms": str(INTERVAL_MS),
    "group.consumer.heartbeat.interval.ms": str(INTERVAL_MS),
    "group.consumer.max.session.timeout.ms": str(3 * INTERVAL_MS),
    "group.consumer.session.timeout.ms": str(3 * INTERVAL_MS),
}
HEARTBEATS_MAX = 6  # join, short intervals until the target is there, confirmation of the assignment
TOPIC_PREFIX = "many-"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose members send heartbeats every ten minutes; Apache Kafka has no shorter intervals between."""
    with broker_under_test(tmp_path, SETTINGS, "kafkalite") as running:
        yield running


@killable
def create(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    dropped_later(admin)
    created = admin.create_topics([NewTopic(f"{TOPIC_PREFIX}{number}", 1) for number in range(TOPICS)])
    for future in created.values():
        future.result()


class Heartbeats(logging.Handler):
    """Counts the heartbeats that librdkafka logs; its statistics of thousands of topics would delay it for minutes."""

    sent = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.sent += "Sent ConsumerGroupHeartbeatRequest" in record.getMessage()


@killable
def join(address: str, topics: list[str], count: int) -> tuple[int, int]:
    """Join until `count` partitions are assigned; returns their number and that of the heartbeats of this member."""
    heartbeats, logger = Heartbeats(), logging.Logger("member", logging.DEBUG)
    logger.addHandler(heartbeats)
    settings = {
        "bootstrap.servers": address,
        "group.id": f"reader-of-{len(topics)}",
        "group.protocol": "consumer",
        "debug": "protocol",
        "logger": logger,
    }
    consumer = ck.Consumer(settings)
    closed_later(consumer.close)
    consumer.subscribe(topics)
    deadline = Deadline(f"{count} partitions", DEADLINE_S)
    while len(consumer.assignment()) < count:
        consumer.poll(deadline.left(0.1))
    consumer.poll(0)
    return len(consumer.assignment()), heartbeats.sent


def test_member_of_many_topics_is_assigned_by_its_first_heartbeats(broker: Broker) -> None:
    create(broker.address)
    names = [f"{TOPIC_PREFIX}{number}" for number in range(TOPICS)]
    assigned, heartbeats = join(broker.address, names, TOPICS)
    assert assigned == TOPICS and 2 <= heartbeats <= HEARTBEATS_MAX


def test_member_with_a_pattern_is_assigned_by_its_first_heartbeats(broker: Broker) -> None:
    create(broker.address)
    assigned, heartbeats = join(broker.address, [f"^{TOPIC_PREFIX}.*"], TOPICS)
    assert assigned == TOPICS and 2 <= heartbeats <= HEARTBEATS_MAX
