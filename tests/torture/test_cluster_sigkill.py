"""Controller and coordinator of a cluster of processes are killed and suspended: nothing acknowledged is lost.

A life is a cluster of three brokers with each fault once, in random order. An idempotent producer writes to a topic
with flush.messages=1, a consumer of a group follows it and commits. Over ZooKeeper its transaction log shows the author
of each write: a controller that was suspended beyond its session writes nothing when it continues.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.kit import jvm
from tests.kit.broker_processes import BrokerProcesses
from tests.kit.brokers import wait_until
from tests.kit.checker import check
from tests.kit.clients.groups import committed
from tests.kit.committing_reader import CommittingReader
from tests.kit.load import IdempotentSender
from tests.kit.readers import read_by_librdkafka
from tests.kit.rig import assert_kept
from tests.kit.transaction_log import foreign_writes, multis
from tests.kit.zookeeper import start_zookeeper

pytestmark = [pytest.mark.torture, pytest.mark.timeout(400)]
TOPIC, GROUP, PARTITIONS = "orders", "billing", 6
FAULTS = [(how, whom) for how in ("kill", "suspend") for whom in ("controller", "coordinator")]
CHROOT = "/kafka"
TICK_MS = 500
ACKS_MIN = 100
COMMITS_MIN = 3
PAUSE_S = 0.05
OUT_OF_REACH = "the coordination service is out of reach"
SERVES = "this broker serves the coordination directory"


class FaultSeries:
    """A running cluster, its loads, and the faults."""

    def __init__(self, cluster: BrokerProcesses) -> None:
        self.cluster = cluster
        self.partitions = cluster.create_topic(TOPIC, PARTITIONS, flush_messages="1")
        self.sender = IdempotentSender(cluster.bootstrap, TOPIC, PARTITIONS, pause_s=PAUSE_S)
        self.reader = CommittingReader(cluster.bootstrap, GROUP, TOPIC)

    def begin(self) -> None:
        """Start the loads."""
        self.sender.start()
        self.reader.start()
        self.progress()

    def progress(self) -> None:
        """Wait until more records and commits are acknowledged."""
        acks, commits = self.sender.acks + ACKS_MIN, self.reader.commits + COMMITS_MIN
        wait_until(lambda: self.ended() or self.sender.acks >= acks, f"{acks} records are acknowledged")
        wait_until(lambda: self.ended() or self.reader.commits >= commits, f"{commits} commits are acknowledged")
        assert not self.ended()

    def ended(self) -> bool:
        """Whether a load has failed."""
        return not (self.sender.is_alive() and self.reader.is_alive())

    def step(self, how: str, whom: str) -> None:
        """One fault, and the recovery from it."""
        broker_id = self.cluster.agreed().controller if whom == "controller" else self.cluster.coordinator(GROUP)
        print(f"{how} the {whom}, broker {broker_id}")
        getattr(self, how)(broker_id)
        self.cluster.agreed()
        self.progress()

    def kill(self, broker_id: int) -> None:
        """SIGKILL; start again when the others know."""
        self.cluster.kill(broker_id)
        self.cluster.agreed()
        self.cluster.start(broker_id)

    def suspend(self, broker_id: int) -> None:
        """SIGSTOP beyond its session; the process that serves a coordination directory stops all changes."""
        others = [self.cluster.brokers[each] for each in self.cluster.brokers if each != broker_id]
        serves = SERVES in self.cluster.brokers[broker_id].said()
        before = [broker.said().count(OUT_OF_REACH) for broker in others]
        self.cluster.freeze(broker_id)
        if serves:
            wait_until(
                lambda: all(b.said().count(OUT_OF_REACH) > n for b, n in zip(others, before, strict=True)),
                "the others miss the coordination service",
            )
        else:
            self.cluster.agreed()
        self.cluster.thaw(broker_id)

    def end(self) -> None:
        """Everything acknowledged is read, by the group too, and every acknowledged commit is there."""
        self.sender.finish()
        sends = self.sender.history.sends.values()
        acknowledged = {(*send.partition, send.offset) for send in sends if send.offset >= 0}
        wait_until(lambda: self.ended_reader() or acknowledged <= self.reader.seen, "the group reads everything")
        self.reader.finish()
        found = committed(self.cluster.bootstrap, GROUP, self.partitions)
        lost = {each: (offset, found[each]) for each, offset in self.reader.accepted.items() if found[each] < offset}
        assert lost == {}, "acknowledged and found offsets"
        read_by_librdkafka("reader", self.cluster.bootstrap, self.partitions, self.sender.history)
        assert_kept(check(self.sender.history, "reader"))

    def ended_reader(self) -> bool:
        """Whether the reader has failed."""
        return not self.reader.is_alive()

    def over(self) -> None:
        """Whatever happened: no thread and no process goes on."""
        for broker_id in list(self.cluster.suspended):
            self.cluster.thaw(broker_id)
        if self.sender.is_alive():
            self.sender.give_up()
        if self.reader.is_alive():
            self.reader.finish()


def run(cluster: BrokerProcesses, random: Random) -> str:
    """All faults in random order; a summary."""
    this = FaultSeries(cluster)
    try:
        this.begin()
        for how, whom in random.sample(FAULTS, len(FAULTS)):
            this.step(how, whom)
        this.end()
    finally:
        this.over()
    reader = this.reader
    return f"{this.sender.acks} records and {reader.commits} commits acknowledged, {reader.refused} commits failed"


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache ZooKeeper: {jvm.java_missing()}")
def test_cluster_over_zookeeper_keeps_what_it_acknowledged(
    cluster_series: int, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    zookeeper = start_zookeeper(tmp_path / "zookeeper", tick_ms=TICK_MS)
    try:
        with BrokerProcesses(tmp_path, {"zookeeper.connect": zookeeper.address + CHROOT}) as cluster:
            summary = run(cluster, random)
    finally:
        zookeeper.kill()
    epochs, count, wrong = foreign_writes(multis(zookeeper.data, CHROOT))
    assert epochs >= 3 and count > 0, "two controllers lost their session"
    assert wrong == []
    record_property("summary", f"cluster {cluster_series}: {summary}; {count} writes of controllers in {epochs} epochs")


def test_cluster_over_a_directory_keeps_what_it_acknowledged(
    cluster_series: int, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    with BrokerProcesses(tmp_path, {"kafkalite.coordination.directory": str(tmp_path / "shared")}) as cluster:
        record_property("summary", f"cluster {cluster_series}: {run(cluster, random)}")
