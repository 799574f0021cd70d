"""A shard whose partition has several replicas: loaded when its records are committed, refused below the minimum."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.verification import TransactionChecks
from kafkalite.coordinators.group.service import GroupService
from kafkalite.coordinators.runtime.loader import CoordinatorLoader
from kafkalite.coordinators.runtime.partition_writer import PartitionWriter
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import CommitResult
from tests.unit.coordinators.rig import COMPACTED, LOADING, NOT_HERE, Rig, commit, groups, offsets_of
from tests.unit.coordinators.runtime.test_shard import join

TAKEN = CommitResult(errors=(0,))
UNAVAILABLE = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
REPLICAS = (1, 2, 3)


class ReplicatedRig(Rig[GroupMachine]):
    """Broker 1 of three; the minimum of in-sync replicas is 2."""

    isr_requests = None
    replica_lag_max_ms = 30_000

    def __init__(self, path: Path) -> None:
        super().__init__(path, groups, config=replace(COMPACTED, min_insync_replicas=2))
        self.runtime.partitions_changed(1)
        self.partition.resign()
        self.epoch = 0

    @property
    def transaction_checks(self) -> TransactionChecks:
        raise AssertionError("no batch waits for a coordinator")

    def is_live(self, _broker_id: int, _broker_epoch: int) -> bool:
        return True

    def lead(self, isr: tuple[int, ...] = REPLICAS) -> None:
        """Begin a leadership, as the hosting does."""
        self.epoch += 1
        state = PartitionImage(REPLICAS, isr, 1, self.epoch)
        self.partition.lead(state, partial(self.runtime.elected, self.partition))
        self.runtime.elected(self.partition)
        self.work()

    def follow(self) -> None:
        """Another broker leads."""
        self.epoch += 1
        self.partition.follow(PartitionImage(REPLICAS, REPLICAS, 2, self.epoch))
        self.runtime.resigned(0)

    @property
    def leader(self) -> Leader:
        assert isinstance(self.partition.role, Leader)
        return self.partition.role

    def fetched(self) -> None:
        """The followers have every record."""
        for follower in REPLICAS[1:]:
            now_ms = round(self.clock.monotonic() * 1000)
            assert self.leader.follower_fetched(follower, 5, self.log.log_end_offset, 0, now_ms) == 0
        self.work()

    def committed(self, group: str, offset: int) -> None:
        """Commit an offset that all replicas have."""
        waiting = self.do(commit(group, offset))
        self.replicas.write_pending()
        self.fetched()
        assert waiting.received == [TAKEN]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ReplicatedRig]:
    rig = ReplicatedRig(tmp_path)
    rig.lead()
    yield rig


def test_commit_is_answered_when_the_followers_have_it(rig: ReplicatedRig) -> None:
    waiting = rig.do(commit("g", 5))
    rig.replicas.write_pending()
    assert not waiting.received and rig.log.log_end_offset == 1
    rig.fetched()
    assert waiting.received == [TAKEN]


def test_new_leader_answers_when_the_records_of_the_earlier_one_are_committed(rig: ReplicatedRig) -> None:
    """The earlier leader has acknowledged more than the high watermark of the new one shows."""
    rig.do(commit("g", 5))
    rig.replicas.write_pending()
    rig.follow()
    assert rig.partition.high_watermark == 0 < rig.log.log_end_offset
    rig.lead()
    assert rig.do(offsets_of("g")).received == [LOADING]
    rig.fetched()
    assert rig.now(offsets_of("g")) == {("t", 0): 5}


def test_planted_bug_groups_loaded_only_to_the_high_watermark_is_found(
    rig: ReplicatedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replay(self: Any, apply: Any, done: Any) -> Any:
        loading = CoordinatorLoader(self._host, self._partition, self._serde, self._loads, apply, done)
        loading.begin()
        return loading.stop

    monkeypatch.setattr(Partition, "is_behind", False)
    monkeypatch.setattr(PartitionWriter, "replay", replay)
    with pytest.raises(AssertionError):
        test_new_leader_answers_when_the_records_of_the_earlier_one_are_committed(rig)


def test_shard_that_waits_for_the_followers_ends_with_the_leadership(rig: ReplicatedRig) -> None:
    rig.do(commit("g", 5))
    rig.replicas.write_pending()
    rig.follow()
    rig.lead()
    rig.follow()
    assert rig.do(offsets_of("g")).received == [NOT_HERE]
    rig.lead()
    rig.fetched()
    assert rig.now(offsets_of("g")) == {("t", 0): 5}


def test_leadership_that_ends_while_a_commit_is_held_ends_its_request(rig: ReplicatedRig) -> None:
    rig.committed("g", 5)
    waiting = rig.do(commit("g", 6))
    rig.replicas.write_pending()
    rig.follow()
    assert waiting.received == [NOT_HERE]
    rig.lead()
    rig.fetched()
    assert rig.now(offsets_of("g")) == {("t", 0): 6}, "the log has it, and it is committed now"


def test_commands_are_refused_below_the_minimum_without_a_replay(rig: ReplicatedRig) -> None:
    rig.committed("g", 5)
    machine = rig.runtime.machine(0)
    rig.leader.change_isr((1,))
    assert rig.do(commit("g", 6)).received == [UNAVAILABLE]
    assert rig.log.log_end_offset == 1, "nothing was appended"
    rig.leader.change_isr((1, 2))
    assert rig.runtime.machine(0) is machine
    rig.committed("g", 7)


def test_queries_are_answered_below_the_minimum(rig: ReplicatedRig) -> None:
    """As in Kafka: only what must be written fails. Offsets, descriptions and lists of groups can be read."""
    rig.committed("g", 5)
    rig.leader.change_isr((1,))
    service, received = GroupService(rig.runtime), list[object]()
    service.query("g", lambda machine: machine.count(), received.append, received.append)
    assert received == [1]
    machines = {0: rig.runtime.machine(0)}
    service.when_committed(machines, received.append)
    assert received == [1, 0]


def test_error_of_a_shard_that_waits_says_for_what(rig: ReplicatedRig) -> None:
    """NOT_COORDINATOR is left for a shard on another broker: lists of groups omit its groups without an error."""
    rig.committed("g", 5)
    rig.do(commit("g", 6))
    rig.replicas.write_pending()
    rig.leader.change_isr((1,))
    rig.runtime.submit(0, commit("g", 7))  # without a response: it ends the incarnation
    answers = list[int]()
    for isr, error in (((1,), UNAVAILABLE), ((1, 2), LOADING)):
        rig.leader.change_isr(isr)
        rig.clock.advance(2_000)
        rig.work()
        assert rig.do(offsets_of("g")).received == [error]
        GroupService(rig.runtime).when_committed({0: None}, answers.append)
        assert answers.pop() == error
    rig.fetched()
    rig.clock.advance(2_000)
    rig.work()
    rig.fetched()
    assert rig.now(offsets_of("g")) == {("t", 0): 7}


def test_members_keep_their_sessions_through_a_time_below_the_minimum(rig: ReplicatedRig) -> None:
    """They could not send heartbeats to a coordinator that refuses them."""
    rig.committed("other", 1)
    joined = rig.do(join("members"))
    rig.replicas.write_pending()
    rig.clock.advance(3_000)
    rig.replicas.write_pending()
    rig.fetched()
    assert joined.received
    machine = rig.runtime.machine(0)
    rig.leader.change_isr((1,))
    rig.clock.advance(60_000)
    rig.work()
    assert rig.runtime.machine(0) is None and rig.do(offsets_of("other")).received == [UNAVAILABLE]
    end = rig.log.log_end_offset
    rig.leader.change_isr((1, 2))
    rig.fetched()
    rig.recover()
    loaded = rig.runtime.machine(0)
    assert loaded is not None and loaded is not machine and rig.log.log_end_offset == end
    assert rig.now(offsets_of("other")) == {("t", 0): 1}


def test_command_without_a_request_waits_below_the_minimum(rig: ReplicatedRig) -> None:
    rig.leader.change_isr((1,))
    rig.runtime.submit(0, commit("g", 5))
    rig.leader.change_isr((1, 2))
    rig.recover()
    rig.replicas.write_pending()
    rig.fetched()
    assert rig.now(offsets_of("g")) == {("t", 0): 5}
