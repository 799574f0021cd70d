"""Partitions with several replicas on one broker: files, roles and fetches, as a scripted controller assigns them."""

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.metadata.update import FULL
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.metrics import Registry
from kafkalite.server.hosting import replica_roles
from kafkalite.server.hosting.assigned_partitions import AssignedPartitions
from kafkalite.server.running.replica_metrics import register_replica_metrics
from kafkalite.state.fetch_sessions import FetchSessions
from kafkalite.storage import checkpoints
from tests.kit.controlled import Cluster, errors
from tests.kit.server import batch
from tests.story.server.test_cluster_partitions import apply, directories, error_of, hosted
from tests.unit.storage.damage import batch as replicated

OWN, OTHER, THIRD = 1, 2, 3
STORAGE = Error.KAFKA_STORAGE_ERROR


class Fetchers:
    """Records what is fetched: the epoch in which each partition is followed."""

    def __init__(self) -> None:
        self.followed: dict[Partition, int] = {}
        self.calls: list[str] = []

    def follow(self, partition: Partition) -> None:
        assert isinstance(partition.role, Follower) and partition.log is not None
        assert not partition.log.holds_appends
        self.followed[partition] = partition.leader_epoch
        self.calls.append("follow")

    def stop(self, partition: Partition) -> None:
        if self.followed.pop(partition, None) is not None:
            self.calls.append("stop")

    def stop_all(self) -> None:
        self.followed.clear()
        self.calls.append("stop all")

    def brokers_changed(self) -> None:
        self.calls.append("brokers changed")

    def close(self) -> None:
        self.calls.append("close")


class Replica:
    """One broker, 1, of a partition with the replicas 1, 2 and 3."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        self.cluster = cluster
        self.path = path
        self.fetchers = Fetchers()
        self.use_fetchers()

    def use_fetchers(self) -> None:
        self.hosting.roles.fetchers = self.fetchers

    @property
    def hosting(self) -> AssignedPartitions:
        hosting = self.cluster[OWN].hosting
        assert isinstance(hosting, AssignedPartitions)
        return hosting

    @property
    def partition(self) -> Partition:
        return hosted(self.cluster, OWN, "t")

    async def assign(self, leader: int, isr: tuple[int, ...] = (), *, kind: int = FULL, **state: object) -> set[int]:
        """Send a new state; returns the error codes of the response."""
        self.cluster.replicate("t", leader, OWN, OTHER, THIRD, isr=isr, **state)  # type: ignore[arg-type]
        return errors(await apply(self.cluster, OWN, self.cluster.leader_and_isr(OWN, kind=kind)))

    async def restart(self) -> None:
        await self.cluster.brokers[OWN].stop()
        await self.cluster.brokers[OWN].start()
        self.use_fetchers()

    def append(self, *epochs: int) -> None:
        """Append a batch of each leader epoch, as the fetcher does."""
        role, log = self.partition.role, self.partition.log
        assert isinstance(role, Follower) and log is not None
        for epoch in epochs:
            data = bytearray(replicated(1))
            data[:8] = log.log_end_offset.to_bytes(8, "big")
            data[12:16] = epoch.to_bytes(4, "big")
            assert role.append_replicated(data).error == 0


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    async with Cluster(tmp_path, OWN) as cluster:
        yield Replica(cluster, tmp_path / str(OWN))


# Roles.


async def test_new_follower_is_confirmed_when_it_has_a_log(replica: Replica) -> None:
    assert await replica.assign(OTHER) == {0}
    partition = replica.partition
    assert partition.log is not None and os.path.exists(replica.path / "t-0" / "partition.metadata")
    assert partition.log.epochs.entries == [], "its leader's batches bring them"
    assert isinstance(partition.role, Follower) and partition.role.leader == OTHER
    assert replica.fetchers.followed == {partition: 0}
    async with replica.cluster.client(OWN) as client:
        assert (await client.produce("t", batch(b"x"))).error_code == Error.NOT_LEADER_OR_FOLLOWER


async def test_new_leader_is_confirmed_when_it_has_a_log(replica: Replica) -> None:
    assert await replica.assign(OWN) == {0}
    partition = replica.partition
    assert isinstance(partition.role, Leader) and partition.log is not None
    assert partition.log.epochs.entries == [(0, 0)] and replica.fetchers.followed == {}


@pytest.mark.parametrize("leader", [OWN, OTHER])
async def test_log_that_cannot_be_created_is_created_later(
    replica: Replica, leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full. The controller learns it at once, and is asked for the state when the log exists."""
    asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    replica.hosting.roles.request_states = lambda: asked.set_result(None)
    monkeypatch.setattr(replica_roles, "RETRY_S", 0.01)

    def full(_path: str, _wanted: object, done: Callable[[Outcome], object], *, recorded: bool) -> None:
        done(Outcome(error=OSError(errno.ENOSPC, "full")))

    with monkeypatch.context() as patched:
        patched.setattr(replica.cluster[OWN].logs, "create", full)
        assert await replica.assign(leader) == {STORAGE}
        assert replica.partition.role is None and not asked.done()
    await asked
    assert replica.partition.log is not None and replica.fetchers.followed == {}
    assert errors(await apply(replica.cluster, OWN, replica.cluster.leader_and_isr(OWN))) == {0}
    assert isinstance(replica.partition.role, Leader if leader == OWN else Follower)


