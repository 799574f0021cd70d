"""Transactions on three replicas: followers know them as the leader does, also after elections and truncations.

Without a coordinator, the leader's broker appends batches and markers itself.
"""

from __future__ import annotations

from pathlib import Path

from kafkalite.cluster.partition.append import Append, OwnAppend
from kafkalite.cluster.partition.partition import Partition
from kafkalite.protocol.messages.describe_producers import DescribeProducersRequest
from kafkalite.records.control import ControlType, Marker, build_marker
from kafkalite.storage.log.log import Log
from kafkalite.testing.simulated_cluster import host_of
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.server import fetch_request, fetched, values_of
from tests.story.replication.final_checks import check_replicas
from tests.story.replication.observer import Observer
from tests.story.replication.test_three_replicas import ORDERS, in_a_cluster, leader_of, until_in_sync
from tests.story.replication.world import ReplicatedWorld
from tests.unit.storage.damage import batch
from tests.unit.storage.transactional import producers_of

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


class Writer:
    """Producers and a coordinator at the leader of `orders`."""

    def __init__(self, world: ReplicatedWorld) -> None:
        self.world = world
        self._sequences: dict[tuple[int, int], int] = {}
        self.results: list[int] = []

    @property
    def partition(self) -> Partition:
        return partition_of(self.world, leader_of(self.world))

    def append(self, data: bytearray, marker_version: int = 0) -> None:
        def done(append: Append) -> None:
            self.results.append(append.error)

        replicas = self.world.brokers[leader_of(self.world)].running.replicas
        self.partition.append_internal(OwnAppend(data, done, marker_version=marker_version))
        replicas.write_pending()

    def send(self, producer: int, epoch: int = 0, count: int = 2) -> None:
        """Append a transactional batch."""
        sequence = self._sequences.get((producer, epoch), 0)
        self._sequences[producer, epoch] = sequence + count
        fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        self.append(bytearray(batch(count, transactional=True, **fields)))

    def end(self, producer: int, kind: ControlType, epoch: int = 1) -> None:
        """Append a TV2 marker."""
        self.append(bytearray(build_marker(Marker(kind, 0), producer, epoch, 5)), marker_version=2)

    async def committed(self, count: int) -> None:
        """Wait until so many appends have ended without an error."""
        for _ in range(200):
            if len(self.results) >= count:
                break
            await pass_time(0.05)
        assert self.results == [0] * count


def partition_of(world: ReplicatedWorld, broker_id: int) -> Partition:
    found = world.brokers[broker_id].running.replicas.partition(ORDERS[0], b"", ORDERS[1], by_id=False)
    assert isinstance(found, Partition)
    return found


def log_of(world: ReplicatedWorld, broker_id: int) -> Log:
    log = partition_of(world, broker_id).log
    assert log is not None
    return log


def known(world: ReplicatedWorld, broker_id: int) -> tuple[object, ...]:
    """What a replica knows of producers and transactions."""
    log = log_of(world, broker_id)
    aborted = [entry for segment in log.segments for entry in segment.transactions.entries()]
    return producers_of(log), log.producers.open_transactions(), aborted


def followers_of(world: ReplicatedWorld) -> list[int]:
    return [each for each in world.replicas()[ORDERS] if each != leader_of(world)]


