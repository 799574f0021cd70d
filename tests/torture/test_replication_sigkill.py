"""Brokers of topics with three replicas are killed, suspended and stopped: what was acknowledged is kept, once.

An idempotent producer of librdkafka writes with acks=all to a topic with min.insync.replicas=2, which no fsync
protects, and a consumer of a group follows it and commits. After each fault records are acknowledged again; the summary
says when. At the end the files of the replicas are equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.kit import jvm
from tests.kit.broker_processes import BrokerProcesses
from tests.kit.brokers import wait_until
from tests.kit.committing_reader import CommittingReader
from tests.kit.load import IdempotentSender
from tests.kit.replica_invariants import different_replicas
from tests.kit.replica_logs import read_log
from tests.kit.zookeeper import start_zookeeper
from tests.torture.test_cluster_sigkill import CHROOT, GROUP, PARTITIONS, PAUSE_S, TICK_MS, TOPIC, FaultSeries

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(600),
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache ZooKeeper: {jvm.java_missing()}"),
]
SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000", "default.replication.factor": "3"}


class ReplicaFaults(FaultSeries):
    """A running cluster, its loads, and the faults of its replicas."""

    def __init__(self, cluster: BrokerProcesses, random: Random) -> None:
        self.cluster = cluster
        self.partitions = cluster.create_topic(TOPIC, PARTITIONS, factor=3)
        self.sender = IdempotentSender(cluster.bootstrap, TOPIC, PARTITIONS, pause_s=PAUSE_S)
        self.reader = CommittingReader(cluster.bootstrap, GROUP, TOPIC)
        self.unavailable_s: list[tuple[str, float]] = []
        self._random = random
        self._fault = ""

    @property
    def faults(self) -> list[Callable[[], None]]:
        """Each fault; it ends when all brokers run again."""
        return [
            self.kill_leader,
            self.kill_two,
            self.kill_all,
            self.suspend_leader,
            self.stop_each,
            self.restart_leader,
        ]

    def replicated(self) -> None:
        """Wait until all replicas are in sync."""
        wait_until(lambda: self.ended() or self.cluster.in_sync(TOPIC), "all replicas are in sync")

    def leader(self) -> int:
        """The leader of a partition."""
        return self.cluster.agreed().leaders[self._random.choice(self.partitions)]

    def acknowledges_again(self, begin: float) -> None:
        """Wait for the next acknowledgement; note how long there was none since a fault."""
        acks = self.sender.acks
        wait_until(lambda: self.ended() or self.sender.acks > acks, "records are acknowledged again")
        self.unavailable_s.append((self._fault, time.monotonic() - begin))

    def kill_leader(self) -> None:
        """Kill a leader, and start it when another one acknowledges."""
        broker_id, begin = self.leader(), time.monotonic()
        self.cluster.kill(broker_id)
        self.acknowledges_again(begin)
        self.cluster.agreed()
        self.cluster.start(broker_id)

    def restart_leader(self) -> None:
        """Kill a leader, and start it at once."""
        broker_id, begin = self.leader(), time.monotonic()
        self.cluster.kill(broker_id)
        self.cluster.start(broker_id)
        self.acknowledges_again(begin)

    def kill_two(self) -> None:
        """Kill two brokers at once: nothing is acknowledged until one of them runs again."""
        killed = self._random.sample(list(self.cluster.brokers), 2)
        for each in killed:
            self.cluster.kill(each)
        begin = time.monotonic()
        self.cluster.start(*killed)
        self.acknowledges_again(begin)

    def kill_all(self) -> None:
        """Kill all brokers at once."""
        for each in self.cluster.brokers:
            self.cluster.kill(each)
        begin = time.monotonic()
        self.cluster.start(*self.cluster.brokers)
        self.acknowledges_again(begin)

    def suspend_leader(self) -> None:
        """Suspend a leader beyond its session."""
        broker_id, begin = self.leader(), time.monotonic()
        self.cluster.freeze(broker_id)
        self.acknowledges_again(begin)
        self.cluster.agreed()
        self.cluster.thaw(broker_id)

    def stop_each(self) -> None:
        """Restart the brokers one after the other, as an upgrade does."""
        for each in self.cluster.brokers:
            self.replicated()
            begin = time.monotonic()
            self.cluster.stop(each)
            self.acknowledges_again(begin)
            self.cluster.start(each)

    def round(self, fault: Callable[[], None]) -> None:
        """Apply a fault when all replicas are in sync, and wait until they are again and the loads proceed."""
        self.replicated()
        self._fault = fault.__name__
        print(self._fault)
        fault()
        self.cluster.agreed()
        self.progress()

    def check_files(self) -> None:
        """The replicas are equal; all brokers have stopped."""
        violations: list[str] = []
        for partition in self.partitions:
            logs = {
                each: log
                for each, broker in self.cluster.brokers.items()
                if (log := read_log(broker.data / f"{partition[0]}-{partition[1]}")) is not None
            }
            assert len(logs) == len(self.cluster.brokers)
            end_offset = max(log.end_offset for log in logs.values())
            violations += different_replicas(partition, logs, end_offset, compacted=False)
        assert not violations, "\n".join(violations[:20])


def test_replicated_records_are_kept_when_brokers_are_killed(
    cluster_series: int, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    zookeeper = start_zookeeper(tmp_path / "zookeeper", tick_ms=TICK_MS)
    try:
        with BrokerProcesses(tmp_path, {"zookeeper.connect": zookeeper.address + CHROOT}, SETTINGS) as cluster:
            this = ReplicaFaults(cluster, random)
            try:
                this.begin()
                for fault in random.sample(this.faults, len(this.faults)):
                    this.round(fault)
                this.replicated()
                this.end()
            finally:
                this.over()
            for each in cluster.brokers:
                cluster.stop(each)
            this.check_files()
    finally:
        zookeeper.kill()
    waits = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in this.unavailable_s)
    record_property("summary", f"{this.sender.acks} records; acknowledged again after: {waits}")
