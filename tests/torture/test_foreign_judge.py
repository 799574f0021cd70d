"""Apache Kafka's files become ours, and ours become Apache Kafka's: each reads and appends to what the other left.

After each stop DumpLogSegments judges the files, too.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.errors import KafkaErrorCode
from kafkalite.net.client import ClientConnection
from kafkalite.storage.checkpoints import read_topic_id
from tests.kit import jvm
from tests.kit.brokers import ApacheKafka, Broker, Kafkalite, wait_until
from tests.kit.checker import History, Partition, check
from tests.kit.clients.confluent import create_topics
from tests.kit.load import BY_NAME, IdempotentSender, Sender
from tests.kit.readers import READERS
from tests.kit.rig import JUDGE_S, assert_files_are_good, assert_kept
from tests.kit.server import batch, outcomes, produce_request

pytestmark = [
    pytest.mark.torture,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
# The timestamps of our records are years old: with the default, retention takes them half a minute after a start.
# Here it looks all the time.
SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
}
PARTITIONS = 2
RECORDS = 3000
THEIRS, OURS = "theirs", "ours"
METADATA = "partition.metadata"
SEQUENCES, PRODUCER_ID = ("sequences", 0), 77_777  # a producer that continues in the files of the other broker
OUT_OF_ORDER = KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
ALL: list[Partition] = [(topic, index) for topic in (THEIRS, OURS) for index in range(PARTITIONS)]


class Files:
    """Two topics that move from broker to broker, and what must be in them."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.histories = {THEIRS: History(), OURS: History()}
        self.kafka = ApacheKafka(directory / "kafka", SETTINGS)
        self.kafkalite = Kafkalite(directory / "kafkalite", SETTINGS)
        self.random = random

    def produced_by_librdkafka(self, broker: Broker, topic: str, first: int) -> None:
        sender = IdempotentSender(broker.address, topic, PARTITIONS, self.histories[topic], first)
        sender.start()
        try:
            wait_until(lambda: sender.acks >= RECORDS or not sender.is_alive(), "records", 60.0)
        finally:
            sender.finish()

    async def produced_by_us(self, topic: str, first: int) -> None:
        topic_partitions = [topic_partition for topic_partition in ALL if topic_partition[0] == topic]
        sender = Sender("ours", self.histories[topic], itertools.count(first), self.random, topic_partitions)
        await sender.run(self.kafkalite.address, requests=RECORDS)
        assert sender.acks == RECORDS

    def judge(self, broker: Broker, name: str) -> None:
        """Every foreign client reads everything."""
        for reader in READERS:
            for topic, history in self.histories.items():
                reading = f"{name} by {reader.__name__}"
                reader(
                    reading,
                    broker.address,
                    [topic_partition for topic_partition in ALL if topic_partition[0] == topic],
                    history,
                )
                assert_kept(check(history, reading))

    def begin(self) -> None:
        """Apache Kafka makes both topics and fills its own."""
        self.kafka.start()
        create_topics(self.kafka.address, *self.histories, SEQUENCES[0], partitions=PARTITIONS)
        self.produced_by_librdkafka(self.kafka, THEIRS, 0)

    def adopt(self) -> None:
        """`kafkalite log adopt` takes the stopped broker's partitions over, with their topic ids."""
        command = [sys.executable, "-m", "kafkalite", "log", "adopt", str(self.kafka.data)]
        done = subprocess.run(
            [*command, "--data", str(self.kafkalite.data)], capture_output=True, text=True, timeout=JUDGE_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for topic, index in (*ALL, SEQUENCES):
            ids = [
                read_topic_id(Disk(), str(broker.data / f"{topic}-{index}")) for broker in (self.kafka, self.kafkalite)
            ]
            assert ids[0] == ids[1] is not None

    def give_back(self) -> None:
        """Our files take the place of Apache Kafka's, but for the topic's id."""
        for topic, index in (*ALL, SEQUENCES):
            theirs, ours = (broker.data / f"{topic}-{index}" for broker in (self.kafka, self.kafkalite))
            assert (theirs / METADATA).read_bytes() == (ours / METADATA).read_bytes()
            for path in theirs.iterdir():
                if path.name != METADATA:
                    path.unlink()
            for path in ours.iterdir():
                if path.name != METADATA:
                    shutil.copyfile(path, theirs / path.name)

    async def in_sequence(self, broker: Broker, *numbers: int) -> list[tuple[int, int]]:
        """Send batches of one record with these sequences; the (error code, offset) of each."""
        host, port = broker.address.rsplit(":", 1)
        topic, index = SEQUENCES
        batches = [(index, sequenced(number)) for number in numbers]
        async with ClientConnection(host, int(port), timeout_s=60.0) as peer:
            answers = [await peer.call(produce_request(topic, each), version_max=BY_NAME) for each in batches]
        return [(part.error_code, part.base_offset) for answer in answers for part in outcomes(answer)]

    def over(self) -> None:
        for broker in (self.kafka, self.kafkalite):
            if broker.running():
                broker.kill()


def sequenced(number: int) -> bytes:
    """A batch of one record in sequence, of now: Kafka forgets producers by the timestamps of their batches."""
    timestamp = int(time.time() * 1000)
    return batch(b"x", timestamp=timestamp, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=number)


async def test_kafka_and_kafkalite_continue_the_same_files(
    how: str, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    if (reason := jvm.java_missing()) is not None:
        pytest.skip(f"Apache Kafka: {reason}")
    files = Files(tmp_path, random)
    kafka, kafkalite = files.kafka, files.kafkalite
    try:
        await asyncio.to_thread(files.begin)
        await asyncio.to_thread(getattr(kafka, how))
        await asyncio.to_thread(files.adopt)
        await asyncio.to_thread(kafkalite.start)
        await asyncio.to_thread(files.judge, kafkalite, "adopted")
        await files.produced_by_us(OURS, 0)
        await files.produced_by_us(THEIRS, 1_000_000)
        await asyncio.to_thread(files.judge, kafkalite, "appended")
        assert await files.in_sequence(kafkalite, *range(7)) == [(0, number) for number in range(7)]
        assert await asyncio.to_thread(kafkalite.stop) == kafkalite.clean_exit
        await asyncio.to_thread(assert_files_are_good, kafkalite.data, ALL)
        files.give_back()
        await asyncio.to_thread(kafka.start)
        await asyncio.to_thread(files.judge, kafka, "given back")
        found = await files.in_sequence(kafka, 5, 6, 7)
        assert found == [(OUT_OF_ORDER, -1), (0, 6), (0, 7)], "Kafka knows the last batch"
        for topic in files.histories:
            await asyncio.to_thread(files.produced_by_librdkafka, kafka, topic, 2_000_000)
        await asyncio.to_thread(files.judge, kafka, "appended there")
        assert await asyncio.to_thread(kafka.stop) == kafka.clean_exit
    finally:
        files.over()
    counts = [history.acknowledged_count for history in files.histories.values()]
    record_property("summary", f"files of Apache Kafka after a {how}, of kafkalite, and back: {sum(counts)} records")
