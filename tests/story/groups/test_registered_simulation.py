"""Registered groups under random consumers, rewinds, topics and restarts of the broker, on virtual time; judged after
every step. At rest everybody owns its share.

KAFKALITE_SEED replays one history; `--simulations` and `--minutes` say how many there are and how long each is. Every
row of the table of transitions must be taken by some history.
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
from kafkalite.state.groups.shard import GroupShard
from tests.kit.consumer_groups import FakeTopics
from tests.kit.weighted_choice import Doings
from tests.story.groups.incarnations import Taken, assert_finds, live_all, live_through, replace_action
from tests.story.groups.registered_consumers import REBALANCE_MAX_MS, Consumer
from tests.story.groups.simulated_shard import Shard, delete_topic

MINUTES = 5  # of a life with a planted bug
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
    """One random history of a shard."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.topics = FakeTopics(a=4, b=2, pa=3)
        self.shard = Shard(self._make)
        self.consumers: list[Consumer] = []
        self.zombies: list[Consumer] = []
        self.generations: dict[str, int] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.rewound: dict[tuple[str, TopicPartition], int] = {}  # the generation from which on commits are good
        self.owned_since: dict[tuple[str, TopicPartition], tuple[str, int]] = {}  # by whom, later than which generation
        self.must_register: dict[Consumer, int] = {}  # -> its registrations when its partitions were rewound
        self.occupied: set[str] = set()
        self.seen = 0
        self.made = 0

    def _make(self) -> GroupShard:
        settings = ClassicSettings(members_max=MEMBERS_MAX)
        consumers = ConsumerGroups(self.topics, lambda _: ConsumerGroupSettings())
        return GroupShard(settings, OffsetSettings(), consumers)

    @property
    def groups(self) -> dict[str, RegisteredGroup]:
        return self.shard.machine.registered.groups

    def run(self, minutes: int) -> None:
        doings: Doings[None] = {
            self.consume: 60, self.start: 8, self.vanish: 3, self.leave: 4, self.restart_consumer: 3,
            self.change_wishes: 4, self.commit_late: 6, self.silence: 2, self.restart_broker: 2, self.create: 4,
            self.delete: 2, self.rewind: 4, self.change_topics: 4, self.resolve: 12, self.fail_to_resolve: 1,
        }  # fmt: skip
        live_through(self.dice, minutes, lambda: self.shard.ms, doings, self.judge, self.judge_replay)
        self.come_to_rest()

    # what happens

    def consume(self) -> None:
        """Time goes on, and nearly everybody does the next thing."""
        for consumer in self.dice.sample(self.consumers, len(self.consumers)):
            if self.dice.random() < 0.9:
                consumer.step()
                self.judge()
        self.bury()
        self.advance(self.dice.choice([1, 100, 1_000, 3_000]))

    def start(self) -> None:
        if len(self.consumers) < CONSUMERS_MAX:
            group = self.dice.choice(list(DEFINITIONS))
            self.made += 1
            name = f"c{self.made}"
            topics, claims = self.wishes(group)
            self.consumers.append(
                Consumer(self.shard, group, name, self.dice, topics, claims, self.judge_commit, self.judge_alive)
            )

    def wishes(self, group: str) -> tuple[tuple[str, ...], frozenset[TopicPartition]]:
        topics: tuple[str, ...] = ()
        claims: frozenset[TopicPartition] = frozenset()
        if group == "founded" or self.dice.random() < 0.2:
            topics = tuple(self.dice.sample(NAMES, self.dice.randrange(1, 3)))
        if self.dice.random() < 0.3:
            claims = frozenset((self.dice.choice(NAMES), self.dice.randrange(4)) for _ in range(2))
            topics = () if self.dice.random() < 0.6 else topics
        return topics, claims

    def vanish(self) -> None:
        if one := self.somebody():
            one.alive = False
            self.bury()

    def leave(self) -> None:
        if one := self.somebody():
            one.leave()
            self.bury()

    def restart_consumer(self) -> None:
        """A new process takes the place of an old one under the same id; the old one may still commit."""
        if one := self.somebody():
            one.alive = False
            self.bury()
            self.consumers.append(
                Consumer(
                    self.shard,
                    one.group,
                    one.name,
                    self.dice,
                    one.topics,
                    one.claims,
                    self.judge_commit,
                    self.judge_alive,
                )
            )

    def change_wishes(self) -> None:
        one = self.somebody()
        if one and one.waits_for is None:
            one.topics, one.claims = self.wishes(one.group)
            one.register()

    def commit_late(self) -> None:
        """A process that everybody took for dead."""
        if self.zombies:
            self.dice.choice(self.zombies).commit()

    def silence(self) -> None:
        """Long enough for some sessions and registrations to run out."""
        self.advance(self.dice.randrange(5_000, 40_000))

    def restart_broker(self) -> None:
        self.occupied.clear()  # who registers for the first time is not durable yet
        self.judge_log()
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
        """Offsets of a partition are set anew: nobody commits what was read before, and its owner hears of it."""
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
        self.shard.do(machine.registered.topics_changed([name], self.shard.now))
        if known is not None and name not in self.topics.topics:
            self.shard.do(delete_topic(machine, name))
            for key in [key for key in self.committed if key[1][0] == name]:
                del self.committed[key]
            for key in [key for key in self.rewound if key[1][0] == name]:
                del self.rewound[key]

    def resolve(self) -> None:
        """Match as RE2 would for the pattern that is used here."""
        questions, self.shard.questions = self.shard.questions, []
        for question in questions:
            names = [name for name in self.topics.topics if name.startswith("p")]
            found = dict.fromkeys(question.patterns, names)
            self.shard.do(self.shard.machine.patterns_resolved(question.group, found, 0, self.shard.now))

    def fail_to_resolve(self) -> None:
        questions, self.shard.questions = self.shard.questions, []
        for question in questions:
            self.shard.machine.patterns_failed(question.group)

    def somebody(self) -> Consumer | None:
        return self.dice.choice(self.consumers) if self.consumers else None

    def bury(self) -> None:
        self.zombies = [*self.zombies, *(one for one in self.consumers if not one.alive)][-4:]
        self.consumers = [one for one in self.consumers if one.alive]

    def advance(self, ms: int) -> None:
        self.shard.advance(ms, self.judge)

    def come_to_rest(self) -> None:
        """Nothing happens any more but what consumers do: after this everybody alive owns its share."""
        for _ in range(20):
            for consumer in list(self.consumers):
                if consumer.waits_for is None and consumer.generation == -1:
                    consumer.register()
                else:
                    consumer.step()
                self.judge()
            self.bury()
            self.resolve()
            self.advance(3_000)
        for consumer in self.consumers:
            assert consumer.registrations, f"{consumer.name} never got an assignment"
        self.judge_replay()

    # what must hold

    def judge(self) -> None:
        self.judge_log()
        for name in (self.generations.keys() | self.occupied) - self.groups.keys():
            self.forget(name)
        for group in self.groups.values():
            self.judge_group(group)
        self.judge_readers()
        for since in self.shard.waiting.values():
            assert self.shard.ms - since <= REBALANCE_MAX_MS, "somebody waits for ever"

    def judge_log(self) -> None:
        for record in self.shard.log[self.seen :]:
            assert CODEC.decode(*CODEC.encode(record)) == record
            if isinstance(record, GroupGeneration):
                self.note_owners(record)
        self.seen = len(self.shard.log)

    def note_owners(self, record: GroupGeneration) -> None:
        before = self.generations.get(record.group, 0)
        assert record.generation >= before, "a generation went back"
        owners = {topic_partition: member.consumer_id for member in record.members for topic_partition in member.owned}
        assert len(owners) == sum(len(member.owned) for member in record.members), "two own a partition"
        for topic_partition, owner in owners.items():
            if self.owned_since.get((record.group, topic_partition), ("", 0))[0] != owner:
                self.owned_since[record.group, topic_partition] = owner, before
        self.generations[record.group] = record.generation

    def forget(self, name: str) -> None:
        """The group is gone; another may come under its name."""
        self.generations.pop(name, None)
        self.occupied.discard(name)
        for known in (self.committed, self.rewound, self.owned_since):
            for key in [key for key in known if key[0] == name]:
                del known[key]
        for zombie in [one for one in (*self.zombies, *self.consumers) if one.group == name]:
            zombie.positions.clear()

    def judge_group(self, group: RegisteredGroup) -> None:
        if group.stored is not None:
            assert group.generation_record() == group.stored, "what a group is, is stored"
        else:
            assert not group.generation_record().members
        if group.state is RegisteredState.PREPARING:
            assert group.barrier_timer() in self.shard.timers
        assert (group.state is RegisteredState.EMPTY) is not bool(group.members)
        if group.members:
            self.occupied.add(group.name)
        else:
            assert not group.definition.ephemeral or group.name not in self.occupied, "it outlives its last member"
            self.occupied.discard(group.name)
        for name, member in group.members.items():
            assert member.delayed is not None or group.session_timer(name) in self.shard.timers, "nobody watches"
            assert member.delayed is None or group.state is RegisteredState.PREPARING
        if group.state is RegisteredState.STABLE:
            self.judge_assignment(group)

    def judge_readers(self) -> None:
        """The index names the groups that a change of a topic concerns."""
        readers = self.shard.machine.registered.topic_readers
        with_pattern = {name for name, group in self.groups.items() if group.definition.pattern is not None}
        for topic in NAMES:
            reading = {name for name, group in self.groups.items() if group.reads_any(frozenset({topic}))}
            assert set(readers.concerned([topic])) == reading | with_pattern, f"the readers of {topic}"

    def judge_assignment(self, group: RegisteredGroup) -> None:
        """All that somebody is to read is owned, and claims by those who claim."""
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
                    assert (topic, number) in owners, f"nobody reads {topic}-{number}, to which {name} is subscribed"

    def judge_commit(self, consumer: Consumer, topic_partition: TopicPartition, offset: int) -> None:
        """A commit was taken."""
        group = self.groups[consumer.group]
        key = consumer.group, topic_partition
        owner, later_than = self.owned_since[key]
        assert owner == consumer.name, "a commit of somebody who is not the owner is taken"
        assert consumer.generation > later_than, "a commit of before somebody else was the owner is taken"
        assert consumer.generation >= self.rewound.get(key, 0), "a commit of before the rewind is taken"
        assert consumer.generation <= group.generation
        assert offset >= self.committed.get(key, 0), "a committed offset went back"
        self.committed[key] = offset

    def judge_alive(self, consumer: Consumer, generation: int) -> None:
        """A heartbeat was answered without an error."""
        assert generation >= consumer.generation
        if consumer.waits_for is None and consumer in self.must_register:
            assert consumer.registrations > self.must_register.pop(consumer), "an owner did not hear of the rewind"

    def judge_replay(self) -> None:
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
    live_all(lambda seed, minutes: History(seed).run(minutes), simulations, minutes)
    taken.assert_all()


