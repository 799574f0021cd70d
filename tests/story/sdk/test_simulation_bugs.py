"""The simulations find planted bugs: each one violates an invariant in one of the first 100 runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk.consumer.assignment_changes import Assigned, AssignmentChanges
from kafkalite_sdk.consumer.driver import Driver
from kafkalite_sdk.consumer.streams.streams import Streams
from kafkalite_sdk.membership.settings import AssignmentChange
from kafkalite_sdk.producer.partition_sender import PartitionSender, ProducerId
from kafkalite_sdk.producer.sender import Sender
from kafkalite_sdk.values import OffsetAndMetadata

from kafkalite.model import TopicPartition
from kafkalite.testing.virtual_loop import VirtualTimeError
from tests.story.sdk import test_simulation_groups, test_simulation_leaders
from tests.story.sdk.scripted_world import run_scripted
from tests.story.sdk.world import run

BUG_SEEDS = range(1, 101)


def order_lost_at_back_pressure(patch: pytest.MonkeyPatch) -> None:
    """While many batches of a partition wait, the last one leaves first."""
    take = PartitionSender.take

    def overtaking(self: PartitionSender, current: ProducerId, now: float) -> ProducerBatch | None:
        full = self.queue.full
        if len(full) > 3 and all(batch.base_sequence < 0 for batch in full):
            full.rotate(1)
        return take(self, current, now)

    patch.setattr(PartitionSender, "take", overtaking)


def sequence_reused(patch: pytest.MonkeyPatch) -> None:
    """The sequences of expired batches are given to the next ones, without a new epoch."""

    expired = PartitionSender.take_expired

    def without_gap(self: PartitionSender, now: float, timeout_s: float) -> list[ProducerBatch]:
        had_gap = self.needs_epoch
        found = expired(self, now, timeout_s)
        sequences = [batch.base_sequence for batch in found if batch.base_sequence >= 0]
        if (
            sequences
            and not had_gap
            and not any(self._sent())
            and all(each.base_sequence < 0 for each in self.queue.full)
        ):
            self.needs_epoch, self.sequence = False, sequences[0]
        return found

    patch.setattr(PartitionSender, "take_expired", without_gap)


def commit_after_revoke(patch: pytest.MonkeyPatch) -> None:
    """Automatic commits of revoked partitions follow the listener instead of preceding it."""
    commit, replace = AssignmentChanges._commit, AssignmentChanges._replace
    late: dict[AssignmentChanges, Assigned] = {}

    async def postponed(self: AssignmentChanges, partitions: Assigned) -> None:
        late[self] = partitions

    async def committing(self: AssignmentChanges, change: AssignmentChange) -> None:
        if self in late:
            await commit(self, late.pop(self))
        await replace(self, change)

    patch.setattr(AssignmentChanges, "_commit", postponed)
    patch.setattr(AssignmentChanges, "_replace", committing)


def commit_of_unhandled_records(patch: pytest.MonkeyPatch) -> None:
    """Commits cover records that were fetched and not returned."""
    consumed = Driver.consumed_offsets

    def ahead(self: Driver[Any, Any], *, released: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        found = consumed(self, released=released)
        return {each: offset._replace(offset=offset.offset + 1) for each, offset in found.items()}

    patch.setattr(Driver, "consumed_offsets", ahead)


def handlers_of_revoked_partitions_still_run(patch: pytest.MonkeyPatch) -> None:
    """A rebalance does not wait for the handlers of revoked partitions."""
    patch.setattr(Streams, "_handled", lambda self, partitions: False)


def awaitable_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Batches that are unsent when a producer closes get no outcome."""
    fail = Sender._fail

    def forgetting(self: Sender, batch: ProducerBatch, error: BaseException) -> None:
        if self.closed_by is None:
            fail(self, batch, error)

    patch.setattr(Sender, "_fail", forgetting)


def found_in(simulate: Callable[[int], object]) -> tuple[int, BaseException] | None:
    """The first seed whose run fails."""
    for seed in BUG_SEEDS:
        try:
            simulate(seed)
        except (AssertionError, VirtualTimeError) as error:
            return seed, error
    return None


def report(bug: Callable[[pytest.MonkeyPatch], None], found: tuple[int, BaseException] | None) -> None:
    assert found is not None, f"{bug.__name__} was not found in {len(BUG_SEEDS)} runs"
    print(f"{bug.__name__}: seed {found[0]}: {found[1]}".splitlines()[0])


@pytest.mark.parametrize("bug", [order_lost_at_back_pressure, sequence_reused, awaitable_forgotten])
def test_planted_bug_of_a_producer_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    report(bug, found_in(lambda seed: run_scripted(seed, test_simulation_leaders.scenario)))


@pytest.mark.parametrize(
    "bug", [commit_after_revoke, commit_of_unhandled_records, handlers_of_revoked_partitions_still_run]
)
def test_planted_bug_of_a_consumer_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bug(monkeypatch)
    report(bug, found_in(lambda seed: run(tmp_path, seed, test_simulation_groups.scenario)))
