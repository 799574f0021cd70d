"""A leader uses newer states of its leader epoch: another program has written one, and the controller sends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cluster.partition.test_leadership import state
from tests.unit.cluster.partition.test_roles import THREE, TOO_LATE, Led


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


@pytest.mark.parametrize(
    ("changes", "used"),
    [
        ({"partition_epoch": 1}, True),
        ({"partition_epoch": 0}, False),
        ({"partition_epoch": 1, "leader_epoch": 2}, False),
        ({"partition_epoch": 1, "leader": 2}, False),
    ],
)
def test_leader_uses_later_partition_epochs_of_its_leader_epoch(
    led: Led, changes: dict[str, int], *, used: bool
) -> None:
    led.partition.receive_state(state(1, 1, THREE, THREE)._replace(partition_epoch=0))
    assert led.partition.leads_with(state(1, 1, THREE, (1, 2))._replace(**changes)) is used


def test_newer_state_keeps_the_progress_of_followers_and_held_appends(led: Led) -> None:
    led.append("all")
    led.written()
    led.fetched(2, 1)
    assert led.rig.answers() == [], "3 is in sync, and has not fetched it"
    led.partition.receive_state(state(1, 1, THREE, (1, 2))._replace(partition_epoch=7))
    assert (led.partition.isr, led.partition.partition_epoch) == ((1, 2), 7)
    assert led.leader.epoch_start == 0
    assert led.rig.answers() == [("all", 0, 0)]


def test_newer_state_below_the_minimum_fails_held_appends(led: Led) -> None:
    led.append("all")
    led.written()
    led.partition.receive_state(state(1, 1, THREE, (1,))._replace(partition_epoch=7))
    assert led.rig.answers() == [("all", TOO_LATE, -1)]
