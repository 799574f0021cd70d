"""Simulation of classic groups with random consumers and broker restarts, in virtual time; the invariants are checked
after every step.

KAFKALITE_SEED replays one simulation; `--simulations` and `--minutes` say how many there are and how long. Every row of
the transition table must be taken by some simulation.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.model import ZERO_UUID
from kafkalite.state.groups.classic import commands, groups, rebalance
from kafkalite.state.groups.classic.commit_validation import ClassicCommitValidation
from kafkalite.state.groups.classic.group import ClassicGroup
from kafkalite.state.groups.classic.groups import ClassicGroups
from kafkalite.state.groups.classic.requests import Joined
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.classic.states import ClassicEvent, ClassicState
from kafkalite.state.groups.classic.table import TRANSITIONS
from kafkalite.state.groups.group import TopicIdPartition
from kafkalite.state.groups.member_memory import MEMBER_BYTES
from kafkalite.state.groups.records import ClassicGroupMetadata
from tests.kit.weighted_choice import Operations
from tests.story.groups.consumers import REBALANCE_MAX_MS, Consumer
from tests.story.groups.simulated_shard import Shard
from tests.story.groups.simulations import ONE, Taken, assert_finds, replace_action, run_operations, simulate_all

MINUTES = 10  # of virtual time in a simulation with a seeded bug
DELAY_MS = 3_000
NEW_MEMBER_JOIN_MS = 30_000
DELAY_MAX_MS = REBALANCE_MAX_MS + DELAY_MS
GROUPS = ("g", "h")
PARTITIONS = 3
INSTANCES = ("i", "j", "k")

ROWS = {
    row for row in TRANSITIONS if row[1] not in (ClassicEvent.UPGRADED, ClassicEvent.DOWNGRADED)
}  # test_mixed_simulation takes these two


class History:
    """One random simulation of a shard."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.members_max = 6
        self.shard = Shard(self._make)
        self.consumers: list[Consumer] = []
        self.generations: dict[str, int] = {}
        self.fencings: Counter[str] = Counter()  # since the last assignment; each may increase the generation
        self.leaders: dict[tuple[str, int], str] = {}

    def _make(self) -> ClassicGroups:
        return ClassicGroups(
            ClassicSettings(
                members_max=self.members_max,
                initial_delay_ms=DELAY_MS,
                new_member_join_ms=NEW_MEMBER_JOIN_MS,
                topics_of=lambda _: frozenset({"orders"}),
                partitions_of=lambda assignment: frozenset({("orders", sum(assignment) % PARTITIONS)}),
            )
        )

    def run(self, minutes: int) -> None:
        operations: Operations[None] = {
            self.consume: 60, self.start: 8, self.vanish: 3, self.leave: 3, self.leave_before_joining: 1,
            self.restart_static: 5, self.silence: 3, self.restart_broker: 2, self.delete: 2, self.rewind: 3,
        }  # fmt: skip
        run_operations(self.dice, minutes, lambda: self.shard.ms, operations, self.check, self._check_replay)
        self._check_replay()

    # operations

    def consume(self) -> None:
        """Time passes; most consumers send their next request."""
        for consumer in self.dice.sample(self.consumers, len(self.consumers)):
            if consumer.alive and self.dice.random() < 0.9:
                consumer.step()
                self.check()
        self.shard.advance(self.dice.choice([1, 100, 1_000, 3_000]), self.check)

    def start(self) -> None:
        if sum(consumer.alive for consumer in self.consumers) < 7:
            taken = {consumer.instance for consumer in self.consumers}
            instance = self.dice.choice([None, *(name for name in INSTANCES if name not in taken)])
            self.consumers.append(Consumer(self.shard, self.dice.choice(GROUPS), self.dice, self._leads, instance))

    def vanish(self) -> None:
        if one := self._any_consumer():
            one.alive = False

    def leave(self) -> None:
        if one := self._any_consumer():
            one.leave()

    def leave_before_joining(self) -> None:
        """A client receives its member id and leaves."""
        shy = Consumer(self.shard, self.dice.choice(GROUPS), self.dice, self._leads)
        shy.modern = True
        shy.step()
        if isinstance(answer := self.shard.answers.get(shy.pending), Joined):
            shy.member_id = answer.member_id
        if shy.member_id and self.dice.random() < 0.5:
            shy.leave()

    def restart_static(self) -> None:
        """A static member restarts, perhaps with other protocols."""
        static = [consumer for consumer in self.consumers if consumer.instance is not None]
        if static:
            old = self.dice.choice(static)
            old.alive = False
            self.consumers.remove(old)
            new = Consumer(self.shard, old.group, self.dice, self._leads, old.instance)
            self.consumers.append(new)
            new.step()

    def silence(self) -> None:
        """Time passes until some sessions expire and rebalances time out."""
        self.shard.advance(self.dice.randrange(5_000, 40_000), self.check)

    def restart_broker(self) -> None:
        self.members_max = self.dice.choice([2, 6, 6, 6])
        self.shard.compact()
        dropped = set(self.shard.restart())
        for consumer in self.consumers:
            consumer.dropped(dropped)
        self.generations.clear()
        self.leaders.clear()

    def delete(self) -> None:
        name = self.dice.choice(GROUPS)
        group = self.shard.machine.groups.get(name)
        if group is not None and not group.validate_delete():
            self.shard.do(group.delete(self.shard.now))
            self.shard.incarnations += 1  # a new group starts at generation 0; late responses belong to the old one
            self.generations.pop(name, None)
            self.leaders = {key: leader for key, leader in self.leaders.items() if key[0] != name}

    def rewind(self) -> None:
        """Rewind a partition: its owner is fenced, and commits of previous owners are rejected."""
        name, index = self.dice.choice(GROUPS), self.dice.randrange(PARTITIONS)
        group = self.shard.machine.groups.get(name)
        if group is None:
            return
        before, state, generation = dict(group.members.all), group.state, group.generation
        fenced = group.fence_owners([TopicIdPartition(ZERO_UUID, "orders", index)], self.shard.now)
        self.fencings[name] += bool(fenced.records)
        self.shard.do(fenced)
        for consumer in self.consumers:
            if consumer.group != name or consumer.member_id not in before:
                continue
            consumer.stale |= bool(consumer.holds) and consumer.member_id not in group.members.all
            owner = consumer.working and state is ClassicState.STABLE and consumer.generation == generation
            if owner and sum(consumer.holds) % PARTITIONS == index:
                assert consumer.member_id not in group.members.all, "an owner was not fenced"

    def _any_consumer(self) -> Consumer | None:
        alive = [consumer for consumer in self.consumers if consumer.alive]
        return self.dice.choice(alive) if alive else None

    # invariants

    def check(self) -> None:
        for group in self.shard.machine.groups.values():
            self._check_group(group)
        assert self.shard.machine.memory.held == sum(
            group.members.charged for group in self.shard.machine.groups.values()
        )
        for consumer in self.consumers:
            if consumer.stale:
                group = self.shard.machine.groups.get(consumer.group)
                validation = group and group.validate_offset_commit(
                    consumer.member_id, consumer.instance, consumer.known_generation
                )
                assert validation is None or validation.code, "a commit from before the rewind was accepted"
        for since in self.shard.waiting.values():
            assert self.shard.ms - since <= DELAY_MAX_MS, "a request is never answered"

    def _check_group(self, group: ClassicGroup) -> None:
        members = group.members
        ids = sum(MEMBER_BYTES + len(member_id) for member_id in members.reserved_ids)
        assert members.charged == ids + sum(member.memory() for member in members.all.values())
        assert group.generation >= self.generations.get(group.name, 0), "a generation decreased"
        self.generations[group.name] = group.generation
        if group.state in (ClassicState.STABLE, ClassicState.EMPTY):
            assert group.stored == group.metadata_record(), "the stored group differs"
        if group.state is ClassicState.STABLE:
            assigned = {int(member.assignment.partition(b":")[0]) for member in group.members.all.values()}
            assert len(assigned) == 1, "assignments of several generations"
            # fencing stores the next generation: after a restart the group is ahead of its assignment
            ahead = group.generation - assigned.pop()
            assert 0 <= ahead <= self.fencings[group.name]
            self.fencings[group.name] = ahead
        if group.state is ClassicState.PREPARING:
            assert ("classic", group.name, "join") in self.shard.timers
        delayed = sum(member.delayed_join is not None for member in group.members.all.values())
        assert group.members.delayed_joins == delayed
        assert (group.members.leader in group.members.all) == bool(group.members)
        watched = {
            name for name, member in group.members.all.items() if not member.has_delayed_request
        } | group.members.reserved_ids.keys()
        for name in watched:
            assert ("classic", group.name, "session", name) in self.shard.timers, f"{name} has no session timer"

    def _leads(self, group: str, generation: int, member_id: str) -> None:
        received = self.leaders.setdefault((group, generation), member_id)
        assert received == member_id, "two leaders of one generation"

    def _check_replay(self) -> None:
        replayed = self.shard.replayed()
        alive = {group.name: group.stored for group in self.shard.machine.groups.values()}
        assert {group.name: group.stored for group in replayed.groups.values()} == alive
        assert {group.name: group.metadata_record() for group in replayed.groups.values()} == alive


