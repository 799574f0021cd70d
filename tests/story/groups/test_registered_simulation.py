"""Simulation of registered groups with random consumers, rewinds, topics and broker restarts, in virtual time; the
invariants are checked after every step. At the end all consumers own their shares.

KAFKALITE_SEED replays one simulation; `--simulations` and `--minutes` say how many there are and how long. Every row of
the transition table must be taken by some simulation.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.model import TopicPartition
from kafkalite.state.effects import Effects
from kafkalite.state.groups.classic.requests import ErrorOnly
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import CommitResult, OffsetSettings, PartitionCommit
from kafkalite.state.groups.records import GroupGeneration, OffsetCommitted
from kafkalite.state.groups.registered import assignment, commands, groups, rebalance
from kafkalite.state.groups.registered import (
    group as registered_group,
)
from kafkalite.state.groups.registered.assignment import assign
from kafkalite.state.groups.registered.group import RegisteredGroup
from kafkalite.state.groups.registered.groups import RegisteredGroups
from kafkalite.state.groups.registered.member import RegisteredGroupMember
from kafkalite.state.groups.registered.requests import CreateGroup
from kafkalite.state.groups.registered.states import RegisteredState
from kafkalite.state.groups.registered.table import TRANSITIONS
from tests.kit.consumer_groups import FakeTopics
from tests.kit.weighted_choice import Operations
from tests.story.groups.registered_consumers import REBALANCE_MAX_MS, Consumer
from tests.story.groups.simulated_shard import Shard, check_changed_topics, delete_topic
from tests.story.groups.simulations import Taken, assert_finds, replace_action, run_operations, simulate_all

MINUTES = 5  # of virtual time in a simulation with a seeded bug
CODEC = GroupRecordSerde()
DEFINITIONS = {
    "founded": None,
    "defined": CreateGroup("defined", 10_000, ("a", "b"), None, "sticky"),
    "fleeting": CreateGroup("fleeting", 10_000, (), "p.*", "range", ephemeral=True),
}
CONSUMERS_MAX = 7
MEMBERS_MAX = 5
NAMES = ("a", "b", "pa", "pb")


class History:
    """One random simulation of a shard."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.topics = FakeTopics(a=4, b=2, pa=3)
        self.shard = Shard(self._make)
        self.consumers: list[Consumer] = []
        self.zombies: list[Consumer] = []
        self.generations: dict[str, int] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.rewound: dict[tuple[str, TopicPartition], int] = {}  # the first generation whose commits are accepted
        self.owned_since: dict[tuple[str, TopicPartition], tuple[str, int]] = {}  # owner, previous generation
        self.must_register: dict[Consumer, int] = {}  # -> its registrations when its partitions were rewound
        self.occupied: set[str] = set()
        self.seen = 0
        self.made = 0

    def _make(self) -> GroupMachine:
        settings = ClassicSettings(members_max=MEMBERS_MAX)
        consumers = ConsumerGroups(self.topics, lambda _: ConsumerGroupSettings())
        return GroupMachine(settings, OffsetSettings(), consumers)

    @property
    def groups(self) -> dict[str, RegisteredGroup]:
        return self.shard.machine.registered.groups

    def run(self, minutes: int) -> None:
        operations: Operations[None] = {
            self.consume: 60, self.start: 8, self.vanish: 3, self.leave: 4, self.restart_consumer: 3,
            self.change_subscription: 4, self.commit_late: 6, self.silence: 2, self.restart_broker: 2, self.create: 4,
            self.delete: 2, self.rewind: 4, self.change_topics: 4, self.resolve: 12, self.fail_to_resolve: 1,
        }  # fmt: skip
        run_operations(self.dice, minutes, lambda: self.shard.ms, operations, self.check, self.check_replay)
        self.run_until_stable()

    # operations

    def consume(self) -> None:
        """Time passes; most consumers send their next request."""
        for consumer in self.dice.sample(self.consumers, len(self.consumers)):
            if self.dice.random() < 0.9:
                consumer.step()
                self.check()
        self.remove_stopped()
        self.advance(self.dice.choice([1, 100, 1_000, 3_000]))

    def start(self) -> None:
        if len(self.consumers) < CONSUMERS_MAX:
            group = self.dice.choice(list(DEFINITIONS))
            self.made += 1
            name = f"c{self.made}"
            topics, claims = self.subscription(group)
            self.consumers.append(
                Consumer(self.shard, group, name, self.dice, topics, claims, self.check_commit, self.check_heartbeat)
            )

    def subscription(self, group: str) -> tuple[tuple[str, ...], frozenset[TopicPartition]]:
        topics: tuple[str, ...] = ()
        claims: frozenset[TopicPartition] = frozenset()
        if group == "founded" or self.dice.random() < 0.2:
            topics = tuple(self.dice.sample(NAMES, self.dice.randrange(1, 3)))
        if self.dice.random() < 0.3:
            claims = frozenset((self.dice.choice(NAMES), self.dice.randrange(4)) for _ in range(2))
            topics = () if self.dice.random() < 0.6 else topics
        return topics, claims

    def vanish(self) -> None:
        if one := self.any_consumer():
            one.alive = False
            self.remove_stopped()

    def leave(self) -> None:
        if one := self.any_consumer():
            one.leave()
            self.remove_stopped()

    def restart_consumer(self) -> None:
        """A new process registers with the id of an old one, which may still commit."""
        if one := self.any_consumer():
            one.alive = False
            self.remove_stopped()
            self.consumers.append(
                Consumer(
                    self.shard,
                    one.group,
                    one.name,
                    self.dice,
                    one.topics,
                    one.claims,
                    self.check_commit,
                    self.check_heartbeat,
                )
            )

    def change_subscription(self) -> None:
        one = self.any_consumer()
        if one and one.pending is None:
            one.topics, one.claims = self.subscription(one.group)
            one.register()

    def commit_late(self) -> None:
        """A stopped process commits."""
        if self.zombies:
            self.dice.choice(self.zombies).commit()

    def silence(self) -> None:
        """Time passes until some sessions expire and rebalances time out."""
        self.advance(self.dice.randrange(5_000, 40_000))

    def restart_broker(self) -> None:
        self.occupied.clear()  # a member without a generation is not durable
        self.check_log()
        self.shard.compact()
        self.seen = len(self.shard.log)
        dropped = set(self.shard.restart())
        for consumer in self.consumers:
            consumer.dropped(dropped)

    def create(self) -> None:
        request = DEFINITIONS[self.dice.choice(list(DEFINITIONS))]
        if request is not None:
            assignor = self.dice.choice(["range", "roundrobin", "sticky", "uniform"])
            request = request._replace(assignor=assignor)
            token = self.shard.ask(lambda machine, token, now: machine.registry.create(request, token, now))
            answer = self.shard.answers[token]
            assert isinstance(answer, ErrorOnly)
            assert not answer.error or self.groups[request.group].members

    def delete(self) -> None:
        name = self.dice.choice(list(DEFINITIONS))
        if name in self.groups and not self.groups[name].members:
            self.shard.ask(lambda machine, token, now: machine.delete_groups([name], token, now))
            assert name not in self.groups

    def rewind(self) -> None:
        """Rewind a partition: commits of earlier positions are rejected, and the owner must register."""
        name = self.dice.choice(list(DEFINITIONS))
        topic = self.topics.topics.get(self.dice.choice(NAMES))
        if name not in self.groups or topic is None:
            return
        topic_partition, offset = (topic.name, self.dice.randrange(topic.partitions)), self.dice.randrange(5)
        token = self.shard.ask(
            lambda machine, token, now: machine.rewind(name, [PartitionCommit(*topic_partition, offset)], token, now)
        )
        assert self.shard.answers[token] == CommitResult(0, (0,))
        self.committed[name, topic_partition] = offset
        self.rewound[name, topic_partition] = self.groups[name].generation
        for consumer in self.consumers:
            member = self.groups[name].members.get(consumer.name)
            if consumer.group == name and member is not None and topic_partition in member.owned:
                self.must_register[consumer] = consumer.registrations

    def change_topics(self) -> None:
        name = self.dice.choice(NAMES)
        known = self.topics.topics.get(name)
        if known is None:
            self.topics.make(name, self.dice.randint(1, 4))
        elif self.dice.random() < 0.3:
            del self.topics.topics[name]
        else:
            self.topics.grow(name, known.partitions + 1)
        machine = self.shard.machine
        self.shard.do(check_changed_topics(machine.registered, [name], self.shard.now))
        if known is not None and name not in self.topics.topics:
            self.shard.do(delete_topic(machine, name))
            for key in [key for key in self.committed if key[1][0] == name]:
                del self.committed[key]
            for key in [key for key in self.rewound if key[1][0] == name]:
                del self.rewound[key]

    def resolve(self) -> None:
        """Resolve the pattern of the simulation as RE2 does."""
        questions, self.shard.questions = self.shard.questions, []
        for question in questions:
            names = [name for name in self.topics.topics if name.startswith("p")]
            found = dict.fromkeys(question.patterns, names)
            self.shard.do(self.shard.machine.patterns_resolved(question.group, found, self.shard.now))

    def fail_to_resolve(self) -> None:
        questions, self.shard.questions = self.shard.questions, []
        for question in questions:
            self.shard.machine.patterns_failed(question.group)

    def any_consumer(self) -> Consumer | None:
        return self.dice.choice(self.consumers) if self.consumers else None

    def remove_stopped(self) -> None:
        self.zombies = [*self.zombies, *(one for one in self.consumers if not one.alive)][-4:]
        self.consumers = [one for one in self.consumers if one.alive]

    def advance(self, ms: int) -> None:
        self.shard.advance(ms, self.check)

    def run_until_stable(self) -> None:
        """Only the consumers act: afterwards all of them own their shares."""
        for _ in range(20):
            for consumer in list(self.consumers):
                if consumer.pending is None and consumer.generation == -1:
                    consumer.register()
                else:
                    consumer.step()
                self.check()
            self.remove_stopped()
            self.resolve()
            self.advance(3_000)
        for consumer in self.consumers:
            assert consumer.registrations, f"{consumer.name} never got an assignment"
        self.check_replay()

    # invariants

    def check(self) -> None:
        self.check_log()
        for name in (self.generations.keys() | self.occupied) - self.groups.keys():
            self.forget(name)
        for group in self.groups.values():
            self.check_group(group)
        self.check_readers()
        for since in self.shard.waiting.values():
            assert self.shard.ms - since <= REBALANCE_MAX_MS, "a request is never answered"

    def check_log(self) -> None:
        for record in self.shard.log[self.seen :]:
            assert CODEC.decode(*CODEC.encode(record)) == record
            if isinstance(record, GroupGeneration):
                self.note_owners(record)
        self.seen = len(self.shard.log)

    def note_owners(self, record: GroupGeneration) -> None:
        before = self.generations.get(record.group, 0)
        assert record.generation >= before, "a generation decreased"
        owners = {topic_partition: member.consumer_id for member in record.members for topic_partition in member.owned}
        assert len(owners) == sum(len(member.owned) for member in record.members), "a partition has two owners"
        for topic_partition, owner in owners.items():
            if self.owned_since.get((record.group, topic_partition), ("", 0))[0] != owner:
                self.owned_since[record.group, topic_partition] = owner, before
        self.generations[record.group] = record.generation

    def forget(self, name: str) -> None:
        """The group was deleted; a new one may have its name."""
        self.generations.pop(name, None)
        self.occupied.discard(name)
        for known in (self.committed, self.rewound, self.owned_since):
            for key in [key for key in known if key[0] == name]:
                del known[key]
        for zombie in [one for one in (*self.zombies, *self.consumers) if one.group == name]:
            zombie.positions.clear()

    def check_group(self, group: RegisteredGroup) -> None:
        if group.stored is not None:
            assert group.generation_record() == group.stored, "the stored generation differs"
        else:
            assert not group.generation_record().members
        if group.state is RegisteredState.PREPARING:
            assert group.barrier_timer() in self.shard.timers
        assert (group.state is RegisteredState.EMPTY) is not bool(group.members)
        if group.members:
            self.occupied.add(group.name)
        else:
            assert not group.definition.ephemeral or group.name not in self.occupied, (
                "an ephemeral group has no members"
            )
            self.occupied.discard(group.name)
        for name, member in group.members.items():
            assert member.delayed is not None or group.session_timer(name) in self.shard.timers, (
                "a member has no session timer"
            )
            assert member.delayed is None or group.state is RegisteredState.PREPARING
        if group.state is RegisteredState.STABLE:
            self.check_assignment(group)

    def check_readers(self) -> None:
        """The index returns the groups that read a topic."""
        readers = self.shard.machine.registered.topic_readers
        with_pattern = {name for name, group in self.groups.items() if group.definition.pattern is not None}
        for topic in NAMES:
            reading = {name for name, group in self.groups.items() if group.reads_any(frozenset({topic}))}
            assert set(readers.readers_of([topic])) == reading | with_pattern, f"the readers of {topic}"

    def check_assignment(self, group: RegisteredGroup) -> None:
        """Every subscribed partition has an owner, and claims are owned by their members."""
        owners = {topic_partition: name for name, member in group.members.items() for topic_partition in member.owned}
        claimed = {
            topic_partition: name
            for name, member in group.members.items()
            for topic_partition in member.registration.claims
        }
        assert claimed.items() <= owners.items(), "a claim is not granted"
        if group.definition.pattern is not None and (group.resolving or not group.resolved):
            return
        for name, member in group.members.items():
            for topic in group.topics_of(member):
                known = self.topics.topics.get(topic)
                for number in range(0 if known is None else known.partitions):
                    assert (topic, number) in owners, f"{topic}-{number}, to which {name} subscribes, has no owner"

    def check_commit(self, consumer: Consumer, topic_partition: TopicPartition, offset: int) -> None:
        """A commit was accepted."""
        group = self.groups[consumer.group]
        key = consumer.group, topic_partition
        owner, later_than = self.owned_since[key]
        assert owner == consumer.name, "a commit of another consumer than the owner was accepted"
        assert consumer.generation > later_than, "a commit from before a change of the owner was accepted"
        assert consumer.generation >= self.rewound.get(key, 0), "a commit from before the rewind was accepted"
        assert consumer.generation <= group.generation
        assert offset >= self.committed.get(key, 0), "a committed offset decreased"
        self.committed[key] = offset

    def check_heartbeat(self, consumer: Consumer, generation: int) -> None:
        """A heartbeat was answered without an error."""
        assert generation >= consumer.generation
        if consumer.pending is None and consumer in self.must_register:
            assert consumer.registrations > self.must_register.pop(consumer), "an owner has not registered"

    def check_replay(self) -> None:
        replayed, living = self.shard.replayed(), self.shard.machine
        assert durable(replayed.registered) == durable(living.registered)
        last: dict[tuple[str, TopicPartition], int] = {}
        for record in self.shard.log:
            if isinstance(record, OffsetCommitted):
                last[record.group, (record.topic, record.partition)] = record.offset
        for (name, topic_partition), offset in self.committed.items():
            assert (
                replayed.committed_offset(name, *topic_partition)
                == living.committed_offset(name, *topic_partition)
                == offset
                == last[name, topic_partition]
            )


