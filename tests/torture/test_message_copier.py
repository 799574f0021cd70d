"""Kafka's TransactionalMessageCopier with random aborts, while brokers stop, are killed and start again.

Each record is in the target once, as in Kafka's own system test (transactions_test.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.kit import jvm
from tests.kit.broker_processes import BrokerProcesses
from tests.kit.brokers import wait_until
from tests.kit.clients import Record
from tests.kit.clients.confluent import Confluent
from tests.kit.clients.copiers import by_java
from tests.kit.clients.sdk import read_to_end
from tests.kit.coordination_process import coordination_process
from tests.torture.test_transaction_processes import SETTINGS, is_complete

pytestmark = [
    pytest.mark.torture,
    pytest.mark.long_form,
    pytest.mark.timeout(900),
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
]
COUNT = 5_000
BOUNCES_MIN = 3


def test_copier_copies_each_record_once_while_brokers_bounce(tmp_path: Path, random: Random) -> None:
    shared, bounces = tmp_path / "shared", 0
    coordination = {"kafkalite.coordination.directory": str(shared)}
    with coordination_process(shared), BrokerProcesses(tmp_path, coordination, SETTINGS) as cluster:
        for name in ("source", "target"):
            cluster.create_topic(name, 1, factor=3)
        values = [b"%d" % number for number in range(COUNT)]
        Confluent().write(cluster.bootstrap, "source", [Record(value) for value in values])
        with ThreadPoolExecutor(1) as pool:
            arguments = cluster.bootstrap, "source", "target", "copier", COUNT
            copying = pool.submit(by_java(jvm.CURRENT), *arguments)
            while not copying.done():
                broker_id = random.choice(list(cluster.brokers))
                random.choice((cluster.stop, cluster.kill))(broker_id)
                cluster.start(broker_id)
                wait_until(lambda: is_complete(cluster), "every ISR is complete")
                bounces += 1
            copying.result()
        copied = [record.value for record in read_to_end(cluster.bootstrap, "target", "read_committed")]
        assert copied == values
        everything = read_to_end(cluster.bootstrap, "target", "read_uncommitted")
    print(f"{bounces} bounces; {len(everything) - COUNT} records of aborted transactions")
    assert bounces >= BOUNCES_MIN