async def test_follower_follows_each_epoch_and_no_leader(replica: Replica) -> None:
    await replica.assign(OTHER)
    assert await replica.assign(THIRD) == {0}
    assert replica.fetchers.followed == {replica.partition: 1}
    assert await replica.assign(-1) == {0}
    assert replica.fetchers.followed == {} and replica.partition.leader_epoch == 2


async def test_fetches_stop_before_a_follower_leads(replica: Replica) -> None:
    await replica.assign(OTHER)
    replica.append(0, 0)
    assert await replica.assign(OWN, isr=(OWN,)) == {0}
    log = replica.partition.log
    assert replica.fetchers.calls == ["follow", "stop"] and log is not None
    assert log.epochs.entries == [(0, 0), (1, 2)]
    async with replica.cluster.client(OWN) as client:
        assert (await client.produce("t", batch(b"x"))).base_offset == 2
    assert await replica.assign(OTHER) == {0}
    assert replica.fetchers.followed == {replica.partition: 2}


async def test_leader_begins_after_a_truncation_that_was_requested_before(replica: Replica) -> None:
    """Without the wait it removes what the leader appends: with an offset above the log end, at the end of a flush."""
    await replica.assign(OTHER)
    replica.append(0, 0, 0)
    log, logs = replica.partition.log, replica.cluster[OWN].logs
    assert log is not None
    truncated: list[Outcome] = []
    logs.truncate({log: 1}, truncated.append)
    assert not truncated
    assert await replica.assign(OWN, isr=(OWN,)) == {0}
    assert truncated and log.epochs.entries == [(0, 0), (1, 1)] and replica.partition.high_watermark == 1


async def test_leader_begins_after_a_truncation_without_an_effect(replica: Replica) -> None:
    """At the log end it only removes epochs without batches: that of the new leader, if it began before."""
    await replica.assign(OTHER)
    replica.append(0)
    log, logs = replica.partition.log, replica.cluster[OWN].logs
    assert log is not None
    flushed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    logs.flusher.request_flush(log, flushed.set_result)
    logs.flusher.begin()
    logs.truncate({log: 1}, lambda _outcome: None)  # waits for the flush
    assert await replica.assign(OWN, isr=(OWN,)) == {0}
    assert flushed.done() and log.epochs.entries == [(0, 0), (1, 1)]


async def test_stopped_replica_is_not_fetched(replica: Replica) -> None:
    await replica.assign(OTHER)
    stop = replica.cluster.stop_replica(OWN, "t", 0)
    assert errors(await apply(replica.cluster, OWN, stop)) == {0}
    assert replica.fetchers.calls == ["follow", "stop"] and replica.partition.role is None


