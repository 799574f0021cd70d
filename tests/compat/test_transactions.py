"""Transactions of Apache Kafka: its files say to us what they say to it, and readers of committed records get the same
from both brokers.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.producer_state import ProducerState
from kafkalite.cli.main import main
from kafkalite.config.topic import TopicConfig
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.producer_snapshots import read_snapshot
from kafkalite.storage.log.producer_state_loader import rebuild
from kafkalite.storage.log.transaction_index import AbortedTransaction, TransactionIndex
from kafkalite.storage.recovery.recover_log import PartitionDirectory, recover
from tests.kit import jvm
from tests.kit.brokers import ApacheKafka, Kafkalite
from tests.kit.clients.confluent import QUIET, create_topics
from tests.kit.clients.model import DEADLINE_S
from tests.kit.clients.sdk import read_to_end
from tests.kit.isolated import closed_later, dropped_later, killable
from tests.kit.seeds import chosen_seed

pytestmark = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
TOPIC = "orders"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
SEED = chosen_seed()
SEGMENT_BYTES = 1 << 20
TRANSACTIONS = 60
VALUE = b"v" * 20_000
Entry = tuple[int, ...]


class Transactional:
    """A producer with a transactional id, in a transaction or not; `committed` collects what it has committed."""

    def __init__(self, address: str, name: str, committed: list[int]) -> None:
        settings = {"bootstrap.servers": address, "transactional.id": name, "log_level": QUIET}
        self._producer = Producer(settings)
        dropped_later(self._producer)
        self._producer.init_transactions(DEADLINE_S)
        self._committed = committed
        self._open: list[int] = []
        self.active = False

    def send(self, value: int) -> None:
        if not self.active:
            self._producer.begin_transaction()
            self.active = True
        self._producer.produce(TOPIC, b"%d" % value + VALUE, partition=0)
        self._producer.flush(DEADLINE_S)
        self._open.append(value)

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(DEADLINE_S)
            self._committed += self._open
        else:
            self._producer.abort_transaction(DEADLINE_S)
        self._open.clear()
        self.active = False


@killable
def run_transactions(address: str, chance: random.Random) -> list[int]:
    """Three producers whose transactions overlap, the last one left open; what was committed."""
    committed: list[int] = []
    producers = [Transactional(address, f"writer-{number}", committed) for number in range(3)]
    ended = value = 0
    while ended < TRANSACTIONS:
        producer = chance.choice(producers)
        if producer.active and chance.random() < 0.25:
            producer.end(commit=chance.random() < 0.5)
            ended += 1
        else:
            producer.send(value)
            value += 1
    for producer in producers:
        if producer.active:
            producer.end(commit=True)
    producers[0].send(value)
    return committed


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """The log directory of a stopped Apache Kafka after transactions, the last one left open; what it committed."""
    print(f"KAFKALITE_SEED={SEED}")
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), {})
    kafka.start()
    try:
        create_topics(kafka.address, TOPIC, configs={"segment.bytes": str(SEGMENT_BYTES)})
        committed = run_transactions(kafka.address, random.Random(SEED))
        assert committed_records(kafka.address, len(committed)) == sorted(committed)
        assert committed_by_sdk(kafka.address) == sorted(committed)
        check_command(kafka.address, committed)
        assert kafka.stop() == kafka.clean_exit
    finally:
        if kafka.running():
            kafka.kill()
    return kafka.data, committed


def committed_by_sdk(address: str) -> list[int]:
    """The same by the SDK."""
    return sorted(int((record.value or b"").removesuffix(VALUE)) for record in read_to_end(address, TOPIC, COMMITTED))


def check_command(address: str, committed: list[int]) -> None:
    """`kafkalite consume` prints what was committed, or all records in the order of their sends."""
    assert sorted(printed(address, COMMITTED)) == sorted(committed)
    found = printed(address, UNCOMMITTED)
    assert found == list(range(len(found))) and len(found) > len(committed)


def printed(address: str, isolation: str) -> list[int]:
    """The values that `kafkalite consume` prints."""
    done = CliRunner().invoke(main, ["consume", TOPIC, "-e", "--isolation", isolation, "-b", address])
    assert done.exit_code == 0, done.stderr
    return [int(line.removesuffix(VALUE.decode())) for line in done.stdout.splitlines()]


@killable
def committed_records(address: str, count: int) -> list[int]:
    """The values that a reader of committed records is given, in the order of their numbers; it reads to the end."""
    settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": QUIET}
    )
    closed_later(consumer.close)
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[int] = []
    while (message := consumer.poll(DEADLINE_S)) is not None and not message.error():
        found.append(int((message.value() or b"").removesuffix(VALUE)))
    assert message is not None, f"no end after {len(found)} of {count} records"
    assert message.error().name() == "_PARTITION_EOF", message.error()
    return sorted(found)


def entry_of(producer: object) -> Entry:
    names = (
        "producer_id", "epoch", "last_sequence", "last_offset", "last_offset_delta", "last_timestamp",
        "coordinator_epoch", "first_offset_of_transaction",
    )  # fmt: skip
    return tuple(getattr(producer, name) for name in names)


def recovered(source: Path, directory: Path) -> Log:
    """What recovery makes of nothing but the batches."""
    directory.mkdir()
    for path in source.glob("*.log"):
        shutil.copy(path, directory)
    config = TopicConfig(segment_bytes=SEGMENT_BYTES)
    return recover(PartitionDirectory(Disk(), str(directory), TOPIC, 0, config))[0]


def test_transactions_written_by_kafka_are_read_completely(written: tuple[Path, list[int]], tmp_path: Path) -> None:
    source = written[0] / f"{TOPIC}-0"
    log = recovered(source, tmp_path / f"{TOPIC}-0")
    theirs: list[AbortedTransaction] = []
    for path in sorted(source.glob("*.txnindex")):
        theirs += TransactionIndex(Disk(), str(path), int(path.stem), present=True).entries()
    assert len(theirs) > 5
    assert [entry for segment in log.segments for entry in segment.transactions.entries()] == theirs
    snapshots = sorted(source.glob("*.snapshot"))
    assert len(snapshots) > 2
    for path in snapshots:
        offset, state = int(path.stem), ProducerState()
        below = [segment for segment in log.segments if segment.base_offset < offset]
        assert offset in (*log.bases(), log.log_end_offset), "the segments are cut where Kafka rolled"
        rebuild(Disk(), log.directory, below, offset, state)
        assert sorted(map(entry_of, state)) == sorted(map(entry_of, read_snapshot(Disk(), str(path))))
    assert sorted(map(entry_of, log.producers)) == sorted(map(entry_of, state))


def test_read_committed_returns_the_same_records_as_kafka(written: tuple[Path, list[int]], tmp_path: Path) -> None:
    source, committed = written
    ours = Kafkalite(tmp_path / "ours", {})
    command = [sys.executable, "-m", "kafkalite", "log", "adopt", str(source), "--data", str(ours.data)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    ours.start()
    try:
        assert committed_records(ours.address, len(committed)) == sorted(committed)
        assert committed_by_sdk(ours.address) == sorted(committed)
        check_command(ours.address, committed)
        ours.kill()
        ours.start()
        assert committed_records(ours.address, len(committed)) == sorted(committed), "after a kill"
    finally:
        assert ours.stop() == ours.clean_exit
