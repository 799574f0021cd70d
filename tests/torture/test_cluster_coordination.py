"""ZooKeeper behind a cluster of processes is stopped, its sessions are expired, its data is lost and restored.

One cluster for all tests, under the load of an idempotent producer that each test begins and whose records it reads
again. Each test leaves the cluster complete.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from kafkalite.errors import KafkaErrorCode
from kafkalite.server.process.saved_session import NAME as SAVED_SESSION
from tests.kit import jvm
from tests.kit.broker_processes import BrokerProcesses
from tests.kit.brokers import Kafkalite, wait_until
from tests.kit.checker import Partition, check
from tests.kit.load import IdempotentSender
from tests.kit.readers import read_by_librdkafka
from tests.kit.rig import assert_kept
from tests.kit.zookeeper import ZooKeeper, start_zookeeper

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("cluster-coordination"),
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache ZooKeeper: {jvm.java_missing()}"),
]
CHROOT = "/kafka"
TICK_MS = 500
PARTITIONS = 6
ACKS_MIN = 100
PAUSE_S = 0.05
OUT_OF_REACH = "the coordination service is out of reach"
LOST = "the session with the coordination service is lost"
EXIT_FAILED = 1  # of a broker that was ready
STATUS_S = 60.0
START_S = 120.0

_topics = (f"orders-{number}" for number in itertools.count())
_replacements = (f"replacement-{number}" for number in itertools.count())


class Stack:
    """ZooKeeper and the brokers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = start_zookeeper(directory / "zookeeper", tick_ms=TICK_MS)
        self.cluster = BrokerProcesses(directory, {"zookeeper.connect": self.zookeeper.address + CHROOT})

    @property
    def brokers(self) -> list[Kafkalite]:
        """The processes."""
        return list(self.cluster.brokers.values())

    def start_zookeeper(self) -> None:
        """Start it again on its port with the data in its directory."""
        port = int(self.zookeeper.address.rpartition(":")[2])
        self.zookeeper = start_zookeeper(self.zookeeper.directory, port, TICK_MS)

    def logged(self, text: str, since: list[int]) -> bool:
        """Whether all brokers have logged it more often than before."""
        return all(count > before for count, before in zip(self.count(text), since, strict=True))

    def count(self, text: str) -> list[int]:
        """How often each broker has logged it."""
        return [broker.said().count(text) for broker in self.brokers]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("cluster"))
    try:
        with made.cluster:
            yield made
    finally:
        made.zookeeper.kill()


@contextmanager
def load(stack: Stack, factor: int = 1) -> Iterator[IdempotentSender]:
    """Records are sent to a new topic in the block; after it all of them are there, and the replicas are equal."""
    topic = next(_topics)
    partitions = stack.cluster.create_topic(topic, PARTITIONS, factor, flush_messages="1")
    sender = IdempotentSender(stack.cluster.bootstrap, topic, PARTITIONS, pause_s=PAUSE_S)
    sender.start()
    try:
        progress(sender)
        yield sender
        progress(sender)
        sender.finish()
    finally:
        if sender.is_alive():
            sender.give_up()
    read_by_librdkafka("reader", stack.cluster.bootstrap, partitions, sender.history)
    anomalies = check(sender.history, "reader")
    if anomalies:
        stack.cluster.print_batches(sorted({each.partition for each in anomalies}))
        stack.cluster.print_logs()
    assert_kept(anomalies)
    if factor > 1:
        wait_until(lambda: in_sync(stack, partitions), "all replicas are in sync")
        stack.cluster.check_replicas(partitions)


def in_sync(stack: Stack, partitions: list[Partition]) -> bool:
    """Whether all brokers have all records of these partitions."""
    found = stack.cluster.agreed().in_sync
    return all(len(found[each]) == len(stack.brokers) for each in partitions)


def progress(sender: IdempotentSender) -> None:
    """Wait until more records are acknowledged."""
    acks = sender.acks + ACKS_MIN
    wait_until(lambda: sender.acks >= acks or not sender.is_alive(), f"{acks} records are acknowledged")
    assert sender.is_alive()


def test_brokers_serve_while_zookeeper_is_stopped_and_changes_wait(stack: Stack) -> None:
    with load(stack) as sender:
        before, image = stack.count(OUT_OF_REACH), stack.cluster.agreed()
        stack.zookeeper.kill()
        wait_until(lambda: stack.logged(OUT_OF_REACH, before), "the brokers miss ZooKeeper")
        progress(sender)
        assert stack.cluster.agreed() == image
        changed = stack.cluster.request_topic(image.controller, "later", 1, timeout_ms=500)
        assert changed == KafkaErrorCode.REQUEST_TIMED_OUT
        assert status(stack).count(
            "it serves, but changes of topics, configs and in-sync replicas wait or fail"
        ) == len(stack.brokers)
        stack.start_zookeeper()
        stack.cluster.create_topic("later", 1)
        assert ("later", 0) in stack.cluster.agreed().leaders
        wait_until(lambda: status(stack) == "", "the cluster is complete")


