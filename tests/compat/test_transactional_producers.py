"""Transactional producers of foreign clients work unchanged: their consumers read what they have committed.

Each runs in a process of its own, which is killed when it hangs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import jvm
from tests.kit.brokers import Kafkalite
from tests.kit.clients import transactional_offsets
from tests.kit.clients.confluent import create_topics
from tests.kit.clients.transactional_clients import CLIENTS, COMMITTED

HANG_S = 90
TOPIC = "orders"


@pytest.fixture
def kafkalite(tmp_path: Path) -> Iterator[Kafkalite]:
    """A broker of this project with the topic."""
    broker = Kafkalite(tmp_path, {})
    broker.start()
    create_topics(broker.address, TOPIC, partitions=2)
    yield broker
    assert broker.stop() == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_foreign_consumer_reads_what_its_producer_has_committed(kafkalite: Kafkalite, client: str) -> None:
    command = [sys.executable, "-m", "tests.kit.clients.transactional_clients", client, kafkalite.address, TOPIC]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, cwd=jvm.ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == COMMITTED


@pytest.mark.parametrize("client", transactional_offsets.CLIENTS)
def test_a_foreign_producer_commits_offsets_of_its_group(kafkalite: Kafkalite, client: str) -> None:
    command = [sys.executable, "-m", transactional_offsets.__name__, client, kafkalite.address, TOPIC]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, cwd=jvm.ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == transactional_offsets.COMMITTED


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
@pytest.mark.parametrize("version", [jvm.CURRENT, jvm.PREVIOUS])
def test_a_java_producer_commits_transactions(kafkalite: Kafkalite, version: str) -> None:
    properties = ["--producer-props", f"bootstrap.servers={kafkalite.address}", "max.block.ms=60000"]
    load = ["--topic", TOPIC, "--num-records", "1000", "--record-size", "10", "--throughput", "-1"]
    args = [*load, *properties, "--transactional-id", "orders-writer", "--transaction-duration-ms", "10"]
    done = jvm.run_tool(version, "org.apache.kafka.tools.ProducerPerformance", args, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1000 records sent" in done.stdout
