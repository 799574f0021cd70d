"""Leaders of three replicas are killed, suspended, and cut from the network and from ZooKeeper under load.

Each test draws its faults by its seed and lets every fault come once before one comes again; `--cluster-faults` is the
number for both. After each fault all partitions acknowledge again: in the long form, which runs on a quiet machine,
within session timeout + 5 s. At the end nothing acknowledged is lost or twice in the log, and the replicas' files are
equal.

The address of a broker is known before it is cut; the attempts at a cut broker are counted, and none is acknowledged.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.fix_torture import is_long
from tests.kit import jvm, network
from tests.kit.broker_processes import IDS, SESSION_MS, BrokerProcesses, image_of
from tests.kit.brokers import wait_until
from tests.kit.network import OUT, Network
from tests.kit.replication_load import ATTEMPTS_TOPIC, SETTINGS, Attempts, Replication, WaitingRequests
from tests.kit.zookeeper import ZooKeeper, start_zookeeper

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(600),
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache ZooKeeper: {jvm.java_missing()}"),
]
CHROOT = "/kafka"
TICK_MS = 500
NETWORK_SHARE = 5 / 8  # of the faults
OUT_OF_REACH = "the coordination service is out of reach"
KILLS = ("kill_leader", "kill_some", "kill_all", "suspend_leader", "restart_each", "stop_zookeeper")
CUTS = ("minority", "leader_alone", "leader_from_follower", "one_way", "zookeeper")


class ProcessFaults:
    """Faults of processes."""

    def __init__(self, load: Replication, zookeeper: ZooKeeper, random: Random) -> None:
        self.load = load
        self.cluster = load.cluster
        self.zookeeper = zookeeper
        self._random = random

    def kill_leader(self) -> None:
        """SIGKILL; start it again when the others lead."""
        leader, since = self.load.leader(), time.monotonic()
        self.cluster.kill(leader)
        self.load.available(since)
        self.cluster.start(leader)

    def kill_some(self) -> None:
        """SIGKILL of one or two brokers, started at once."""
        self._kill_and_start(self._random.sample(IDS, self._random.randint(1, 2)))

    def kill_all(self) -> None:
        """SIGKILL of all brokers, started at once: each topic is there, with all that was acknowledged."""
        self._kill_and_start(list(IDS))

    def _kill_and_start(self, broker_ids: list[int]) -> None:
        for each in broker_ids:
            self.cluster.kill(each)
        self.cluster.start(*broker_ids)
        self.load.available(time.monotonic())

    def suspend_leader(self) -> None:
        """SIGSTOP beyond the session; requests that wait in its sockets are not acknowledged when it continues."""
        leader = self.load.leader()
        waiting, since = WaitingRequests(self.cluster.address(leader), 0), time.monotonic()
        self.cluster.freeze(leader)
        waiting.send()
        self.load.available(since)
        assert self.load.leader() != leader
        self.cluster.thaw(leader)
        print(f"requests that waited in sockets of broker {leader}, error codes: {Counter(waiting.finish())}")

    def restart_each(self) -> None:
        """Stop and start the brokers one after the other, each when all replicas are in sync, as an upgrade does."""
        for each in IDS:
            self.load.wait_complete()
            since = time.monotonic()
            self.cluster.stop(each)
            self.load.available(since)
            self.cluster.start(each)

    def stop_zookeeper(self) -> None:
        """ZooKeeper is down for longer than the session; the brokers serve."""
        brokers = list(self.cluster.brokers.values())
        before = [broker.said().count(OUT_OF_REACH) for broker in brokers]
        self.zookeeper.kill()
        wait_until(
            lambda: all(b.said().count(OUT_OF_REACH) > n for b, n in zip(brokers, before, strict=True)),
            "the brokers miss ZooKeeper",
        )
        stopped = time.monotonic()
        wait_until(lambda: time.monotonic() > stopped + SESSION_MS / 1000, "the time of a session")
        self.load.available(time.monotonic())
        host, port = self.zookeeper.address.rsplit(":", 1)
        self.zookeeper = start_zookeeper(self.zookeeper.directory, int(port), TICK_MS, host=host)


class NetworkFaults:
    """Faults of the network: the leader of a partition is cut in five shapes."""

    def __init__(self, load: Replication, zookeeper: ZooKeeper, net: Network) -> None:
        self.load = load
        self.cluster = load.cluster
        self._zookeeper_port = int(zookeeper.address.rpartition(":")[2])
        self._network = net

    def minority(self) -> None:
        """A leader is cut from the others and from ZooKeeper: the others lead."""
        leader, others = self._leader()
        self._network.cut(leader, *others)
        self._cut_zookeeper(leader)
        self._isolated(leader, others[0], replaced=True)

    def zookeeper(self) -> None:
        """A leader is cut from ZooKeeper alone: the others lead when its session has ended."""
        leader, others = self._leader()
        address = self.cluster.address(others[0])
        self._cut_zookeeper(leader)

        def replaced() -> bool:
            image = image_of(address)  # until its session has ended, the leader acknowledges with its followers
            return image is not None and image.leaders[ATTEMPTS_TOPIC, 0] in others

        wait_until(replaced, "another broker leads")
        self._isolated(leader, others[0], replaced=True)

    def leader_alone(self) -> None:
        """A leader is cut from its followers, and keeps its session: no broker acknowledges before the cut ends."""
        leader, others = self._leader()
        self._network.cut(leader, *others)
        self._isolated(leader, others[0], replaced=False)

    def one_way(self) -> None:
        """What a leader sends to its followers is dropped; it still receives their packets."""
        leader, others = self._leader()
        for each in others:
            self._network.drop(leader, OUT, "-d", self._network.address(each))
        self._isolated(leader, others[0], replaced=False)

    def leader_from_follower(self) -> None:
        """A leader is cut from a follower, and both reach the controller: each removes the other one from its ISRs."""
        image = self.cluster.agreed()
        leader, follower = (each for each in IDS if each != image.controller)
        since = time.monotonic()
        self._network.cut(leader, follower)
        self.load.available(since, image.controller)
        self._heal(leader)

    def _leader(self) -> tuple[int, list[int]]:
        leader = self.load.leader()
        return leader, [each for each in IDS if each != leader]

    def _cut_zookeeper(self, broker_id: int) -> None:
        self._network.cut_port(broker_id, self._zookeeper_port)

    def _isolated(self, leader: int, other: int, *, replaced: bool) -> None:
        """Nothing that is sent to the cut leader of partition 0 is acknowledged; all acknowledge after the cut.

        Arguments:
            leader: the cut broker.
            other: one of the others.
            replaced: the others elect leaders and acknowledge during the cut.
        """
        attempts, since = Attempts(self.cluster.address(leader), 0), time.monotonic()
        attempts.start()
        if replaced:
            self.load.available(since, other)
        codes = Counter(attempts.finish())
        print(f"attempts at broker {leader}, error codes: {codes}")
        self._heal(leader)
        self.load.available(time.monotonic(), other)

    def _heal(self, broker_id: int) -> None:
        assert self._network.dropped(broker_id) > 0, "no packet matched a rule"
        self._network.heal()


def drawn(names: tuple[str, ...], count: int, random: Random) -> Iterator[str]:
    """`count` names, each once before one comes again."""
    while count > 0:
        chosen = random.sample(names, min(count, len(names)))
        count -= len(chosen)
        yield from chosen


@contextmanager
def loaded(load: Replication) -> Iterator[None]:
    """The loads run in the block; the checks follow it. After a failure the state of the cluster is printed."""
    try:
        load.begin()
        yield
        load.end()
    except BaseException:
        load.describe()
        raise
    finally:
        load.over()


def run(load: Replication, faults: object, names: Iterator[str]) -> None:
    """Apply faults; after each, progress and complete ISRs."""
    for name in names:
        print(f"fault: {name}")
        getattr(faults, name)()
        load.progress()
        load.wait_complete()


@pytest.fixture
def fault_count(pytestconfig: pytest.Config) -> int:
    """Faults in all."""
    count: int = pytestconfig.getoption("--cluster-faults")
    return count


@pytest.fixture
def available_s(pytestconfig: pytest.Config) -> float:
    """How long after a fault partitions may not acknowledge; no bound beside other tests."""
    return SESSION_MS / 1000 + 5.0 if is_long(pytestconfig) else math.inf


def test_killed_and_suspended_leaders_lose_nothing(
    fault_count: int, available_s: float, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    count = max(len(KILLS), fault_count - round(fault_count * NETWORK_SHARE))
    zookeeper = start_zookeeper(tmp_path / "zookeeper", tick_ms=TICK_MS)
    faults = None
    try:
        settings = {"zookeeper.connect": zookeeper.address + CHROOT}
        with BrokerProcesses(tmp_path, settings, SETTINGS) as cluster:
            load = Replication(cluster, available_s)
            faults = ProcessFaults(load, zookeeper, random)
            with loaded(load):
                run(load, faults, drawn(KILLS, count, random))
    finally:
        (faults.zookeeper if faults else zookeeper).kill()
    record_property("summary", load.summary())


@pytest.mark.long_form
@pytest.mark.skipif(network.missing() is not None, reason=f"network namespaces: {network.missing()}")
def test_leaders_cut_from_the_network_acknowledge_nothing_that_is_lost(
    fault_count: int, available_s: float, random: Random, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    count = round(fault_count * NETWORK_SHARE)
    with Network(IDS) as net:
        zookeeper = start_zookeeper(tmp_path / "zookeeper", tick_ms=TICK_MS, host=net.host)
        try:
            cluster = BrokerProcesses(tmp_path, {"zookeeper.connect": zookeeper.address + CHROOT}, SETTINGS)
            net.use_namespaces(cluster)
            with cluster:
                load = Replication(cluster, available_s)
                with loaded(load):
                    run(load, NetworkFaults(load, zookeeper, net), drawn(CUTS, count, random))
        finally:
            zookeeper.kill()
    record_property("summary", load.summary())
