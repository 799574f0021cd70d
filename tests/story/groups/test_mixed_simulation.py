"""Random operations on one group of each mix of protocols keep the invariants, and take every row of the tables.

KAFKALITE_SEED replays one simulation; `--simulations` and `--minutes` say how many there are and how long.
"""

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.classic import commands, generation, groups, rebalance
from kafkalite.state.groups.classic.commit_validation import ClassicCommitValidation
from kafkalite.state.groups.classic.group import ClassicGroup
from kafkalite.state.groups.classic.states import ClassicEvent
from kafkalite.state.groups.classic.table import TRANSITIONS as CLASSIC_ROWS
from kafkalite.state.groups.consumer import classic_table, group_steps, reconciliation
from kafkalite.state.groups.consumer.classic_members import ClassicProtocolMembers
from kafkalite.state.groups.consumer.classic_table import RESPONSES
from kafkalite.state.groups.consumer.commit_validation import ConsumerCommitValidation
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.records import ClassicGroupMetadata
from tests.story.groups.simulation import Simulation
from tests.story.groups.simulations import ONE, Taken, assert_finds, replace_action, simulate_all

MINUTES = 10  # of virtual time in a simulation with a seeded bug
CONVERSIONS = {row for row in CLASSIC_ROWS if row[1] in (ClassicEvent.UPGRADED, ClassicEvent.DOWNGRADED)}


def simulate(seed: int, minutes: int, mix: str) -> None:
    Simulation(seed, mix).run(minutes)


@pytest.mark.torture
def test_consumer_protocol_keeps_invariants(simulations: int, minutes: int) -> None:
    simulate_all(lambda seed, minutes: simulate(seed, minutes, "consumer"), simulations, minutes)


@pytest.mark.torture
def test_classic_protocol_keeps_invariants_and_takes_every_transition(
    simulations: int, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Taken({row: CLASSIC_ROWS[row] for row in CLASSIC_ROWS.keys() - CONVERSIONS})
    monkeypatch.setattr(groups, "TRANSITIONS", taken)
    simulate_all(lambda seed, minutes: simulate(seed, minutes, "classic"), simulations, minutes)
    taken.assert_all()


@pytest.mark.torture
def test_both_protocols_keep_invariants_and_take_every_conversion(
    simulations: int, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = Taken(RESPONSES)
    monkeypatch.setattr(classic_table, "RESPONSES", mixed)
    classic = Taken(CLASSIC_ROWS)
    monkeypatch.setattr(groups, "TRANSITIONS", classic)
    simulate_all(lambda seed, minutes: simulate(seed, minutes, "mixed"), simulations, minutes)
    assert ONE or classic.used >= CONVERSIONS, f"never taken: {CONVERSIONS - classic.used}"
    mixed.assert_all()


def accept_zombie_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member may commit in any generation."""
    check, check_classic = ConsumerGroup.validate_offset_commit, ClassicGroup.validate_offset_commit

    def lenient(group: ConsumerGroup, member_id: str, *more: Any, **named: Any) -> Any:
        known = member_id in group.members
        return ConsumerCommitValidation(Error.NONE) if known else check(group, member_id, *more, **named)

    def lenient_to_classic(group: ClassicGroup, member_id: str, *more: Any, **named: Any) -> Any:
        known = member_id in group.members.all
        return ClassicCommitValidation(0) if known else check_classic(group, member_id, *more, **named)

    monkeypatch.setattr(ConsumerGroup, "validate_offset_commit", lenient)
    monkeypatch.setattr(ClassicGroup, "validate_offset_commit", lenient_to_classic)


def ignore_rewinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits from before a rewind are accepted, unless a member is fenced."""
    check = ConsumerGroup.validate_offset_commit
    monkeypatch.setattr(
        ConsumerGroup, "validate_offset_commit", lambda *of, **named: check(*of, **named)._replace(behind=False)
    )
    monkeypatch.setattr(ClassicCommitValidation, "of_partition", lambda validated, *_: validated.code)


def ignore_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current owners of partitions are ignored."""
    reconcile = reconciliation.reconcile
    monkeypatch.setattr(group_steps, "reconcile", lambda current, now: reconcile(current, now._replace(owners={})))


def assign_same_partitions_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member receives the first part of the assignment."""

    def spread(group: ClassicGroup, step: Any) -> None:
        first = next(iter(step.assignments.values()), b"")
        step.assignments = dict.fromkeys(step.assignments, first)
        rebalance.distribute_assignment(group, step)

    replace_action(monkeypatch, CLASSIC_ROWS, rebalance.distribute_assignment, spread)


def lose_timers_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no session timer is set."""
    monkeypatch.setattr(ConsumerGroups, "start_timers", lambda machine, now: iter(()))
    monkeypatch.setattr(commands, "start_sessions", lambda group, now: iter(()))


def skip_session_timers_of_converted_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that were converted from a classic group have no session timer."""
    monkeypatch.setattr(ClassicProtocolMembers, "keep_alive_all", lambda *_: None)


def reuse_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance does not increase the generation."""

    def begin(group: Any, step: Any) -> None:
        group.generation -= 1
        generation.begin_generation(group, step)

    replace_action(monkeypatch, CLASSIC_ROWS, generation.begin_generation, begin)


def drop_delayed_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delayed syncs are never completed."""
    monkeypatch.setattr(rebalance, "_complete_sync", lambda *_: None)


def skip_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replacement of a static member is not stored."""

    def replace(group: Any, step: Any) -> None:
        generation.return_generation_to_static_member(group, step)
        step.effects.records.clear()

    replace_action(monkeypatch, CLASSIC_ROWS, generation.return_generation_to_static_member, replace)


FOUND_BY = {("classic", ignore_rewinds): 76, ("consumer", ignore_rewinds): 10}
"""The seeds that find bugs which the first ones do not find."""


@pytest.mark.parametrize(
    ("mix", "bug"),
    [
        ("classic", accept_zombie_commits),
        ("classic", ignore_rewinds),
        ("classic", assign_same_partitions_to_all),
        ("classic", lose_timers_at_load),
        ("classic", reuse_the_generation),
        ("classic", drop_delayed_syncs),
        ("classic", skip_record),
        ("consumer", accept_zombie_commits),
        ("consumer", ignore_rewinds),
        ("consumer", ignore_owners),
        ("consumer", lose_timers_at_load),
        ("mixed", accept_zombie_commits),
        ("mixed", ignore_owners),
        ("mixed", lose_timers_at_load),
        ("mixed", skip_session_timers_of_converted_members),
    ],
)
def test_seeded_bugs_are_detected(
    mix: str, bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    recorded = FOUND_BY.get((mix, bug), 1)
    assert_finds(bug, lambda seed, minutes: simulate(seed, minutes, mix), MINUTES, recorded)


def test_simulation_completes_generations() -> None:
    """Guards against a simulation in which nothing happens."""
    simulation = Simulation(1, "classic")
    simulation.run(MINUTES)
    stable = [record for record in simulation.shard.log if isinstance(record, ClassicGroupMetadata) and record.members]
    assert max(record.generation for record in stable) > 5  # the log has the newest records only
