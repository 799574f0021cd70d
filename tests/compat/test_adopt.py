"""A directory of Apache Kafka is adopted, read and appended to by kafkalite, after a clean end and after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import checkpoints
from kafkalite.storage.verify.verify import verify_directory
from tests.kit import jvm
from tests.kit.brokers import ApacheKafka, Kafkalite
from tests.kit.clients.admin import ConfluentAdmin
from tests.kit.clients.confluent import QUIET, create_topics
from tests.kit.clients.model import DEADLINE_S
from tests.kit.isolated import closed_later, dropped_later, killable

pytestmark = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
TOPIC, PARTITIONS, RECORDS, DELETED = "orders", 2, 2000, 100
CODECS = ("none", "gzip", "lz4", "zstd", "snappy")


@killable
def produce(address: str, values: range, codec: str = "none") -> None:
    """One batch or more for each hundred, to both partitions."""
    producer = Producer({"bootstrap.servers": address, "compression.type": codec, "log_level": QUIET})
    dropped_later(producer)
    lost: list[object] = []

    def received(error: object, _message: object) -> None:
        if error:
            lost.append(error)

    for value in values:
        producer.produce(TOPIC, b"%d" % value, partition=value % PARTITIONS, on_delivery=received)
    producer.flush(DEADLINE_S)
    assert not lost


METADATA = "__cluster_metadata-0"


@killable
def read(address: str, partition: int, count: int) -> list[tuple[int, int]]:
    """(offset, value) of this many records from the beginning."""
    settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "log_level": QUIET})
    closed_later(consumer.close)
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
    found = consumer.consume(count, DEADLINE_S)
    assert not [message.error() for message in found if message.error()]
    return [(message.offset(), int(message.value() or b"")) for message in found]


def written_by_kafka(directory: Path, *, clean: bool) -> Path:
    """Records in all codecs over several segments, the first ones deleted; stopped or killed."""
    kafka = ApacheKafka(directory, {"log.segment.bytes": "1048576", "log.roll.ms": "600000"})
    kafka.start()
    try:
        configs = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
        create_topics(kafka.address, TOPIC, partitions=PARTITIONS, configs=configs)
        step = RECORDS // len(CODECS)
        for number, codec in enumerate(CODECS):
            produce(kafka.address, range(number * step, (number + 1) * step), codec)
        with ConfluentAdmin(kafka.address) as admin:
            admin.delete_records(TOPIC, 0, DELETED)
        if clean:
            assert kafka.stop() == kafka.clean_exit
        else:
            kafka.kill()
    finally:
        if kafka.running():
            kafka.kill()
    return kafka.data


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_log_directory_of_kafka_is_adopted_read_and_appended_to(tmp_path: Path, clean: bool) -> None:
    source = written_by_kafka(tmp_path / "kafka", clean=clean)
    ids = {checkpoints.read_topic_id(Disk(), str(path)) for path in source.glob(f"{TOPIC}-*")}
    epochs = [
        checkpoints.read_epochs(Disk(), str(path / "leader-epoch-checkpoint")) for path in source.glob(f"{TOPIC}-*")
    ]
    if clean:
        # Since 4.4 a stop does not truncate the preallocated indexes of KRaft's own log, which is not adopted.
        assert [each for each in verify_directory(Disk(), str(source)) if METADATA not in each.path] == []
    ours = Kafkalite(tmp_path / "ours", {})
    command = [sys.executable, "-m", "kafkalite", "log", "adopt", str(source), "--data", str(ours.data)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert f"{TOPIC}: {PARTITIONS} partitions" in done.stdout and f"{METADATA}: not adopted" in done.stdout
    assert "retention.ms=-1" in done.stdout and "kafkalite topic alter" in done.stdout
    assert verify_directory(Disk(), str(ours.data)) == []
    ours.start()
    try:
        each = RECORDS // PARTITIONS
        produce(ours.address, range(RECORDS, RECORDS + 20))
        for partition in range(PARTITIONS):
            found = read(ours.address, partition, each + 10 - (DELETED if clean and partition == 0 else 0))
            first = found[0][0]
            assert first in ((DELETED,) if clean and partition == 0 else (0, DELETED) if partition == 0 else (0,))
            wanted = [(offset, offset * PARTITIONS + partition) for offset in range(first, each + 10)]
            assert found == wanted[: len(found)]
    finally:
        assert ours.stop() == ours.clean_exit
    assert {checkpoints.read_topic_id(Disk(), str(path)) for path in ours.data.glob(f"{TOPIC}-*")} == ids
    for path in ours.data.glob(f"{TOPIC}-*"):
        latest = checkpoints.read_epochs(Disk(), str(path / "leader-epoch-checkpoint"))[-1]
        assert latest == (max(entries[-1][0] for entries in epochs) + 1, each)
    assert verify_directory(Disk(), str(ours.data)) == []


def test_log_directory_of_a_running_kafka_is_rejected(tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path / "kafka", {})
    kafka.start()
    try:
        command = [sys.executable, "-m", "kafkalite", "log", "adopt", str(kafka.data), "--data", str(tmp_path / "ours")]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=DEADLINE_S)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"kafkalite: {kafka.data}: a broker uses this log directory; stop it first\n"
        assert not (tmp_path / "ours").exists()
    finally:
        kafka.stop()
