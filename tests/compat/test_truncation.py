"""The end of a log is lost in a crash (HARDENING A3): no consumer skips the records that come in its place (KIP-320).

Position 100, the log truncated to 50, 120 new records: the consumer says that the log was truncated, or reads on where
it was, but never goes on with record 100 of the new history.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kit.brokers import Broker, broker_under_test
from tests.kit.clients.confluent import create_topics
from tests.kit.clients.truncation import Librdkafka, Process, Watcher, franz, java
from tests.kit.isolated import dropped_later, killable

READ, KEPT, NEW = 100, 50, 120
SEGMENT = "00000000000000000000.log"

Start = Callable[[Broker], Watcher]
CLIENTS: dict[str, Start] = {
    "librdkafka-error": lambda broker: Librdkafka(broker.address, "error"),
    "librdkafka-earliest": lambda broker: Librdkafka(broker.address, "earliest"),
    "java-none": lambda broker: java(broker.address, "none"),
    "java-earliest": lambda broker: java(broker.address, "earliest"),
    "franz-go": lambda broker: Process([franz(), broker.address]),
}


@killable
def produce(address: str, name: str, count: int) -> None:
    """Records of the same size, each in a batch of its own."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "batch.num.messages": 1, "linger.ms": 0})
    dropped_later(producer)
    for number in range(count):
        producer.produce("t", f"{name}{number:03d}".encode(), partition=0)
    assert producer.flush(60) == 0


def lose_the_end(broker: Broker) -> None:
    """Truncate the log behind `KEPT` records, as a power cut may."""
    log = broker.log_dir("t") / "t-0" / SEGMENT
    size = log.stat().st_size
    assert size % READ == 0
    os.truncate(log, size // READ * KEPT)


@pytest.mark.parametrize("client", CLIENTS)
def test_consumer_detects_a_truncated_log(client: str, tmp_path: Path) -> None:
    if client == "franz-go" and shutil.which("go") is None:
        pytest.skip("no Go")
    with broker_under_test(tmp_path) as broker:
        create_topics(broker.address, "t")
        produce(broker.address, "old", READ)
        with CLIENTS[client](broker) as watcher:
            assert [watcher.next() for _ in range(READ)] == [("read", at, f"old{at:03d}") for at in range(READ)]
            broker.kill()
            lose_the_end(broker)
            broker.start()
            produce(broker.address, "new", NEW)
            said = watcher.next()
            if said[0] == "truncated":
                assert said[1] in (KEPT, -1), "librdkafka does not say where"
                if client == "librdkafka-error":
                    return
                said = watcher.next()
            assert said[1] <= KEPT, f"records were skipped: {said}"
            values = {said[2], *(watcher.next()[2] for _ in range(KEPT + NEW - 1 - said[1]))}
            assert {f"new{number:03d}" for number in range(NEW)} <= values