@pytest.mark.torture
def test_random_operations_keep_invariants_and_take_every_transition(
    simulations: int, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Taken(TRANSITIONS)
    monkeypatch.setattr(groups, "TRANSITIONS", taken)
    simulate_all(lambda seed, minutes: History(seed).run(minutes), simulations, minutes)
    assert ONE or taken.rows == ROWS, f"never taken: {ROWS - taken.rows}"


def lose_timers_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no session timer is set."""
    monkeypatch.setattr(commands, "loaded", lambda group, now: iter(()))


def reuse_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance does not increase the generation."""

    def begin(group: Any, step: Any) -> None:
        group.generation -= 1
        rebalance.begin_generation(group, step)

    replace_action(monkeypatch, TRANSITIONS, rebalance.begin_generation, begin)


def drop_delayed_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delayed syncs are never completed."""
    monkeypatch.setattr(rebalance, "_complete_sync", lambda *_: None)


def skip_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replacement of a static member is not stored."""

    def replace(group: Any, step: Any) -> None:
        rebalance.replace_static_member(group, step)
        step.effects.records.clear()

    replace_action(monkeypatch, TRANSITIONS, rebalance.replace_static_member, replace)


def ignore_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member may commit."""
    monkeypatch.setattr(ClassicGroup, "validate_offset_commit", lambda *_, **__: ClassicCommitValidation(0))


@pytest.mark.parametrize(
    "bug",
    [lose_timers_at_load, reuse_the_generation, drop_delayed_syncs, skip_record, ignore_generations],
)
def test_seeded_bugs_are_detected(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert_finds(bug, lambda seed, minutes: History(seed).run(minutes), MINUTES)


def test_simulation_completes_generations() -> None:
    """Guards against a simulation in which nothing happens."""
    history = History(1)
    history.run(MINUTES)
    stable = [record for record in history.shard.log if isinstance(record, ClassicGroupMetadata) and record.members]
    assert len(stable) > 5
