"""A compacted topic through a running broker: foreign clients read each key's newest value, and the files are Kafka's.

Both brokers are asked to look for work ten times a second; how far they came is read in `cleaner-offset-checkpoint`.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.compat.conftest import unused_name
from tests.kit.brokers import Broker, broker_under_test, wait_until
from tests.kit.clients.confluent import QUIET, create_topics
from tests.kit.clients.model import DEADLINE_S
from tests.kit.dump_log import dump
from tests.kit.isolated import closed_later, dropped_later, killable

pytestmark = pytest.mark.xdist_group("compaction")  # the last test verifies the files of the others

SETTINGS = {"log.cleaner.backoff.ms": "100"}
TOPIC = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
KEYS = 500
RECORDS = 12_000
# What the judge says of every compacted log: offsets have gaps, and it looks for the records of an emptied batch.
EXPECTED = re.compile(r"\d+ is followed by \d+|Found timestamp mismatch in .+|Index timestamp: \d+, log timestamp: -1")
Read = list[tuple[int, bytes, bytes | None]]


@dataclass
class Sent:
    """What was acknowledged: (offset, key, value) in the order of offsets."""

    records: Read = field(default_factory=list)

    def newest(self, end: int) -> dict[bytes, tuple[int, bytes | None]]:
        """Of each key below an offset."""
        return {key: (offset, value) for offset, key, value in sorted(self.records) if offset < end}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose cleaner is in a hurry."""
    with broker_under_test(tmp_path_factory.mktemp("compacting"), SETTINGS) as running:
        yield running


@killable
def send(address: str, topic: str, codec: str, seed: int) -> Sent:
    """Records with random keys, some of them tombstones, from an idempotent producer."""
    chance, sent = random.Random(seed), Sent()
    producer = ck.Producer({
        "bootstrap.servers": address, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5,
        "batch.size": 16_384, "log_level": QUIET,
    })  # fmt: skip

    dropped_later(producer)

    def landed(error: ck.KafkaError | None, message: ck.Message) -> None:
        assert error is None
        sent.records.append((message.offset(), message.key(), message.value()))

    for _ in range(RECORDS):
        value = None if chance.random() < 0.05 else chance.randbytes(300)
        producer.produce(topic, value, b"key-%d" % chance.randrange(KEYS), partition=0, on_delivery=landed)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert len(sent.records) == RECORDS
    return sent


def clean_until(broker: Broker, topic: str) -> int:
    """The first dirty offset of a partition, 0 before its first cleaning."""
    path = broker.log_dir(topic) / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), 0)


def last_segment(broker: Broker, topic: str) -> int:
    return max(int(path.stem) for path in (broker.log_dir(topic) / f"{topic}-0").glob("*.log"))


@killable
def read_confluent(address: str, topic: str, end: int) -> Read:
    consumer = ck.Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False, "log_level": QUIET}
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    closed_later(consumer.close)
    found: Read = []
    while not found or found[-1][0] < end - 1:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"nothing more after {found[-1:]}"
        assert message.error() is None
        found.append((message.offset(), message.key(), message.value()))
    return found


async def read_aiokafka(broker: Broker, topic: str, end: int) -> Read:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, isolation_level="read_committed")
    await consumer.start()
    partition, found = TopicPartition(topic, 0), Read()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        while not found or found[-1][0] < end - 1:
            record = await asyncio.wait_for(consumer.getone(), DEADLINE_S)
            found.append((record.offset, record.key, record.value))
    finally:
        await consumer.stop()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_compaction_keeps_the_last_value_of_each_key_in_kafkas_files(broker: Broker, codec: str) -> None:
    topic = unused_name(f"compacted-{codec}")
    create_topics(broker.address, topic, configs=TOPIC)
    sent = await asyncio.to_thread(send, broker.address, topic, codec, 1)
    wait_until(lambda: clean_until(broker, topic) == last_segment(broker, topic) > 0, "the cleaning of all segments")
    clean = clean_until(broker, topic)
    expected = sorted(
        [(offset, key, value) for key, (offset, value) in sent.newest(clean).items()]
        + [record for record in sent.records if record[0] >= clean]
    )
    assert await asyncio.to_thread(read_confluent, broker.address, topic, RECORDS) == expected
    assert await read_aiokafka(broker, topic, RECORDS) == expected
    again = await asyncio.to_thread(send, broker.address, topic, codec, 2)
    wait_until(lambda: clean_until(broker, topic) == last_segment(broker, topic) > clean, "a second cleaning")
    newest = {
        key: value for _, key, value in await asyncio.to_thread(read_confluent, broker.address, topic, 2 * RECORDS)
    }
    sent.records += again.records
    assert newest == {key: value for key, (_, value) in sent.newest(2 * RECORDS).items()}


def test_verification_finds_no_defect(broker: Broker) -> None:
    """After the tests above, in the same order: the broker is stopped for it, and started again."""
    assert broker.stop() == broker.clean_exit
    directories = sorted(found for log_dir in broker.log_dirs for found in log_dir.glob("compacted-*-0"))
    assert directories
    for directory in directories:
        report = dump(directory)
        assert [line for line in report.problems if not EXPECTED.fullmatch(line)] == []
        assert report.records > KEYS
        assert not [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    broker.start()
