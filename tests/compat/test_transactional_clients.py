"""Real clients copy a topic in transactions, some of which they abort: each record is in the target once.

Then Apache Kafka's tools read the same logs, and list and end open transactions.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat.conftest import MakeTopic
from tests.kit import jvm
from tests.kit.brokers import Broker, wait_until
from tests.kit.clients import Record
from tests.kit.clients.confluent import Confluent
from tests.kit.clients.copiers import by_aiokafka, by_franz_go, by_java, by_kafka_python, by_librdkafka
from tests.kit.clients.java import JAVA_VERSIONS, JavaTools
from tests.kit.clients.model import DEADLINE_S
from tests.kit.clients.sdk import read_to_end
from tests.kit.dump_log import dump_files
from tests.kit.transactions.history import History
from tests.kit.transactions.producer import RawProducer, Settings
from tests.kit.transactions.readers import wait_stable
from tests.kit.transactions.wire import Retries, Wire

COUNT = 200
KEYS = 10
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
COPIERS = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "franz-go": by_franz_go,
    **{f"java-{version}": by_java(version) for version in JAVA_VERSIONS},
}
needs_java = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")


def committed_values(address: str, topic: str) -> list[bytes | None]:
    """The values that a reader of committed records finds, in the order of their offsets."""
    return [record.value for record in read_to_end(address, topic, "read_committed")]


@pytest.mark.parametrize("client", COPIERS)
def test_client_copies_each_record_once(client: str, address: str, new_topic: MakeTopic) -> None:
    if client.startswith("java") and (reason := jvm.java_missing()) is not None:
        pytest.skip(f"Apache Kafka's client: {reason}")
    if client == "franz-go" and shutil.which("go") is None:
        pytest.skip("no Go")
    source, target = new_topic(), new_topic()
    values = [b"%d" % number for number in range(COUNT)]
    Confluent().write(address, source, [Record(value) for value in values])
    COPIERS[client](address, source, target, f"copier-{source}", COUNT)
    assert committed_values(address, target) == values
    everything = Counter(record.value for record in read_to_end(address, target, "read_uncommitted"))
    print(f"{client}: {everything.total() - COUNT} records of aborted transactions")


@needs_java
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_producer_commits_at_intervals(version: str, address: str, new_topic: MakeTopic) -> None:
    topic = new_topic()
    load = ["--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "2000"]
    properties = ["--producer-props", f"bootstrap.servers={address}"]
    transactions = ["--transactional-id", f"writer-{topic}", "--transaction-duration-ms", "100"]
    done = jvm.run_tool(version, PERFORMANCE, [*load, *properties, *transactions], timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert len(committed_values(address, topic)) == 2000


async def write(address: str, topic: str, transactional_id: str, *, leave_open: bool) -> tuple[int, int]:
    """A committed, an aborted and perhaps an open transaction; returns the producer id and epoch."""
    wire = Wire(address)
    settings = Settings(timeout_ms=600_000, delivery_s=30.0)
    producer = RawProducer(wire, transactional_id, 2, History(time.monotonic), time.monotonic, settings)
    await producer.initialize()
    for commit in (True, False, True):
        producer.begin()
        await producer.send((topic, 0), [None, None])
        await (producer.commit() if commit else producer.abort())
    if leave_open:
        producer.begin()
        await producer.send((topic, 0))
    await wire.close()
    return producer.producer_id, producer.epoch


async def until_stable(address: str, topic: str) -> None:
    """The last stable offset is the log end."""
    wire = Wire(address)
    await wait_stable(wire, (topic, 0), Retries(time.monotonic, 30.0, 0.05))
    await wire.close()


@needs_java
def test_kafka_transactions_lists_describes_and_ends(address: str, new_topic: MakeTopic) -> None:
    topic = new_topic()
    tools = JavaTools(jvm.CURRENT, address)
    transactional_id = f"open-{topic}"
    producer_id, epoch = asyncio.run(write(address, topic, transactional_id, leave_open=True))
    (listed,) = [line.split() for line in tools.run("transactions", "list").splitlines() if transactional_id in line]
    assert listed[0] == transactional_id and listed[2:] == [str(producer_id), "Ongoing"]
    described = tools.run("transactions", "describe", "--transactional-id", transactional_id).splitlines()[-1].split()
    assert described[1:6] == [transactional_id, str(producer_id), str(epoch), "Ongoing", "600000"]
    assert described[-1] == f"{topic}-0"
    producers = tools.run("transactions", "describe-producers", "--topic", topic, "--partition", "0").splitlines()[-1]
    assert producers.split()[:2] == [str(producer_id), str(epoch)]
    tools.run("transactions", "forceTerminateTransaction", "--transactionalId", transactional_id)
    asyncio.run(until_stable(address, topic))
    ended = tools.run("transactions", "list").splitlines()
    assert [line.split()[3] for line in ended if transactional_id in line] != ["Ongoing"]


@needs_java
def test_dump_log_segments_reads_transactional_logs(broker: Broker, new_topic: MakeTopic) -> None:
    topic = new_topic(**{"segment.bytes": "1048576"})
    asyncio.run(write(broker.address, topic, f"dumped-{topic}", leave_open=False))
    asyncio.run(until_stable(broker.address, topic))
    directory = broker.log_dir(topic) / f"{topic}-0"
    report = dump_files([*directory.glob("*.log"), *directory.glob("*.txnindex")])
    assert report.problems == []
    assert report.records == 3 * 2 + 3, "values and markers"
    states = [path for each in broker.log_dirs for path in each.glob("__transaction_state-*/*.log")]
    decoded = ""
    for path in states:
        if path.stat().st_size:
            args = ["--files", str(path), "--transaction-log-decoder"]
            done = jvm.run_tool(jvm.CURRENT, "org.apache.kafka.tools.DumpLogSegments", args, timeout=DEADLINE_S)
            assert done.returncode == 0, done.stderr
            decoded += done.stdout
    for word in (f"dumped-{topic}", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"):
        assert word in decoded, decoded[-3000:]


@contextmanager
def streams(address: str, source: str, target: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that counts the records of each key, until its input is closed; it is killed with the block."""
    program = str(jvm.KIT / "StreamsCounts.java")
    java = jvm.java_command(jvm.CURRENT, program, log="ERROR", classes=jvm.streams_jars() / "*")
    arguments = [address, f"counts-{source}", source, target, str(directory)]
    with subprocess.Popen([*java, *arguments], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@needs_java
def test_kafka_streams_counts_each_record_once(address: str, new_topic: MakeTopic, tmp_path: Path) -> None:
    """An instance is killed while it processes; the next one continues. The counts of a key are 1, 2, 3 and so on."""
    source, target = new_topic(), new_topic()
    records = [Record(b"%d" % number, b"key-%d" % (number % KEYS)) for number in range(2 * COUNT)]
    Confluent().write(address, source, records[:COUNT])
    with streams(address, source, target, tmp_path / "first"):
        wait_until(lambda: len(committed_values(address, target)) > 0, "the first instance has committed")
        Confluent().write(address, source, records[COUNT:])
    with streams(address, source, target, tmp_path / "second") as second:
        wait_until(lambda: len(committed_values(address, target)) >= 2 * COUNT, "all records are counted")
        assert second.stdin is not None
        second.stdin.close()
        assert second.wait(DEADLINE_S) == 0
    counts: dict[bytes | None, list[bytes | None]] = {}
    for record in read_to_end(address, target, "read_committed"):
        counts.setdefault(record.key, []).append(record.value)
    expected = [b"%d" % number for number in range(1, 2 * COUNT // KEYS + 1)]
    assert counts == {b"key-%d" % key: expected for key in range(KEYS)}