async def test_deleted_replica_is_not_fetched(replica: Replica) -> None:
    await replica.assign(OTHER)
    stop = replica.cluster.stop_replica(OWN, "t", 0, delete=True)
    assert errors(await apply(replica.cluster, OWN, stop)) == {0}
    assert replica.fetchers.calls == ["follow", "stop"]
    assert error_of(replica.cluster, OWN, "t") == Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_replica_in_a_failed_log_directory_is_not_fetched(replica: Replica) -> None:
    await replica.assign(OTHER)
    logs = replica.cluster[OWN].logs
    logs.take_offline(str(replica.path), OSError("failed"))
    assert replica.fetchers.calls == ["follow", "stop"] and replica.partition.error == STORAGE
    assert await replica.assign(OTHER) == {STORAGE}


async def test_nothing_is_fetched_while_a_move_replaces_the_log(replica: Replica) -> None:
    await replica.assign(OTHER)
    moves, log = replica.cluster[OWN].replica_moves, replica.partition.log
    assert log is not None
    moves.pause(log, lambda: None)
    assert replica.fetchers.followed == {}
    assert await replica.assign(THIRD) == {0}
    assert replica.fetchers.followed == {}
    moves.resume(log)
    assert replica.fetchers.followed == {replica.partition: 1}


# The end of a registration.


async def register_again(replica: Replica) -> None:
    """The session ends, and the broker registers in the next one."""
    requests, broker = replica.cluster[OWN].controller_requests, replica.cluster.brokers[OWN]
    requests.unregistered()
    resigned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    requests.when_resigned(lambda: resigned.set_result(None))
    await resigned
    broker.epoch += 1
    requests.fence.registered(broker.epoch)


async def test_leader_epoch_of_an_earlier_registration_is_followed_again(replica: Replica) -> None:
    await replica.assign(OTHER)
    await register_again(replica)
    assert replica.partition.role is None and replica.fetchers.followed == {}
    assert errors(await apply(replica.cluster, OWN, replica.cluster.leader_and_isr(OWN))) == {0}
    assert replica.fetchers.followed == {replica.partition: 0}


@pytest.mark.parametrize("leader", [OWN, OTHER])
async def test_request_of_an_ended_registration_assigns_nothing(replica: Replica, leader: int) -> None:
    """It waits for configs, which can be read only in the next session."""
    configs = replica.cluster.brokers[OWN].configs
    configs.held = True
    waiting = asyncio.ensure_future(replica.assign(leader))
    while not configs.reads:
        await asyncio.sleep(0)
    await register_again(replica)
    configs.release()
    assert await waiting == {Error.STALE_BROKER_EPOCH}
    assert replica.fetchers.followed == {}
    assert isinstance(replica.cluster[OWN].replicas.partition("t", b"", 0, by_id=False), Error)


async def test_appends_that_wait_for_other_brokers_are_rejected_before_a_stop(replica: Replica) -> None:
    """They would keep the listener open. The registration ends for the hosting: nothing is assigned again."""
    await replica.assign(OWN)
    requests = replica.cluster[OWN].controller_requests
    async with replica.cluster.client(OWN) as client:
        held = asyncio.ensure_future(client.produce("t", batch(b"x"), acks=-1))
        while not isinstance(role := replica.partition.role, Leader) or role.is_idle:
            await asyncio.sleep(0)
        requests.stop_replicas()
        assert (await held).error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert replica.partition.role is None
    late = await apply(replica.cluster, OWN, replica.cluster.leader_and_isr(OWN))
    assert late.error_code == Error.STALE_BROKER_EPOCH


async def test_partitions_with_one_replica_are_led_until_the_end_of_a_stop(replica: Replica) -> None:
    replica.cluster.assign("single", {0: OWN})
    await replica.cluster.send()
    replica.cluster[OWN].controller_requests.stop_replicas()
    async with replica.cluster.client(OWN) as client:
        assert (await client.produce("single", batch(b"x"))).error_code == 0


# High watermarks.


async def test_first_high_watermark_is_that_of_the_checkpoint(replica: Replica) -> None:
    await replica.assign(OTHER)
    replica.append(0, 0, 0)
    assert isinstance(replica.partition.role, Follower)
    replica.partition.role.follow_offsets(2, 0)
    await replica.restart()
    name = os.fspath(replica.path / checkpoints.HIGH_WATERMARKS)
    assert checkpoints.read_offsets(replica.cluster[OWN].disk, name) == {("t", 0): 2}
    await replica.assign(OTHER)
    assert replica.partition.high_watermark == 2


