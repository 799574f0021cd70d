"""Idempotent producers of others at a broker whose appends raise once in each step: each record is in the log once.

The broker chooses the steps by running (`broken_broker`). Every record is acknowledged, without an error for the
application, and the log has all of them in order, also after a kill.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalite._speedups.storage.file import Disk
from kafkalite.records import batches
from tests.kit import jvm
from tests.kit.broken_broker import BrokenKafkalite
from tests.kit.brokers import AGAINST
from tests.kit.clients.confluent import create_topics
from tests.kit.clients.truncation import franz
from tests.kit.isolated import dropped_later, killable
from tests.kit.rig import assert_files_are_good, ended

RECORDS, KEY_BYTES = 6000, 4000
BATCH_BYTES = 16384
STEPS_MIN = 40
DEADLINE_S = 180.0

pytestmark = pytest.mark.skipif(AGAINST != "kafkalite", reason="the faults are in the code of kafkalite")


@killable
def by_librdkafka(address: str) -> None:
    """librdkafka."""
    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0, "batch.size": BATCH_BYTES}
    )
    dropped_later(producer)
    failures = []
    for number in range(RECORDS):
        producer.produce(
            "t",
            str(number).encode(),
            bytes(KEY_BYTES),
            partition=0,
            on_delivery=lambda error, _: error and failures.append(str(error)),
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []


def by_java(version: str) -> Callable[[str], None]:
    """Apache Kafka's producer."""

    def produce(address: str) -> None:
        if (reason := jvm.java_missing()) is not None:
            pytest.skip(f"Apache Kafka's producer: {reason}")
        lines = f"t\t{bytes(KEY_BYTES).hex()}\n" * RECORDS
        program = str(jvm.KIT / "KeyedProducer.java")
        done = jvm.run_tool(version, program, [address], stdin=lines, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr[-4000:]

    return produce


def by_franz_go(address: str) -> None:
    """franz-go."""
    if shutil.which("go") is None:
        pytest.skip("no Go")
    command = [franz(), address, str(RECORDS), str(KEY_BYTES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr[-4000:]


CLIENTS: dict[str, Callable[[str], None]] = {
    "librdkafka": by_librdkafka,
    f"java-{jvm.CURRENT}": by_java(jvm.CURRENT),
    f"java-{jvm.PREVIOUS}": by_java(jvm.PREVIOUS),
    "franz-go": by_franz_go,
}


def values_in_files(directory: Path) -> list[bytes | None]:
    """The values of all records in the segments of a partition."""
    found = b"".join(Disk().read_bytes(str(log)) for log in sorted(directory.glob("*.log")))
    return [record.value for batch in batches(found) for record in batch]


@pytest.mark.parametrize("client", CLIENTS)
def test_idempotent_producer_loses_and_duplicates_nothing(client: str, tmp_path: Path) -> None:
    broker = BrokenKafkalite(tmp_path / "broker", {})
    with ended(broker):
        broker.start()
        create_topics(broker.address, "t", configs={"segment.bytes": "1048576"})
        CLIENTS[client](broker.address)
        steps = broker.raised()
        assert len(steps) >= STEPS_MIN, steps
        broker.kill()
        expected = [str(number).encode() for number in range(RECORDS)]
        assert values_in_files(broker.log_dir("t") / "t-0") == expected
        broker.broken = False
        broker.start()
        assert broker.stop() == broker.clean_exit
        assert values_in_files(broker.log_dir("t") / "t-0") == expected
        assert_files_are_good(broker.data, [("t", 0)])
