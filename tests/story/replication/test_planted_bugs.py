"""Planted bugs are found by the tests of replicas. Each bug is paired with the test that finds it first.

The runs under random faults find some of them, too: `make torture` says in which seed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.controller import transactions
from kafkalite.cluster.fetchers.fetched_replica import FetchedReplica
from kafkalite.cluster.fetchers.leader_fetcher import LeaderFetcher
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition import leader
from kafkalite.cluster.partition.state import PartitionState
from kafkalite.errors import KafkaError
from kafkalite.server.hosting.replica_files import ReplicaFiles
from kafkalite.state.controller import effects, unclean_election
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.events import RequestedIsr
from kafkalite.state.controller.known_topics import Partition
from kafkalite.state.controller.partition_requests import PartitionRequest
from kafkalite.state.controller.partitions import actions, leader_elections, requests
from kafkalite.state.controller.values import LeaderAndIsr
from kafkalite.storage.log.log import Log
from kafkalite.testing.virtual_loop import VirtualTimeError
from tests.story.replication import test_leader_epochs as epochs
from tests.story.replication import test_lost_disks as disks
from tests.story.replication import test_lost_power as power
from tests.story.replication import test_three_replicas as three
from tests.story.replication.scenario import run_seed

Run = Callable[[Path], None]
Bug = Callable[[pytest.MonkeyPatch], None]
FOUND = AssertionError, KafkaError, VirtualTimeError
ANY_VERSION = -1
BUG_SEEDS = range(1, 201)


def acknowledged_before_the_followers_have_it(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the log end of the leader."""

    def own_end(end_offset: int, *_others: Any) -> int:
        return end_offset

    patch.setattr(leader, "lowest_end_offset", own_end)


def no_epoch_fence(patch: pytest.MonkeyPatch) -> None:
    """A leader serves requests of each leader epoch."""
    patch.setattr(PartitionState, "_compare_epoch", lambda self, epoch: 0)


def isr_of_an_old_leader(patch: pytest.MonkeyPatch) -> None:
    """The controller does not compare the leader epoch of AlterPartition."""
    change_as(patch, lambda change, partition: change._replace(leader_epoch=partition.leader_epoch))


def isr_without_version(patch: pytest.MonkeyPatch) -> None:
    """The controller does not compare the partition epoch of AlterPartition."""
    change_as(patch, lambda change, partition: change._replace(partition_epoch=partition.version))


def change_as(patch: pytest.MonkeyPatch, changed: Callable[[RequestedIsr, Partition], RequestedIsr]) -> None:
    change_isr = requests.change_isr

    def change(context: ControllerContext, partition: Partition, request: PartitionRequest) -> int | LeaderAndIsr:
        assert isinstance(request.ask, RequestedIsr)
        request.ask = changed(request.ask, partition)
        return change_isr(context, partition, request)

    patch.setitem(requests.DECISIONS, RequestedIsr, change)


def state_without_version(patch: pytest.MonkeyPatch) -> None:
    """States are written whatever the tree has."""

    def state_set(operation: effects.SetState) -> Any:
        return original(operation._replace(version=ANY_VERSION))

    original = transactions.CONVERSIONS[effects.SetState]
    patch.setitem(transactions.CONVERSIONS, effects.SetState, state_set)  # type: ignore[arg-type]