def durable(machine: RegisteredGroups) -> dict[str, Any]:
    return {name: (group.definition, group.stored, group.claims, group.marks) for name, group in machine.groups.items()}


@pytest.mark.torture
def test_random_operations_keep_invariants_and_take_every_transition(
    simulations: int, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Taken(TRANSITIONS)
    monkeypatch.setattr(groups, "TRANSITIONS", taken)
    simulate_all(lambda seed, minutes: History(seed).run(minutes), simulations, minutes)
    taken.assert_all()


def accept_every_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member may commit every partition."""
    monkeypatch.setattr(registered_group.RegisteredCommitValidation, "of_partition", lambda *_: 0)


def ignore_rewind_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewind does not reject commits of earlier positions."""
    validated = registered_group.RegisteredCommitValidation

    def blind(code: int, generation: int, member: Any, _: Any) -> Any:
        return validated(code, generation, member)

    monkeypatch.setattr(
        registered_group, "RegisteredCommitValidation", lambda *of: validated(*of) if len(of) < 4 else blind(*of)
    )


def keep_claimed_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are granted; the previous owner keeps its partitions."""
    monkeypatch.setattr(RegisteredGroupMember, "change", lambda member, owned, epoch: None)


def assign_claimed_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claimed partitions are assigned."""

    def assign_all(assignor: str, wanted: Any, owned: Any, partitions: Any, _: Any) -> Any:
        return assign(assignor, wanted, owned, partitions, ())

    monkeypatch.setattr(assignment, "assign", assign_all)


def lose_timers_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no session timer is set."""
    monkeypatch.setattr(commands, "start_sessions", lambda group, now: Effects())


def hide_rewinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners of a rewound partition continue with the new generation."""
    change = RegisteredGroupMember.change
    monkeypatch.setattr(RegisteredGroupMember, "change", lambda member, owned, _: change(member, owned, member.epoch))


def reuse_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance does not increase the generation."""

    def begin(group: Any, step: Any) -> None:
        group.generation -= 1
        rebalance.begin_generation(group, step)

    replace_action(monkeypatch, TRANSITIONS, rebalance.begin_generation, begin)


def skip_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that left exists after a restart."""

    def removed(group: Any, name: str, step: Any, error: int) -> None:
        changed = step.changed
        remove(group, name, step, error)
        step.changed = changed

    remove = RegisteredGroup.remove_member
    monkeypatch.setattr(RegisteredGroup, "remove_member", removed)


def share_generation_with_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted consumer shares the generation of its previous process."""
    give = RegisteredGroupMember.assign

    def given(member: RegisteredGroupMember, owned: Any, generation: int) -> None:
        give(member, owned, generation)
        member.knows_epoch = False

    monkeypatch.setattr(RegisteredGroupMember, "assign", given)


@pytest.mark.parametrize(
    "bug",
    [
        accept_every_commit,
        ignore_rewind_marks,
        keep_claimed_partitions,
        assign_claimed_partitions,
        lose_timers_at_load,
        hide_rewinds,
        reuse_the_generation,
        skip_record,
        share_generation_with_new_process,
    ],
)
def test_seeded_bugs_are_detected(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert_finds(bug, lambda seed, minutes: History(seed).run(minutes), MINUTES)
