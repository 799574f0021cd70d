"""The brokers of a cluster are restarted one after the other, as an upgrade does, under aiokafka and Java's clients.

`test_replication_processes` does the same under librdkafka and the SDK. No client reports an error: what a broker that
stops refuses is retried by the clients themselves. Each record is in the log once, and consumers of three group
protocols read all of them, without a rebalance (consumer_test of Apache Kafka's system tests).

`--release PYTHON` names the interpreter of an installed older build: the brokers are upgraded from it in turn, and go
back to it in turn, so that brokers of both builds are in one cluster (upgrade_test and downgrade_test). `make torture
RELEASE=COMMIT` installs that commit first.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest
from tests.kit import jvm
from tests.kit.broker_processes import IDS, POLL_S, REPLICATED, BrokerProcesses, call, image_of
from tests.kit.brokers import wait_until
from tests.kit.checker import Partition
from tests.kit.clients.java_members import JavaProcess
from tests.kit.clients.members import AIO, REFUSED, Crowd, Member, Seen, Wish
from tests.kit.zookeeper import start_zookeeper

pytestmark = [
    pytest.mark.torture,
    pytest.mark.long_form,
    pytest.mark.timeout(900),
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache ZooKeeper: {jvm.java_missing()}"),
]
TICK_MS = 500
PARTITIONS = 6
RECORDS_MIN = 50  # read by each consumer after each restart
PAUSE_S = 0.01
DEADLINE_S = 120.0


class RecordSender(threading.Thread, ABC):
    """A producer of a client library, which sends to a topic until `finish`.

    Attributes:
        placed: partition and offset of each record that was acknowledged.
    """

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(name=topic, daemon=True)
        self.topic = topic
        self.placed: list[tuple[int, int]] = []
        self._address = address
        self._ending = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.send()
        except BaseException as failure:  # raised again by `finish`
            self._failure = failure

    @abstractmethod
    def send(self) -> None:
        """Send records until `_ending` is set, and wait for the acknowledgement of each."""

    def finish(self) -> set[Seen]:
        """Wait until everything is answered; raises what went wrong. Returns where the records are."""
        self._ending.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), f"{self.name}: not all records are answered"
        if self._failure is not None:
            raise self._failure
        return {Seen(self.topic, *each) for each in self.placed}


class AioSender(RecordSender):
    """aiokafka's idempotent producer."""

    def send(self) -> None:
        """As `RecordSender.send`."""
        asyncio.run(self._send())

    async def _send(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._address, acks="all", enable_idempotence=True) as producer:
            answers = []
            for number in itertools.count():
                answers.append(await producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS))
                if await asyncio.to_thread(self._ending.wait, PAUSE_S):
                    break
            self.placed += [(each.partition, each.offset) for each in await asyncio.gather(*answers)]


