"""Foreign transactional producers fail at once while this version has no transactions.

Before, each of them repeated the request until its own timeout, which confluent-kafka does not have. Each runs in a
process of its own, which is killed when it hangs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import jvm
from tests.kit.brokers import Kafkalite
from tests.kit.clients.transactional import CLIENTS

HANG_S = 60  # far above what any client needs to fail, far below the timeouts that the clients are given
REJECTED = "transactional.id %r is rejected: this version has no transactions"


@pytest.fixture
def kafkalite(tmp_path: Path) -> Iterator[Kafkalite]:
    """A broker of this project, also with AGAINST=kafka: Apache Kafka has transactions."""
    broker = Kafkalite(tmp_path, {})
    broker.start()
    yield broker
    assert broker.stop() == 0


def warnings(broker: Kafkalite) -> list[str]:
    return [line for line in broker.said().splitlines() if "is rejected: this version has no transactions" in line]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_transactional_producer_fails_at_once(kafkalite: Kafkalite, client: str) -> None:
    command = [sys.executable, "-m", "tests.kit.clients.transactional", client, kafkalite.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, cwd=jvm.ROOT)
    assert done.returncode == 0, done.stderr
    said = done.stdout.lower().replace("_", "").replace(" ", "")
    assert "transactionalid" in said and "authorization" in said, done.stdout
    (line,) = warnings(kafkalite)
    assert REJECTED % "orders-writer" in line


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
@pytest.mark.parametrize("version", [jvm.CURRENT, jvm.PREVIOUS])
def test_a_transactional_java_producer_fails_at_once(kafkalite: Kafkalite, version: str) -> None:
    properties = ["--producer-props", f"bootstrap.servers={kafkalite.address}", "max.block.ms=600000"]
    load = ["--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "-1"]
    args = [*load, *properties, "--transactional-id", "orders-writer", "--transaction-duration-ms", "1000"]
    done = jvm.run_tool(version, "org.apache.kafka.tools.ProducerPerformance", args, timeout=HANG_S)
    assert done.returncode != 0
    assert "TransactionalIdAuthorizationException" in done.stdout + done.stderr
    (line,) = warnings(kafkalite)
    assert REJECTED % "orders-writer" in line
