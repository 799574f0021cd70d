"""Broker processes with replicated partitions, each on a disk of its own: power cuts, lost disks, and the replicas.

Invariant: no process runs between the moment of a cut and its end, so that none acknowledges what is on no disk.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.process.saved_session import NAME as SAVED_SESSION
from tests.kit.broker_processes import IDS, METADATA_VERSION, POLL_S, REPLICATED, BrokerProcesses, call_or_none
from tests.kit.brokers import wait_until
from tests.kit.checker import Partition, check
from tests.kit.load import IdempotentSender
from tests.kit.loop_disk import LoopDisk
from tests.kit.ports import free_port
from tests.kit.readers import read_by_librdkafka
from tests.kit.rig import assert_kept
from tests.kit.traced import TracedKafkalite

MEGABYTES = 512
LAG_MS = 3_000
FACTOR = int(REPLICATED["default.replication.factor"])
SETTINGS = {
    **REPLICATED,
    "replica.lag.time.max.ms": str(LAG_MS),
    # Leaders change by faults and by requests of tests alone.
    "auto.leader.rebalance.enable": "false",
}
ACKS_MIN = 100
PAUSE_S = 0.02
OTHER_BOOT = "00000000-0000-0000-0000-000000000000"


class State(NamedTuple):
    """What a broker knows of a partition.

    Attributes:
        leader: broker id, -1 = none.
        isr: broker ids of the in-sync replicas.
        replicas: broker ids of the replicas, the preferred leader first.
    """

    leader: int
    isr: frozenset[int]
    replicas: tuple[int, ...]


class ReplicatedBrokers(BrokerProcesses):
    """Three brokers with topics of three replicas, of which acks=all needs two.

    Arguments:
        directory: for everything.
        coordination: the settings that name the coordination service.
        filesystem: of each broker's disk.
    """

    def __init__(self, directory: Path, coordination: Mapping[str, str], filesystem: str = "ext4") -> None:
        super().__init__(directory, coordination, SETTINGS)
        self.disks = {each: LoopDisk(directory / f"disk-{each}", filesystem, MEGABYTES) for each in IDS}
        self._mounted = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as mounted:
            for broker_id, disk in self.disks.items():
                mounted.enter_context(disk)
                self.brokers[broker_id].data = disk.path / "data"
            super().__enter__()
            self._mounted = mounted.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._mounted:
            super().__exit__(kind, error, trace)

    # Faults.

    def cut_power(self, *broker_ids: int, kill: Sequence[int] = ()) -> None:
        """Cut the power of these brokers at one moment: what is not flushed is lost; at the same moment kill others."""
        for each in (*broker_ids, *kill):
            self.freeze(each)
        for each in broker_ids:
            self.disks[each].cut_power()
        for each in (*broker_ids, *kill):
            self.kill(each)
        for each in broker_ids:
            self.disks[each].unmount()

    def return_power(self, *broker_ids: int) -> None:
        """Boot these machines, and start their brokers."""
        for each in broker_ids:
            self.boot(each)
        self.start(*broker_ids)

    def boot(self, broker_id: int) -> None:
        """Mount the disk of a machine; the boot id in the file of the session, if it was flushed, is an earlier one."""
        self.disks[broker_id].mount()
        path = self.brokers[broker_id].data / SAVED_SESSION
        if path.exists() and (content := path.read_text()):
            path.write_text(json.dumps({**json.loads(content), "boot_id": OTHER_BOOT}))

    def lose_disk(self, broker_id: int) -> None:
        """Kill a broker and delete all its files; a machine with an empty disk and another port replaces it."""
        self.kill(broker_id)
        broker = self.brokers[broker_id]
        shutil.rmtree(broker.data)
        broker.port = free_port()

    @contextmanager
    def traced(self, broker_id: int, inject: str, paths: Sequence[Path]) -> Iterator[TracedKafkalite]:
        """A broker runs under strace in the block; it is stopped before and after it.

        Arguments:
            inject: strace's words for the fault.
            paths: only calls on these files are seen.
        """
        ordinary = self.brokers[broker_id]
        traced = TracedKafkalite(ordinary.directory, ordinary.settings, inject, paths)
        traced.data, traced.port = ordinary.data, ordinary.port
        for end, begin in ((ordinary, traced), (traced, ordinary)):
            assert end.stop() == end.clean_exit
            self.brokers[broker_id] = begin
            self.start(broker_id)
            if begin is traced:
                yield traced

    # What the brokers know, and what they have.

    def state(self, partition: Partition) -> State | None:
        """What a serving broker knows of a partition; None while it accepts no connection or knows none."""
        topic, index = partition
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        response = call_or_none(self.address(self.serving[0]), request, METADATA_VERSION)
        for found in [] if response is None else response.topics[0].partitions:
            if found.partition_index == index:
                return State(found.leader_id, frozenset(found.isr_nodes), tuple(found.replica_nodes))
        return None

    def until_state(self, partition: Partition, leaders: set[int], isr: set[int]) -> State:
        """Wait until a partition has one of these leaders and exactly this ISR."""
        found: list[State] = []

        def reached() -> bool:
            state = self.state(partition)
            found[:] = [] if state is None else [state]
            return state is not None and state.leader in leaders and state.isr == isr

        try:
            wait_until(reached, f"{partition} has a leader of {leaders} and the ISR {isr}", seconds=60.0, every=POLL_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; the state is {found}") from error
        return found[0]

    def until_in_sync(self, partitions: list[Partition]) -> None:
        """Wait until all replicas of all partitions are in sync."""
        for each in partitions:
            self.until_state(each, set(IDS), set(IDS))

    def leader(self, partition: Partition) -> int:
        """Wait until a partition has a leader; its id."""
        found: list[int] = []

        def led() -> bool:
            state = self.state(partition)
            found[:] = [] if state is None or state.leader < 0 else [state.leader]
            return bool(found)

        wait_until(led, f"{partition} has a leader", every=POLL_S)
        return found[0]


class ReplicatedLoad:
    """Records are sent to a new topic with three replicas in the block; behind it, all acknowledged ones are there.

    Arguments:
        cluster: has the brokers.
        topic: its name.
        partitions: their number.
        pause_s: of the producer, between two sends.
        configs: of the topic, with underscores.

    Attributes:
        partitions: of the topic.
        sender: the producer.
    """

    def __init__(
        self, cluster: ReplicatedBrokers, topic: str, partitions: int = 1, pause_s: float = PAUSE_S, **configs: str
    ) -> None:
        self.cluster = cluster
        self.partitions = cluster.create_topic(topic, partitions, FACTOR, **configs)
        self.sender = IdempotentSender(cluster.bootstrap, topic, partitions, pause_s=pause_s)

    def __enter__(self) -> Self:
        self.cluster.until_in_sync(self.partitions)
        self.sender.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.sender.is_alive():
            self.sender.give_up()

    def progress(self, acks: int = ACKS_MIN) -> None:
        """Wait until so many more records are acknowledged."""
        expected = self.sender.acks + acks
        wait_until(
            lambda: self.sender.acks >= expected or not self.sender.is_alive(), f"{expected} records are acknowledged"
        )
        assert self.sender.is_alive(), (self.sender.failure, self.sender.errors)

    def finish(self) -> None:
        """End the load; each record was acknowledged, is there once and in order, and is on all replicas."""
        self.sender.finish()
        self.read_all("at the end")
        self.cluster.until_in_sync(self.partitions)
        self.cluster.check_replicas(self.partitions)

    def read_all(self, reader: str) -> None:
        """Everything acknowledged is read. Raises ViolationError."""
        read_by_librdkafka(reader, self.cluster.bootstrap, self.partitions, self.sender.history)
        assert_kept(check(self.sender.history, reader))