class JavaSender(RecordSender):
    """Java's producer as it is by default: idempotent, acks=all."""

    def send(self) -> None:
        """As `RecordSender.send`."""
        command = [*jvm.java_command(jvm.CURRENT, str(jvm.KIT / "KeyedProducer.java")), self._address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            for number in itertools.count():
                process.stdin.write(f"{self.topic}\t{number:08x}\n")
                process.stdin.flush()
                if self._ending.wait(PAUSE_S):
                    break
            process.stdin.close()
            for line in process.stdout:
                partition, offset = line.split()
                self.placed.append((int(partition), int(offset)))
        assert process.returncode == 0, f"a record failed: exit {process.returncode}"


@contextmanager
def cluster_of_three(directory: Path, build: str) -> Iterator[BrokerProcesses]:
    """Three broker processes of one build over ZooKeeper; topics have three replicas."""
    zookeeper = start_zookeeper(directory / "zookeeper", tick_ms=TICK_MS)
    try:
        cluster = BrokerProcesses(directory, {"zookeeper.connect": zookeeper.address, **REPLICATED})
        for broker in cluster.brokers.values():
            broker.python = build
        with cluster:
            yield cluster
    finally:
        zookeeper.kill()


def until_in_sync(cluster: BrokerProcesses) -> None:
    """Wait until all brokers know that all replicas are in sync."""

    def complete() -> bool:
        images = [image_of(cluster.address(each)) for each in cluster.brokers]
        return all(image is not None and set(image.in_sync.values()) == {frozenset(IDS)} for image in images)

    wait_until(complete, "all replicas are in sync", every=POLL_S)


def commit(member: Member) -> None:
    """Commit what it has read; again while its group rebalances or its coordinator moves."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            member.commit()
        except REFUSED:
            assert time.monotonic() < deadline, f"{member.name}: commits are refused"
        else:
            return


def more_read(crowd: Crowd, members: list[Member]) -> None:
    """Wait until each member has read more records, and commit them."""
    wanted = [len(each.seen) + RECORDS_MIN for each in members]
    what = f"each consumer reads {RECORDS_MIN} more records"
    crowd.wait(lambda: all(len(m.seen) >= n for m, n in zip(members, wanted, strict=True)), what, seconds=DEADLINE_S)
    for each in members:
        commit(each)


def generations(cluster: BrokerProcesses, members: list[Member]) -> dict[str, int]:
    """The generation of each member's group, which grows with each rebalance."""
    found: dict[str, int] = {}

    def known() -> bool:
        request = ListGroupsPlusRequest(groups=[each.wish.group for each in members])
        groups = call(cluster.address(cluster.serving[0]), request, 0).groups
        found.update({each.group_id: each.generation_id for each in groups if not each.error_code})
        return len(found) == len(members)

    wait_until(known, "the groups are loaded", every=POLL_S)
    return found


def stored(cluster: BrokerProcesses, partitions: list[Partition]) -> int:
    """The number of offsets of all partitions."""
    return sum(max(log.end_offset for log in cluster.replica_logs(each).values()) for each in partitions)


@pytest.fixture
def release(pytestconfig: pytest.Config) -> str:
    """The interpreter of the older build."""
    found: str | None = pytestconfig.getoption("--release")
    if found is None:
        pytest.skip("--release names no older build")
    return found


def check_restarts(directory: Path, builds: list[str]) -> None:
    """Restart each of three brokers with each of the builds in turn, under all clients; the first one is there before.

    Arguments:
        directory: for everything.
        builds: the interpreter of the first start, and of each series of restarts.
    """
    with cluster_of_three(directory, builds[0]) as cluster:
        senders = [AioSender(cluster.bootstrap, "aio"), JavaSender(cluster.bootstrap, "java")]
        partitions = [each for sender in senders for each in cluster.create_topic(sender.topic, PARTITIONS, factor=3)]
        with JavaProcess(jvm.CURRENT, cluster.bootstrap) as java, Crowd(cluster.bootstrap) as crowd:
            kinds = [AIO, java.kind("cooperative-sticky"), java.kind("consumer")]
            members = [crowd.join(kind, Wish(kind.name, ("aio", "java"))) for kind in kinds]
            for sender in senders:
                sender.start()
            more_read(crowd, members)
            before = generations(cluster, members)
            for build, broker_id in itertools.product(builds[1:], IDS):
                until_in_sync(cluster)
                cluster.stop(broker_id)
                more_read(crowd, members)
                cluster.brokers[broker_id].python = build
                cluster.start(broker_id)
                more_read(crowd, members)
            assert generations(cluster, members) == before, "no group has rebalanced"
            sent = set[Seen]().union(*(sender.finish() for sender in senders))
            for each in members:
                crowd.read(sent, each)
        assert len(sent) == sum(len(sender.placed) for sender in senders) == stored(cluster, partitions)
        until_in_sync(cluster)
        cluster.check_replicas(partitions)


def test_clients_report_no_error_while_brokers_are_restarted_one_after_another(tmp_path: Path) -> None:
    check_restarts(tmp_path, [sys.executable] * 3)


def test_clients_report_no_error_while_brokers_are_upgraded_and_go_back(tmp_path: Path, release: str) -> None:
    check_restarts(tmp_path, [release, sys.executable, release])