def take_every_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is a member may commit everything."""
    monkeypatch.setattr(registered_group.RegisteredCommitValidation, "of_partition", lambda *_: 0)


def overlook_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewind does not void what was read before."""
    judged = registered_group.RegisteredCommitValidation

    def blind(code: int, generation: int, member: Any, _: Any) -> Any:
        return judged(code, generation, member)

    monkeypatch.setattr(
        registered_group, "RegisteredCommitValidation", lambda *of: judged(*of) if len(of) < 4 else blind(*of)
    )


def keep_what_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are granted, and taken from nobody."""
    monkeypatch.setattr(RegisteredGroupMember, "change", lambda member, owned, epoch: None)


def assign_what_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are not left out of the assignment."""

    def assign_all(assignor: str, wanted: Any, owned: Any, partitions: Any, _: Any) -> Any:
        return assign(assignor, wanted, owned, partitions, ())

    monkeypatch.setattr(assignment, "assign", assign_all)


def lose_timers_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no session is watched."""
    monkeypatch.setattr(commands, "loaded", lambda group, now: Effects())


def keep_quiet_about_rewinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners of a rewound partition are told the new generation and go on."""
    change = RegisteredGroupMember.change
    monkeypatch.setattr(RegisteredGroupMember, "change", lambda member, owned, _: change(member, owned, member.epoch))