def test_followers_know_producers_and_aborted_transactions_as_their_leader(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        writer = Writer(world)
        for producer, kind in ((7, COMMIT), (8, ABORT), (9, ABORT)):
            writer.send(producer)
            writer.send(producer)
            writer.end(producer, kind)
        writer.send(10)
        await writer.committed(10)
        await pass_time(1.0)
        leader = known(world, leader_of(world))
        assert [known(world, each) for each in followers_of(world)] == [leader, leader]
        _, opened, aborted = leader
        assert opened == [(15, 10)]
        assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(8, 5), (9, 10)]  # type: ignore[attr-defined]
        stable = {partition_of(world, each).last_stable_offset for each in world.replicas()[ORDERS]}
        assert stable == {15}
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_new_leader_continues_the_transactions_of_the_dead_one(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        writer = Writer(world)
        writer.send(7)
        await writer.committed(1)
        await pass_time(1.0)
        killed = leader_of(world)
        world.cluster.kill(killed)
        while leader_of(world) in (killed, -1):
            await pass_time(0.1)
        await pass_time(1.0)
        assert not log_of(world, leader_of(world)).transaction_error(7, 0)
        writer.send(7)
        writer.end(7, ABORT)
        await writer.committed(3)
        await world.cluster.start(killed)
        await until_in_sync(world)
        await pass_time(1.0)
        leader = known(world, leader_of(world))
        assert [known(world, each) for each in followers_of(world)] == [leader, leader]
        assert leader[1] == []
        assert partition_of(world, leader_of(world)).last_stable_offset == 5

    in_a_cluster(tmp_path, scenario)


def test_stable_offset_does_not_pass_a_marker_before_the_high_watermark(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        writer = Writer(world)
        writer.send(7)
        await writer.committed(1)
        leader, others = leader_of(world), followers_of(world)
        for each in others:
            world.network.disconnect(host_of(leader), host_of(each))
        writer.end(7, COMMIT)
        partition = writer.partition
        assert log_of(world, leader).log_end_offset == 3
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
        for each in others:
            world.network.reconnect(host_of(leader), host_of(each))
        await until_in_sync(world)
        await writer.committed(2)
        assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)

    in_a_cluster(tmp_path, scenario)


def test_truncated_marker_opens_its_transaction_again(tmp_path: Path) -> None:
    """The marker was on the dead leader alone: the transaction is open on all replicas, until the next marker."""

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        writer = Writer(world)
        writer.send(7)
        await writer.committed(1)
        await pass_time(1.0)
        dead, others = leader_of(world), followers_of(world)
        for each in others:
            world.network.disconnect(host_of(dead), host_of(each))
        writer.end(7, ABORT)
        assert log_of(world, dead).transaction_error(7, 0)
        world.cluster.kill(dead)
        for each in others:
            world.network.reconnect(host_of(dead), host_of(each))
        while leader_of(world) in (dead, -1):
            await pass_time(0.1)
        await world.cluster.start(dead)
        await until_in_sync(world)
        await pass_time(1.0)
        assert [not log_of(world, each).transaction_error(7, 0) for each in (dead, *others)] == [True] * 3
        assert [known(world, each)[2] for each in (dead, *others)] == [[]] * 3
        assert partition_of(world, leader_of(world)).last_stable_offset == 0
        writer.results.clear()
        writer.end(7, COMMIT)
        await writer.committed(1)
        await pass_time(1.0)
        assert [known(world, each)[1:] for each in (dead, *others)] == [([], [])] * 3
        assert partition_of(world, leader_of(world)).last_stable_offset == 3
        await check_replicas(world)

    in_a_cluster(tmp_path, scenario)


def test_first_fetch_from_a_new_leader_leaves_out_open_and_aborted_transactions(tmp_path: Path) -> None:
    """redpanda#5090: the tail of the log has both when the leader dies."""

    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        writer = Writer(world)
        writer.send(7)
        writer.end(7, COMMIT)
        writer.send(8)
        writer.end(8, ABORT)
        writer.send(9)
        await writer.committed(5)
        await pass_time(1.0)
        killed = leader_of(world)
        world.cluster.kill(killed)
        seen: list[tuple[int, list[tuple[int, int]], int]] = []
        while not seen:
            leader = leader_of(world)
            if leader not in (killed, -1):
                request = fetch_request(ORDERS[0], (ORDERS[1], 0), isolation_level=1)
                part = fetched(await world.call(leader, request, 12))[ORDERS]
                if not part.error_code:
                    aborted = [(entry.producer_id, entry.first_offset) for entry in part.aborted_transactions]
                    seen.append((part.last_stable_offset, aborted, len(values_of(part.records))))
            await pass_time(0.01)
        stable, aborted, count = seen[0]
        assert stable <= 6 and count <= 6, "the open transaction begins at 6"
        assert aborted == [(8, 3)] or stable <= 3
        await world.cluster.start(killed)
        await until_in_sync(world)

    in_a_cluster(tmp_path, scenario)


def test_describe_producers_shows_open_transactions_of_the_new_leader(tmp_path: Path) -> None:
    async def scenario(world: ReplicatedWorld, _observer: Observer) -> None:
        writer = Writer(world)
        writer.send(7)
        await writer.committed(1)
        await pass_time(1.0)
        killed = leader_of(world)
        world.cluster.kill(killed)
        while leader_of(world) in (killed, -1):
            await pass_time(0.1)
        await pass_time(1.0)
        topic = DescribeProducersRequest.TopicRequest(name=ORDERS[0], partition_indexes=[ORDERS[1]])
        response = await world.call(leader_of(world), DescribeProducersRequest(topics=[topic]), 0)
        (found,) = response.topics[0].partitions[0].active_producers
        assert (found.producer_id, found.producer_epoch, found.current_txn_start_offset) == (7, 0, 0)
        await world.cluster.start(killed)
        await until_in_sync(world)

    in_a_cluster(tmp_path, scenario)
