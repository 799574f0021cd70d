"""Broker processes assign no producer id that their logs have: after adoptions, and after an older tree was restored.

A producer with the id of an earlier one would lose its first batch: the broker takes it for a repetition, and
acknowledges it with the offset of the other one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.server.process.resources import JOURNAL
from tests.kit.broker_processes import POLL_S, BrokerProcesses, call
from tests.kit.brokers import Kafkalite, wait_until
from tests.kit.server import batch, fetch_request, fetched, outcomes, produce_request

pytestmark = [pytest.mark.torture, pytest.mark.timeout(300)]
TOPIC = "orders"
COMMAND_S = 60.0
COORDINATION = "kafkalite.coordination.directory"


def first_record(address: str) -> tuple[int, int]:
    """Begin a producer, and write its first record; the id of the producer, and the offset of the record."""
    log_end(address)
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = call(address, asked, 4)
    assert answer.error_code == 0
    records = batch(b"of a producer", producer_id=answer.producer_id, producer_epoch=0, base_sequence=0)
    (written,) = outcomes(call(address, produce_request(TOPIC, (0, records)), 9))
    assert written.error_code == 0
    return answer.producer_id, written.base_offset


def log_end(address: str) -> int:
    """The high watermark of the topic, once the broker leads its partition."""
    found: list[int] = []

    def led() -> bool:
        answer = fetched(call(address, fetch_request(TOPIC, (0, 0)), 12))[TOPIC, 0]
        found[:] = [] if answer.error_code else [answer.high_watermark]
        return bool(found)

    wait_until(led, f"{address} leads the partition", every=POLL_S)
    return found[0]


def check_next_producer(address: str, earlier: int) -> None:
    """A producer that begins now writes behind the record of the earlier one."""
    assert log_end(address) == 1
    producer_id, offset = first_record(address)
    assert (offset, log_end(address)) == (1, 2), "an acknowledged record is not in the log"
    assert producer_id > earlier


def cluster_of(directory: Path, broker_id: int = 1) -> BrokerProcesses:
    """A cluster of one process, with the tree in a directory of its own."""
    return BrokerProcesses(directory, {COORDINATION: str(directory / "tree")}, ids=(broker_id,))


def fill(cluster: BrokerProcesses, end: str = "stop") -> int:
    """Write a record to a new topic of a cluster, and end its broker; the id of the producer."""
    with cluster:
        cluster.create_topic(TOPIC, 1)
        producer_id, offset = first_record(cluster.bootstrap)
        assert offset == 0
        end_all(cluster, end)
    return producer_id


def end_all(cluster: BrokerProcesses, end: str) -> None:
    """Stop or kill the processes of a cluster."""
    for broker in cluster.brokers.values():
        getattr(broker, end)()


def kafkalite(*words: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "kafkalite", *words], capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def as_of_kafka(data: Path) -> Path:
    """A copy of a log directory without the files that only kafkalite writes."""
    copy = data.with_name("kafka")
    shutil.copytree(data, copy)
    for name in (JOURNAL, ".kafkalite-format"):
        (copy / name).unlink(missing_ok=True)
    return copy


def test_older_tree_of_a_cluster(tmp_path: Path, how: str) -> None:
    cluster, tree, saved = cluster_of(tmp_path), tmp_path / "tree", tmp_path / "saved"
    with cluster:
        cluster.create_topic(TOPIC, 1)
        end_all(cluster, "stop")
    shutil.copytree(tree, saved)
    with cluster:
        earlier, _ = first_record(cluster.bootstrap)
        end_all(cluster, how)
    shutil.rmtree(tree)
    saved.rename(tree)
    with cluster:
        check_next_producer(cluster.bootstrap, earlier)
        assert "an older copy" in cluster.brokers[1].said()


def test_older_journal_of_a_broker_that_is_alone(tmp_path: Path, how: str) -> None:
    broker = Kafkalite(tmp_path, {})
    alone = cluster_of_one(broker)
    with alone:
        alone.create_topic(TOPIC, 1)
        broker.stop()
    older = (broker.data / JOURNAL).read_bytes()
    with alone:
        earlier, _ = first_record(broker.address)
        getattr(broker, how)()
    (broker.data / JOURNAL).write_bytes(older)
    with alone:
        check_next_producer(broker.address, earlier)


def cluster_of_one(broker: Kafkalite) -> BrokerProcesses:
    """A broker that is alone, with the operations of a cluster."""
    alone = BrokerProcesses(broker.directory, {}, ids=())
    alone.brokers = {1: broker}
    return alone


def test_adoption_by_a_cluster_with_a_new_tree(tmp_path: Path) -> None:
    """The log directory is that of a broker that was alone; its journal becomes the tree."""
    broker = Kafkalite(tmp_path / "1", {})
    earlier = fill(cluster_of_one(broker))
    kafkalite("cluster", "adopt", "--data", str(broker.data), "--coordination", str(tmp_path / "tree"))
    with cluster_of(tmp_path) as cluster:
        check_next_producer(cluster.bootstrap, earlier)


def test_log_directory_of_another_cluster(tmp_path: Path) -> None:
    """Adopted by a broker that is alone and new, which then becomes the first one of a cluster."""
    theirs = cluster_of(tmp_path / "theirs")
    earlier = fill(theirs)
    source, data = as_of_kafka(theirs.brokers[1].data), tmp_path / "1" / "data"
    kafkalite("log", "adopt", str(source), "--data", str(data))
    kafkalite("cluster", "adopt", "--data", str(data), "--coordination", str(tmp_path / "tree"))
    with cluster_of(tmp_path) as cluster:
        check_next_producer(cluster.bootstrap, earlier)