async def test_high_watermark_of_a_leader_is_in_the_checkpoint(replica: Replica) -> None:
    await replica.assign(OWN, isr=(OWN,))
    async with replica.cluster.client(OWN) as client:
        await client.produce("t", batch(b"x"))
    await replica.restart()
    await replica.assign(OTHER)
    assert replica.partition.high_watermark == 1


async def test_high_watermarks_are_written_at_intervals(tmp_path: Path) -> None:
    settings = {"replica_high_watermark_checkpoint_interval_ms": "10", "log_initial_task_delay_ms": "0"}
    async with Cluster(tmp_path, OWN, **settings) as cluster:
        replica = Replica(cluster, tmp_path / str(OWN))
        await replica.assign(OWN, isr=(OWN,))
        async with cluster.client(OWN) as client:
            await client.produce("t", batch(b"x"))
        name, expected = os.fspath(replica.path / checkpoints.HIGH_WATERMARKS), {("t", 0): 1}
        while not os.path.exists(name) or checkpoints.read_offsets(cluster[OWN].disk, name) != expected:
            await asyncio.sleep(0)


async def test_high_watermark_of_a_new_leader_is_within_its_truncated_log(replica: Replica) -> None:
    """After an unclean election, a follower removes records that were committed before."""
    await replica.assign(OTHER)
    replica.append(0, 0, 0)
    assert isinstance(replica.partition.role, Follower) and replica.partition.log is not None
    replica.partition.role.follow_offsets(3, 0)
    replica.cluster[OWN].logs.truncate({replica.partition.log: 1}, lambda _outcome: None)
    assert await replica.assign(OWN) == {0}
    assert replica.partition.high_watermark == replica.partition.log.log_end_offset == 1


# Lost and damaged files.


def lose(replica: Replica) -> None:
    shutil.rmtree(replica.path / "t-0")


