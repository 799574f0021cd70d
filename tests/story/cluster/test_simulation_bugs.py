"""The simulation of a cluster finds planted bugs, each within 200 seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.controller import runtime, transactions
from kafkalite.cluster.controller.fence import ControllerFence
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.metadata.update import LEADER_DURING_DELETE, MetadataUpdate
from kafkalite.coordination.tree import Check
from kafkalite.coordination.znodes.controller import CONTROLLER_EPOCH
from kafkalite.errors import KafkaError
from kafkalite.server.process import saved_session
from kafkalite.server.process.listeners import Listeners
from kafkalite.state.controller.effects import Write
from kafkalite.state.controller.events import WriteDone
from kafkalite.testing.virtual_loop import VirtualTimeError
from tests.kit.planted_bugs import Report, assert_found
from tests.story.cluster.test_simulation import run_seed
from tests.story.cluster.world import SETTINGS


def stale_image(patch: pytest.MonkeyPatch) -> None:
    """A broker keeps what it knows of partition 1 when UpdateMetadata has another state."""
    put = MetadataUpdate._put

    def stale(self: MetadataUpdate, name: str, partitions: list[PartitionImage], state: Any) -> None:
        if state.partition_index != 1 or len(partitions) < 2 or state.leader == LEADER_DURING_DELETE:
            put(self, name, partitions, state)

    patch.setattr(MetadataUpdate, "_put", stale)


def acknowledged_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Brokers ignore `log.flush.interval.messages`."""
    patch.delitem(SETTINGS, "log.flush.interval.messages")


def closed_after_a_lost_session(patch: pytest.MonkeyPatch) -> None:
    """A broker that has registered again refuses connections."""
    patch.setattr(Listeners, "resume", lambda self: None)


def unfenced(_epoch_version: int) -> Check:
    """A check that accepts every controller epoch."""
    return Check(CONTROLLER_EPOCH)


def zombie_controller(patch: pytest.MonkeyPatch) -> None:
    """A controller does not notice the election of another one, and its writes are not fenced."""
    patch.setattr(runtime.ControllerRuntime, "_moved", lambda self: None)
    write_without_epoch_check(patch)


def write_without_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """The writes of a controller are not fenced; it notices the election of another one."""
    patch.setattr(runtime, "fence", unfenced)
    patch.setattr(transactions, "fence", unfenced)


def failed_epoch_check_ignored(patch: pytest.MonkeyPatch) -> None:
    """A controller continues after a transaction that was fenced as after one that was written."""
    ignore_failures(patch, lambda at: at == 0)


def failed_multi_ignored(patch: pytest.MonkeyPatch) -> None:
    """A controller continues after a transaction that was refused for a changed node as after one that was written."""
    ignore_failures(patch, lambda at: at > 0)


def ignore_failures(patch: pytest.MonkeyPatch, ignored: Callable[[int], bool]) -> None:
    """Treat refused transactions as written; `ignored` decides by the index of the refused operation."""
    event_of = transactions.outcome_event

    def event(write: Write, outcome: Outcome) -> object:
        error = outcome.error
        if not isinstance(error, transactions.REJECTIONS) or not ignored(error.at):
            return event_of(write, outcome)
        return WriteDone(write.write_id, tuple(getattr(each, "version", -1) + 1 for each in write.operations))

    patch.setattr(runtime, "outcome_event", event)


def requests_before_the_registration(patch: pytest.MonkeyPatch) -> None:
    """A broker that is not registered accepts requests for any registration."""
    check = ControllerFence._check_sender

    def accepting(self: ControllerFence, request: Any) -> Any:
        known = self.broker_epoch
        self.broker_epoch = request.broker_epoch if known is None else known
        try:
            return check(self, request)
        finally:
            self.broker_epoch = known

    patch.setattr(ControllerFence, "_check_sender", accepting)


def session_of_a_copied_directory_closed(patch: pytest.MonkeyPatch) -> None:
    """The lock of a copied log directory counts as a proof that the process of the first one is dead."""
    patch.setattr(saved_session, "lock_identity", lambda lock: [])


@pytest.mark.torture
@pytest.mark.parametrize(
    ("bug", "recorded"),
    [
        (stale_image, 1),
        (acknowledged_before_the_flush, 6),
        (closed_after_a_lost_session, 3),
        (zombie_controller, 6),
        (write_without_epoch_check, 6),
        (failed_epoch_check_ignored, 92),
        (failed_multi_ignored, 16),
        (requests_before_the_registration, 6),
        (session_of_a_copied_directory_closed, 3),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None],
    recorded: int,
    simulations: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    record_property: Report,
) -> None:
    bug(monkeypatch)
    assert_found(
        bug.__name__,
        lambda seed: run_seed(tmp_path, seed),
        (AssertionError, VirtualTimeError, KafkaError),
        recorded=recorded,
        simulations=simulations,
        report=record_property,
    )
