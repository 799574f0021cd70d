"""The simulation of a cluster finds planted bugs, each within 200 seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.controller import runtime
from kafkalite.cluster.image import PartitionImage
from kafkalite.cluster.metadata_update import LEADER_DURING_DELETE, MetadataUpdate
from kafkalite.coordination.tree import ANY_VERSION, Check, Operation
from kafkalite.errors import KafkaError
from kafkalite.server.cluster_member import ClusterMember
from kafkalite.state.controller import effects
from kafkalite.state.controller.events import WriteDone
from kafkalite.testing.virtual_loop import VirtualTimeError
from tests.story.cluster.test_simulation import run_seed

BUG_SEEDS = range(1, 201)


def write_without_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """The transactions of a controller do not check that it is still elected, and it does not notice that it is not."""
    transaction = runtime.transaction

    def unchecked(write: effects.Write, epoch_version: int, draw_id: Callable[[], bytes]) -> Sequence[Operation]:
        return [Check("/", ANY_VERSION), *transaction(write, epoch_version, draw_id)[1:]]

    patch.setattr(runtime, "transaction", unchecked)


def failed_multi_ignored(patch: pytest.MonkeyPatch) -> None:
    """A rejected transaction counts as written."""
    outcome_event = runtime.outcome_event

    def ignoring(write: effects.Write, outcome: Outcome) -> Any:
        versions = tuple(0 for _ in write.operations)
        return WriteDone(write.write_id, versions) if outcome.error is not None else outcome_event(write, outcome)

    patch.setattr(runtime, "outcome_event", ignoring)


def stale_image(patch: pytest.MonkeyPatch) -> None:
    """A broker keeps what it knows of partition 1 when UpdateMetadata has another state."""
    put = MetadataUpdate._put

    def stale(self: MetadataUpdate, name: str, partitions: list[PartitionImage], state: Any) -> None:
        if state.partition_index != 1 or len(partitions) < 2 or state.leader == LEADER_DURING_DELETE:
            put(self, name, partitions, state)

    patch.setattr(MetadataUpdate, "_put", stale)


def session_lost_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """A broker that has lost its session keeps its watches, and stays the controller if it was."""

    def staying(self: ClusterMember) -> None:
        self.session.session = None

    patch.setattr(ClusterMember, "left", staying)


def found_in(directory: Path) -> tuple[int, BaseException] | None:
    """The first seed whose run fails."""
    for seed in BUG_SEEDS:
        try:
            run_seed(directory, seed)
        except (AssertionError, VirtualTimeError, KafkaError) as error:
            return seed, error
    return None


@pytest.mark.parametrize("bug", [write_without_epoch_check, failed_multi_ignored, stale_image, session_lost_unnoticed])
def test_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bug(monkeypatch)
    found = found_in(tmp_path)
    assert found is not None, f"{bug.__name__} was not found in {len(BUG_SEEDS)} runs"
    print(f"{bug.__name__}: seed {found[0]}: {found[1]}".splitlines()[0])
