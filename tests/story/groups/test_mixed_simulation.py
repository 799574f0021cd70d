"""Simulation of one group with random consumers of Kafka's protocols: they join, leave, stop, change their topics,
commit late and restart with the other protocol, while an administrator rewinds and the broker restarts; in virtual
time, the invariants are checked after every step.

There are three mixes: all consumers speak the classic protocol, all speak the consumer protocol, or both are in one
group. KAFKALITE_SEED replays one simulation; `--simulations` and `--minutes` say how many there are and how long.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.coordinators.group.consumer_protocol_serde import ConsumerProtocolSerde
from kafkalite.coordinators.group.settings import held_of, partitions_of, topics_of
from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.classic import commands, groups, rebalance
from kafkalite.state.groups.classic.commit_validation import ClassicCommitValidation
from kafkalite.state.groups.classic.group import ClassicGroup
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.classic.states import ClassicEvent
from kafkalite.state.groups.classic.table import TRANSITIONS as CLASSIC_ROWS
from kafkalite.state.groups.consumer import (
    classic_table,
    reconciler,
    reconciliation,
)
from kafkalite.state.groups.consumer.classic_members import ClassicProtocolMembers
from kafkalite.state.groups.consumer.classic_table import RESPONSES
from kafkalite.state.groups.consumer.commit_validation import ConsumerCommitValidation
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.groups import SESSION, ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings, MigrationPolicy
from kafkalite.state.groups.offsets.manager import OffsetSettings
from kafkalite.state.groups.records import CLASSIC, CONSUMER
from kafkalite.state.groups.shard import GroupShard
from tests.kit.consumer_groups import FakeTopics, durable
from tests.kit.weighted_choice import Operations
from tests.story.groups.classic_reader import REBALANCE_MAX_MS, SESSION_MAX_MS, ClassicReader
from tests.story.groups.consumer_reader import ConsumerReader
from tests.story.groups.readers import Reader, World
from tests.story.groups.simulated_shard import Shard
from tests.story.groups.simulations import (
    ONE,
    Taken,
    assert_finds,
    at_once,
    replace_action,
    run_operations,
    simulate_all,
)

MINUTES = 10  # of virtual time in a simulation with a seeded bug
SPOKEN = {"classic": (True,), "consumer": (False,), "mixed": (True, False)}
"""For each mix, whether consumers use the classic protocol."""

DELAY_MS = 3_000
SESSION_MS = 12_000
DELAY_MAX_MS = REBALANCE_MAX_MS + DELAY_MS
REST_MS = 2 * (SESSION_MAX_MS + REBALANCE_MAX_MS) + 60_000
INSTANCES = ("i", "j")
SUBSCRIPTIONS = [("orders",), ("clicks", "orders"), ("clicks", "orders")]
CONVERSIONS = {row for row in CLASSIC_ROWS if row[1] in (ClassicEvent.UPGRADED, ClassicEvent.DOWNGRADED)}


class Simulation:
    """One group under random operations."""

    def __init__(self, seed: int, mix: str) -> None:
        self.dice = random.Random(seed)
        self.spoken = SPOKEN[mix]
        self.topics = FakeTopics(orders=4, clicks=2)
        self.policy = self.dice.choice([MigrationPolicy.BIDIRECTIONAL] * 5 + list(MigrationPolicy))
        self.interval_ms = self.dice.choice([0, 1_000, 15_000])
        self.topics_at_once = at_once(seed)
        self.shard = Shard(self._make)
        self.world = World(self.shard, self.topics, self.dice)
        self.readers: list[Reader] = []
        self.zombies: list[Reader] = []
        self.eager = self.dice.random() < 0.5
        self.subscribed = {instance: self.dice.choice(SUBSCRIPTIONS) for instance in INSTANCES}
        self.made = 0
        self.generation = 0

    def _make(self) -> GroupShard:
        classic = ClassicSettings(
            initial_delay_ms=DELAY_MS,
            members_max=5,
            new_member_join_ms=30_000,
            topics_of=topics_of,
            partitions_of=partitions_of,
            held_of=held_of,
        )
        settings = ConsumerGroupSettings(
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=3_000,
            assignment_interval_ms=self.interval_ms,
            max_size=6,
            migration=self.policy,
        )
        consumers = ConsumerGroups(self.topics, lambda _: settings, ConsumerProtocolSerde(), self.topics_at_once)
        return GroupShard(classic, OffsetSettings(), consumers)

    def run(self, minutes: int) -> None:
        operations: Operations[object] = {
            self.consume: 70, self.start: 8, self.restart_with_other_protocol: 5, self.leave: 2,
            self.vanish: 2, self.send_late_commits: 4,
            self.restart_static: 2, self.silence: 2, self.restart_broker: 2, self.rewind: 3, self.grow: 1,
            self.subscribe: 4,
        }  # fmt: skip
        run_operations(self.dice, minutes, lambda: self.shard.ms, operations, self.check, self.check_replay)
        self.run_until_stable()
        self.check_replay()

    # operations

    def consume(self) -> None:
        """Time passes; most consumers send their next request."""
        for reader in self.dice.sample(self.readers, len(self.readers)):
            if self.dice.random() < 0.9:
                reader.step()
                reader.read()
                self.check_step()
        self._remove_stopped()
        self.shard.advance(self.dice.choice([200, 1_000, 2_000]), self.check)

    def start(self) -> None:
        if len(self.readers) < 5:
            taken = {reader.instance for reader in self.readers}
            free = [None, *(name for name in INSTANCES if name not in taken)]
            self.add(self.dice.choice(self.spoken), self.dice.choice(free))

    def add(self, classic: bool, instance: str | None) -> None:
        self.made += 1
        topics = self.dice.choice(SUBSCRIPTIONS) if instance is None else self.subscribed[instance]
        name = f"m{self.made}"
        if classic:
            self.readers.append(ClassicReader(self.world, name, instance, topics, self.eager))
        else:
            self.readers.append(ConsumerReader(self.world, name, instance, topics))

    def restart_with_other_protocol(self) -> None:
        """Restart a consumer, with the other protocol if both are in use."""
        if self.readers:
            reader = self.dice.choice(self.readers)
            if reader.instance is None or self.dice.random() < 0.5:
                reader.leave()
            else:
                reader.alive = False
            self._remove_stopped()
            was_classic = isinstance(reader, ClassicReader)
            self.add(was_classic if len(self.spoken) == 1 else not was_classic, reader.instance)

    def leave(self) -> None:
        if self.readers:
            self.dice.choice(self.readers).leave()
            self._remove_stopped()

    def vanish(self) -> None:
        """A consumer hangs: its earlier requests may still arrive."""
        if self.readers:
            self.dice.choice(self.readers).alive = False
            self._remove_stopped()

    def send_late_commits(self) -> None:
        """A stopped consumer commits its last positions."""
        for zombie in self.zombies[-3:]:
            zombie.commit()
            zombie.send()

    def restart_static(self) -> None:
        static = [reader for reader in self.readers if reader.instance is not None]
        if static:
            old = self.dice.choice(static)
            old.alive = False
            self._remove_stopped()
            self.add(isinstance(old, ClassicReader), old.instance)

    def silence(self) -> None:
        """Time passes until some sessions expire and rebalances time out."""
        self.shard.advance(self.dice.randrange(5_000, 30_000), self.check)

    def restart_broker(self) -> None:
        self.shard.compact()
        dropped = set(self.shard.restart())
        for reader in self.readers:
            reader.dropped(dropped)
        if self._classic() is not None:
            self.generation = 0  # a generation that was not stored may be used again

    def rewind(self) -> None:
        name = self.dice.choice(sorted(self.topics.topics))
        topic_partition = name, self.dice.randrange(self.topics.topics[name].partitions)
        self.world.rewind(topic_partition, self.dice.randrange(5))

    def grow(self) -> None:
        name = self.dice.choice(sorted(self.topics.topics))
        if self.topics.topics[name].partitions < 6:
            self.topics.grow(name, self.topics.topics[name].partitions + 1)
            self.shard.machine.consumers.topics_changed([name])

    def subscribe(self) -> None:
        """A consumer of the consumer protocol changes its topics; it reports each change before the next."""
        modern = [each for each in self.readers if isinstance(each, ConsumerReader) and not each.resubscribes]
        modern = [each for each in modern if each.generation > 0]
        if modern:
            self.dice.choice(modern).subscribe(self.dice.choice(SUBSCRIPTIONS))

    def _remove_stopped(self) -> None:
        self.zombies += [reader for reader in self.readers if not reader.alive]
        self.readers = [reader for reader in self.readers if reader.alive]

    def _classic(self) -> Any:
        return self.shard.machine.classic.groups.get("g")

    # invariants

    def check(self) -> None:
        for since_ms in self.shard.waiting.values():
            assert self.shard.ms - since_ms <= DELAY_MAX_MS, "a request is never answered"
        group, classic = self.shard.machine.consumers.groups.get("g"), self._classic()
        if group is not None:
            self._check_consumers(group)
        elif classic is not None:
            for name, member in classic.members.all.items():
                assert member.has_delayed_request or (CLASSIC, "g", "session", name) in self.shard.timers, (
                    f"{name} has no session timer"
                )
        self.check_step()

    def check_step(self) -> None:
        """Checked after every request."""
        group, classic = self.shard.machine.consumers.groups.get("g"), self._classic()
        assert group is None or classic is None, "a group has two types"
        generation = classic.generation if classic is not None else group.epoch if group is not None else 0
        assert generation >= self.generation, "a generation decreased"
        self.generation = generation
        self.check_owners()

    def _check_consumers(self, group: Any) -> None:
        owners = [
            topic_partition
            for current in group.currents.values()
            for epochs_by_topic in (current.assigned, current.pending_revocation)
            for topic_id, epochs in epochs_by_topic.items()
            for topic_partition in ((topic_id, partition) for partition in epochs)
        ]
        assert len(owners) == len(set(owners)), "a partition was given to two members"
        for name in group.members:
            assert (CONSUMER, SESSION, "g", name) in self.shard.timers, f"{name} has no session timer"

    def check_owners(self) -> None:
        """Of all consumers that read a partition one may commit."""
        owned: set[tuple[str, int]] = set()
        for reader in self.readers + self.zombies[-5:]:
            if not reader.positions or reader.owns_in < 0:
                continue
            group = self.shard.machine.registry.get("g")
            if group is None:
                continue
            validated = group.validate_offset_commit(reader.member_id, reader.instance, reader.owns_in)
            if isinstance(validated, ConsumerCommitValidation):
                # the rejection of late commits must not hide a second owner
                validated = validated._replace(owners={}, behind=False)
            for topic, partition in reader.positions if not validated.code else ():
                if not validated.of_partition(self.topics.topics[topic].topic_id, partition):
                    assert (topic, partition) not in owned, f"two consumers may commit {topic}-{partition}"
                    owned.add((topic, partition))

    def check_replay(self) -> None:
        alive, replayed = self.shard.machine, self.shard.replayed()
        assert durable(replayed.consumers) == durable(alive.consumers)
        stored = {group.name: group.stored for group in alive.classic.groups.values()}
        assert {group.name: group.metadata_record() for group in replayed.classic.groups.values()} == stored
        fetched = alive.offsets.fetch("g", None, require_stable=True)
        assert replayed.offsets.fetch("g", None, require_stable=True) == fetched

    def run_until_stable(self) -> None:
        """Only the consumers act: all are assigned their partitions in time."""
        end_ms = self.shard.ms + REST_MS
        while self.shard.ms < end_ms:
            for reader in self.readers:
                reader.step()
                reader.read()
                self.check_step()
            self._remove_stopped()
            self.shard.advance(1_000, self.check)
        owned = [topic_partition for reader in self.readers for topic_partition in reader.positions]
        assert len(owned) == len(set(owned)), "a partition has two owners"
        assert all(reader.stable for reader in self.readers), "a consumer was assigned nothing in time"
        wanted = {
            (name, partition)
            for reader in self.readers
            for name in reader.topics  # type: ignore[attr-defined]
            for partition in range(self.topics.topics[name].partitions)
        }
        assert set(owned) == wanted, "a partition has no owner"


def simulate(seed: int, minutes: int, mix: str) -> None:
    Simulation(seed, mix).run(minutes)


@pytest.mark.torture
@pytest.mark.parametrize("mix", ["classic", "consumer"])
def test_random_operations_keep_invariants(mix: str, simulations: int, minutes: int) -> None:
    simulate_all(lambda seed, minutes: simulate(seed, minutes, mix), simulations, minutes)


@pytest.mark.torture
def test_random_operations_keep_invariants_and_take_every_transition(
    simulations: int, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = Taken(RESPONSES)
    monkeypatch.setattr(classic_table, "RESPONSES", mixed)
    classic = Taken(CLASSIC_ROWS)
    monkeypatch.setattr(groups, "TRANSITIONS", classic)
    simulate_all(lambda seed, minutes: simulate(seed, minutes, "mixed"), simulations, minutes)
    assert ONE or classic.rows >= CONVERSIONS, f"never taken: {CONVERSIONS - classic.rows}"
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
    monkeypatch.setattr(reconciler, "reconcile", lambda current, now: reconcile(current, now._replace(owners={})))


def assign_same_partitions_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member receives the first part of the assignment."""

    def spread(group: ClassicGroup, step: Any) -> None:
        first = next(iter(step.assignments.values()), b"")
        step.assignments = dict.fromkeys(step.assignments, first)
        rebalance.distribute_assignment(group, step)

    replace_action(monkeypatch, CLASSIC_ROWS, rebalance.distribute_assignment, spread)


def lose_timers_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no session timer is set."""
    monkeypatch.setattr(ConsumerGroups, "loaded", lambda machine, now: iter(()))
    monkeypatch.setattr(commands, "loaded", lambda group, now: iter(()))


def skip_session_timers_of_converted_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that were converted from a classic group have no session timer."""
    monkeypatch.setattr(ClassicProtocolMembers, "keep_alive_all", lambda *_: None)


@pytest.mark.parametrize(
    ("mix", "bug"),
    [
        ("classic", accept_zombie_commits),
        ("classic", ignore_rewinds),
        ("classic", assign_same_partitions_to_all),
        ("classic", lose_timers_at_load),
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
    assert_finds(bug, lambda seed, minutes: simulate(seed, minutes, mix), MINUTES)