def damage(replica: Replica) -> None:
    """A record below the recovery point has a flipped bit: the log is rejected at the start."""
    (path,) = (replica.path / "t-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    (replica.path / checkpoints.CLEAN_SHUTDOWN).unlink()
    for index in path.parent.glob("*.*index"):
        index.unlink()


async def with_damaged_files(replica: Replica, harm: str) -> None:
    """A replica in sync, with records, whose files are gone or damaged at the next start."""
    await replica.assign(OTHER)
    replica.append(0, 0, 0)
    await replica.cluster.brokers[OWN].stop()
    (lose if harm == "lost" else damage)(replica)
    await replica.cluster.brokers[OWN].start()
    replica.use_fetchers()
    replica.fetchers.followed.clear()
    if harm == "damaged":
        assert list(replica.cluster[OWN].logs.refused) == [("t", 0)]


@pytest.mark.parametrize("harm", ["lost", "damaged"])
async def test_follower_outside_the_isr_begins_empty(replica: Replica, harm: str) -> None:
    await with_damaged_files(replica, harm)
    assert await replica.assign(OTHER, isr=(OTHER, THIRD)) == {0}
    log = replica.partition.log
    assert log is not None and log.log_end_offset == 0 and replica.fetchers.followed == {replica.partition: 1}
    assert len([each for each in directories(replica.path) if each.endswith("-stray")]) == (harm == "damaged")


@pytest.mark.parametrize("harm", ["lost", "damaged"])
@pytest.mark.parametrize("leader", [OWN, OTHER])
async def test_member_of_the_isr_is_offline_until_it_is_removed(replica: Replica, harm: str, leader: int) -> None:
    await with_damaged_files(replica, harm)
    before = directories(replica.path)
    assert await replica.assign(leader) == {STORAGE}
    assert await replica.assign(leader) == {STORAGE}
    assert error_of(replica.cluster, OWN, "t") == STORAGE and directories(replica.path) == before
    assert await replica.assign(OTHER, isr=(OTHER, THIRD)) == {0}
    assert replica.partition.log is not None and replica.fetchers.followed == {replica.partition: 3}


@pytest.mark.parametrize("harm", ["lost", "damaged"])
async def test_leader_begins_empty_after_an_unclean_election(replica: Replica, harm: str) -> None:
    await with_damaged_files(replica, harm)
    assert await replica.assign(OWN, isr=(OWN,)) == {STORAGE}
    assert await replica.assign(OWN, isr=(OWN,), recovery_state=1) == {0}
    log = replica.partition.log
    assert log is not None and log.epochs.entries == [(2, 0)]


async def test_lost_replica_of_a_deleted_topic_is_removed(replica: Replica) -> None:
    await with_damaged_files(replica, "lost")
    assert await replica.assign(OTHER) == {STORAGE}
    stop = replica.cluster.stop_replica(OWN, "t", 0, delete=True)
    assert errors(await apply(replica.cluster, OWN, stop)) == {0}


async def test_partition_whose_first_leader_has_not_begun_is_created(replica: Replica) -> None:
    """A new controller sends the first state, which no broker has received, as that of a known partition."""
    assert await replica.assign(OTHER, is_new=False) == {0}
    assert replica.partition.log is not None


@pytest.mark.parametrize("leader", [OWN, OTHER])
async def test_replica_whose_creation_was_interrupted_begins_empty(replica: Replica, leader: int) -> None:
    """The last member of an ISR that has never answered would else have no leader for ever."""
    replica.cluster.replicate("t", OTHER, OWN, OTHER, THIRD)
    assert await replica.assign(leader, isr=(OWN,), is_new=False) == {0}
    assert replica.partition.log is not None and replica.partition.leader_epoch == 1


@pytest.mark.parametrize("kind", [1, FULL])
@pytest.mark.parametrize("restarted", [True, False])
async def test_log_of_another_topic_id_becomes_a_stray(replica: Replica, kind: int, restarted: bool) -> None:
    await replica.assign(OTHER)
    replica.append(0)
    if restarted:
        await replica.restart()
    replica.fetchers.followed.clear()
    del replica.cluster.topics["t"]
    assert await replica.assign(OTHER, kind=kind) == {0}
    assert replica.partition.log is not None and replica.partition.log.log_end_offset == 0
    (stray,) = (each for each in directories(replica.path) if each.endswith("-stray"))
    assert stray.startswith("t-0.") and replica.fetchers.followed == {replica.partition: 0}


async def test_follower_with_a_later_epoch_than_the_assigned_one_is_fenced(replica: Replica) -> None:
    """An older tree was restored: clients that know the later epoch would ignore a lower one."""
    await replica.assign(OTHER)
    replica.append(0, 7)
    await replica.restart()
    assert await replica.assign(OTHER, isr=(OTHER,)) == {Error.FENCED_LEADER_EPOCH}
    replica.cluster.topics["t"].partitions[0].epoch = 7
    assert await replica.assign(OTHER, isr=(OTHER,)) == {0}


# Metrics.


async def test_led_partitions_are_counted_by_their_in_sync_replicas(replica: Replica) -> None:
    registry = Registry()
    register_replica_metrics(registry, replica.cluster[OWN].replicas, FetchSessions(10, 10_000, lambda: 7))

    def counted() -> tuple[float, ...]:
        names = ("under_replicated", "under_min_isr", "at_min_isr")
        gauges = {family.name: family.members[()].value for family in registry.walk()}
        return tuple(gauges[f"kafkalite_{name}_partitions"] for name in names)

    await replica.assign(OTHER)
    assert counted() == (0, 0, 0), "it follows"
    await replica.assign(OWN, isr=(OWN, OTHER, THIRD))
    assert counted() == (0, 0, 0)
    await replica.assign(OWN, isr=(OWN,))
    assert counted() == (1, 0, 1), "min.insync.replicas is 1"
    replica.partition.configure(replace(replica.partition.config, min_insync_replicas=2))
    assert counted() == (1, 1, 0)
    replica.partition.resign()
    assert counted() == (0, 0, 0)