def truncation_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower of another leader truncates to the high watermark that it knows (before KIP-101)."""
    begin = LeaderFetcher._begin

    def truncating(self: LeaderFetcher, replica: FetchedReplica) -> None:
        begin(self, replica)
        self._parts.changes.truncate(replica, replica.partition.high_watermark, "planted")

    patch.setattr(LeaderFetcher, "_begin", truncating)


def epoch_recorded_late(patch: pytest.MonkeyPatch) -> None:
    """The leader does not record where its epoch begins, before the next start reads its batches."""
    patch.setattr(Log, "begin_leadership", Log.set_epoch)


def next_fetch_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """A follower says that it has records which it has not flushed."""
    patch.setattr(FetchedReplica, "must_flush", property(lambda self: False))


def lossy_broker_kept_in_the_isr(patch: pytest.MonkeyPatch) -> None:
    """The controller ignores that a broker has started after a power failure."""
    next_state = actions.next_state

    def ignoring(*arguments: Any, lossy: object, **named: Any) -> LeaderAndIsr | None:
        return next_state(*arguments, **named)

    patch.setattr(actions, "next_state", ignoring)


def no_eligible_replicas(patch: pytest.MonkeyPatch) -> None:
    """The controller forgets the members that leave an ISR below the minimum."""
    for module in (leader_elections, requests, unclean_election):
        patch.setattr(module, "eligible_replicas", lambda *_arguments: ())


def lower_minimum_counts_at_once(patch: pytest.MonkeyPatch) -> None:
    """The leader commits with the minimum that it knows, while there are eligible replicas."""

    def use_minimum(self: PartitionState, _eligible: tuple[int, ...]) -> None:
        self.replicas_min = min(self.config.min_insync_replicas, self._replicas)

    patch.setattr(PartitionState, "_use_minimum", use_minimum)


def eligible_replica_begins_empty(patch: pytest.MonkeyPatch) -> None:
    """A broker creates an empty log for an eligible replica whose files are lost, as for others outside the ISR."""
    may_begin_empty = ReplicaFiles.may_begin_empty

    def ignoring(self: ReplicaFiles, image: PartitionImage, *, is_new: bool, recovery_state: int) -> bool:
        return may_begin_empty(self, image._replace(eligible=()), is_new=is_new, recovery_state=recovery_state)

    patch.setattr(ReplicaFiles, "may_begin_empty", ignoring)


@pytest.mark.parametrize(
    ("bug", "run"),
    [
        (acknowledged_before_the_followers_have_it, three.test_a_record_is_acknowledged_when_the_isr_has_it),
        (no_epoch_fence, epochs.test_fetch_of_an_earlier_leader_epoch_is_fenced),
        (isr_of_an_old_leader, epochs.test_isr_of_an_earlier_leader_epoch_is_not_written),
        (isr_without_version, epochs.test_isr_of_an_earlier_version_is_not_written),
        (state_without_version, epochs.test_state_that_another_program_has_written_is_not_overwritten),
        (truncation_to_the_high_watermark, epochs.test_a_follower_of_a_new_leader_keeps_what_it_has),
        (epoch_recorded_late, epochs.test_records_that_a_dead_leader_alone_had_are_removed),
        (next_fetch_before_the_flush, power.test_record_is_acknowledged_when_all_in_sync_replicas_have_flushed_it),
        (
            lossy_broker_kept_in_the_isr,
            power.test_broker_that_lost_power_does_not_lead_while_members_that_were_killed_are_away,
        ),
        (no_eligible_replicas, power.test_eligible_replica_leads_after_a_power_failure_of_the_last_member),
        (lower_minimum_counts_at_once, power.test_lower_minimum_counts_once_there_are_no_eligible_replicas),
        (
            eligible_replica_begins_empty,
            disks.test_lost_disks_of_the_only_in_sync_replica_and_of_the_eligible_one_are_not_led_empty,
        ),
    ],
    ids=lambda value: value.__name__,
)
def test_planted_bug_is_found(bug: Bug, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bug(monkeypatch)
    with pytest.raises(FOUND) as found:
        run(tmp_path)
    print(f"{bug.__name__}: {found.value}".splitlines()[0])


@pytest.mark.torture
@pytest.mark.long_form
@pytest.mark.parametrize("bug", [acknowledged_before_the_followers_have_it, truncation_to_the_high_watermark])
def test_random_faults_find_a_planted_bug(bug: Bug, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bug(monkeypatch)
    for seed in BUG_SEEDS:
        try:
            run_seed(tmp_path, seed)
        except FOUND as error:
            print(f"{bug.__name__}: seed {seed}: {error}".splitlines()[0])
            return
    raise AssertionError(f"{bug.__name__} was not found in {len(BUG_SEEDS)} runs")