def reuse_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier ends, and the generation is the one of before."""

    def begin(group: Any, step: Any) -> None:
        group.generation -= 1
        rebalance.begin_generation(group, step)

    replace_action(monkeypatch, TRANSITIONS, rebalance.begin_generation, begin)


def forget_to_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leaves is still there after a restart."""

    def removed(group: Any, name: str, step: Any, error: int) -> None:
        changed = step.changed
        remove(group, name, step, error)
        step.changed = changed

    remove = RegisteredGroup.remove_member
    monkeypatch.setattr(RegisteredGroup, "remove_member", removed)


def take_a_new_process_for_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that starts again under its id shares the generation with the process before."""
    give = RegisteredGroupMember.assign

    def given(member: RegisteredGroupMember, owned: Any, generation: int) -> None:
        give(member, owned, generation)
        member.knows_epoch = False

    monkeypatch.setattr(RegisteredGroupMember, "assign", given)


@pytest.mark.parametrize(
    "plant",
    [
        take_every_commit,
        overlook_marks,
        keep_what_is_claimed,
        assign_what_is_claimed,
        lose_timers_at_load,
        keep_quiet_about_rewinds,
        reuse_the_generation,
        forget_to_store,
        take_a_new_process_for_the_old_one,
    ],
)
def test_seeded_bugs_are_detected(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert_finds(plant, lambda seed, minutes: History(seed).run(minutes), MINUTES)