def status(stack: Stack) -> str:
    """The problems that `cluster status` names."""
    command = [sys.executable, "-m", "kafkalite", "cluster", "status", "-b", stack.cluster.bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=STATUS_S).stderr


def test_expired_sessions_are_replaced(stack: Stack) -> None:
    """An administrator ends the session of each broker, as ZooKeeper does after its timeout."""
    with load(stack) as sender:
        for broker in stack.brokers:
            expire_session(stack.zookeeper, broker)
            progress(sender)
        stack.cluster.agreed()


def expire_session(zookeeper: ZooKeeper, broker: Kafkalite) -> None:
    """End the session of a broker; again if the broker has taken it back before it was closed."""
    before = broker.said().count(LOST)

    def lost() -> bool:
        if broker.said().count(LOST) > before:
            return True
        if (file := broker.data / SAVED_SESSION).exists():
            saved = json.loads(file.read_text())
            close_session(zookeeper, (saved["session_id"], bytes.fromhex(saved["password"])))
        return False

    wait_until(lost, "the broker loses its session", every=1.0)


def close_session(zookeeper: ZooKeeper, key: tuple[int, bytes]) -> None:
    """Take a session over from its broker and close it, unless the broker is faster."""
    client = KazooClient(zookeeper.address, client_id=key)
    with suppress(KazooTimeoutError):
        client.start()
    client.stop()
    client.close()


def test_broker_moves_to_another_port_under_its_id(stack: Stack) -> None:
    with load(stack) as sender:
        port = stack.cluster.brokers[2].port
        stack.cluster.move(2)
        image = stack.cluster.agreed()
        assert image.ports[2] == stack.cluster.brokers[2].port != port
        assert 2 in image.leaders.values()
        progress(sender)


@pytest.mark.parametrize("factor", [1, 3])
def test_brokers_stop_at_an_empty_tree_and_start_with_all_data_at_the_restored_one(stack: Stack, factor: int) -> None:
    """ZooKeeper has lost its data, and is started empty: no broker creates a cluster in it, or deletes a file.

    A replacement with an empty disk creates one: the others stay away from it.
    """
    with load(stack, factor) as sender:
        files = log_files(stack)
        data, saved = stack.zookeeper.data, stack.directory / f"saved-{factor}"
        stack.zookeeper.kill()
        data.rename(saved)
        stack.start_zookeeper()
        assert [broker.wait() for broker in stack.brokers] == [EXIT_FAILED] * 3
        assert all("Nothing was changed: restore the tree" in broker.said() for broker in stack.brokers)
        assert log_files(stack) >= files
        first = stack.brokers[0]
        first.launch()
        assert first.wait() != 0 and "Nothing was changed: restore the tree" in first.said()
        assert nodes_below(stack.zookeeper) == [], "the brokers have created nothing"
        check_foreign_cluster(stack)
        assert log_files(stack) >= files
        stack.zookeeper.kill()
        data.rename(stack.directory / f"empty-{factor}")
        saved.rename(data)
        stack.start_zookeeper()
        stack.cluster.start(*stack.cluster.brokers)
        stack.cluster.agreed()
        progress(sender)


def check_foreign_cluster(stack: Stack) -> None:
    """A broker without data begins a new cluster in the empty tree; one with data ends with an error."""
    settings = {"zookeeper.connect": stack.zookeeper.address + CHROOT, "broker.id": "9"}
    replacement = Kafkalite(stack.directory / next(_replacements), settings)
    replacement.start()
    try:
        first = stack.brokers[0]
        first.launch()
        assert first.wait() != 0
        text = "the tree belongs to cluster"
        assert text in first.said() and "restore the tree, or correct zookeeper.connect" in first.said()
    finally:
        replacement.kill()


def log_files(stack: Stack) -> set[Path]:
    """The files of all partitions."""
    return {path for broker in stack.brokers for path in broker.data.glob("*-?/*.log")}


def nodes_below(zookeeper: ZooKeeper) -> list[str]:
    """The names of the cluster's nodes."""
    client = KazooClient(zookeeper.address)
    client.start(START_S)
    try:
        return list(client.get_children(CHROOT)) if client.exists(CHROOT) else []
    finally:
        client.stop()
        client.close()
