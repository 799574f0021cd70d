"""Random requests of misbehaving members of consumer groups and registered groups to a shard.

`test_bad_requests` has the classic groups. Each response has an allowed error; a partition has one owner; generations
and epochs only increase; every request is answered; a replayed shard is equal. KAFKALITE_SEED replays one simulation.
"""

from collections.abc import Callable

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.assignors import ASSIGNORS
from kafkalite.state.groups.classic.requests import ErrorOnly, Leave, LeaveOf, Left
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupSettings,
    HeartbeatResult,
    Topic,
)
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, OffsetSettings, PartitionCommit
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    CreateGroup,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from tests.kit.weighted_choice import Operations
from tests.story.groups.faults import Chaos, assert_all_is_answered
from tests.story.groups.heartbeats import consumer_heartbeat
from tests.story.groups.simulated_shard import check_changed_topics, committing

HISTORIES = 25
REBALANCE_MAX_MS = 20_000
MODERN, OURS, BRIEF = "modern", "ours", "brief"  # `BRIEF` is ephemeral at times
NAMES = ("orders", "other", "gone")

MEMBER = {Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.INVALID_GROUP_ID}
BOUNDED = MEMBER | {Error.INVALID_SESSION_TIMEOUT, Error.REBALANCE_IN_PROGRESS}
ALLOWED: dict[type, set[Error]] = {
    HeartbeatResult: {
        Error.NONE,
        Error.INVALID_REQUEST,
        Error.UNKNOWN_MEMBER_ID,
        Error.FENCED_MEMBER_EPOCH,
        Error.FENCED_INSTANCE_ID,
        Error.UNRELEASED_INSTANCE_ID,
        Error.UNSUPPORTED_ASSIGNOR,
        Error.GROUP_MAX_SIZE_REACHED,
        Error.GROUP_ID_NOT_FOUND,
    },
    ConsumerRegistered: BOUNDED
    | {
        Error.INVALID_REQUEST,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNRELEASED_INSTANCE_ID,
        Error.GROUP_MAX_SIZE_REACHED,
        Error.INCONSISTENT_GROUP_PROTOCOL,
    },
    HeartbeatAnswered: BOUNDED | {Error.ILLEGAL_GENERATION},
    ErrorOnly: {
        Error.NONE,
        Error.INVALID_GROUP_ID,
        Error.INVALID_SESSION_TIMEOUT,
        Error.UNSUPPORTED_ASSIGNOR,
        Error.INVALID_REQUEST,
        Error.INCONSISTENT_GROUP_PROTOCOL,
        Error.NON_EMPTY_GROUP,
    },
    Left: {Error.NONE, Error.INVALID_GROUP_ID},
    CommitResult: MEMBER | {Error.STALE_MEMBER_EPOCH, Error.ILLEGAL_GENERATION, Error.GROUP_ID_NOT_FOUND},
}


class Topics:
    """Topics that are created, grow and are deleted; a recreated topic has a new id."""

    def __init__(self) -> None:
        self._made = 0
        self.topics: dict[str, Topic] = {}
        for name in NAMES:
            self.change(name, 3)

    def change(self, name: str, partitions: int) -> None:
        """Create, grow or delete a topic: it has this number of partitions, 0 = delete it."""
        known = self.topics.pop(name, None)
        if partitions:
            self._made += known is None
            topic_id = self._made.to_bytes(16, "big") if known is None else known.topic_id
            self.topics[name] = Topic(topic_id, name, max(partitions, known.partitions if known else 0))

    def by_name(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)


class Members(Chaos):
    """Misbehaving members and changing topics."""

    allowed = ALLOWED
    requests = 1_000

    def __init__(self, seed: int) -> None:
        self.topics = Topics()
        super().__init__(seed)
        self.generations: dict[str, int] = {}
        self.owners: dict[tuple[int, str, int], str] = {}
        self.asked: dict[Token, str] = {}

    def _make(self) -> GroupMachine:
        settings = ConsumerGroupSettings(max_size=3)
        return GroupMachine(
            ClassicSettings(members_max=3), OffsetSettings(), ConsumerGroups(self.topics, lambda _: settings)
        )

    def operations(self) -> Operations[object]:
        return {
            self.fast_heartbeat: 40,
            self.create: 3,
            self.register: 30,
            self.beat_registered: 25,
            self.leave: 4,
            self.commit: 10,
            self.rewind: 4,
            self.delete: 2,
            self.change_topic: 2,
            self.wait: 12,
            self.restart: 1,
        }

    # the requests

    def fast_heartbeat(self) -> None:
        joins = self.dice.random() < 0.3
        group = self.shard.machine.consumers.groups.get(MODERN)
        member = self.pick(("a", "b", "c", "d"))
        known = -1 if group is None else group.current(member).member_epoch
        topics = (
            self.pick((("orders",), ("orders", "other"), (), None)) if not joins else self.mostly(("orders",), None)
        )
        request = ConsumerGroupHeartbeat(
            self.mostly(MODERN, "", "none"),
            member,
            0 if joins else self.mostly(known, -1, -2, -3, known - 1, 2**31 - 1),
            self.mostly(None, "i", "j", ""),
            self.mostly(None, "rack", ""),
            self.mostly(REBALANCE_MAX_MS if joins else -1, 0, -5),
            topics,
            self.mostly(None, "orders|other", ""),
            self.mostly(None, "range", "best"),
            self.mostly({} if joins else self.pick((None, self._owned(member))), {bytes(16): frozenset({9})}),
        )
        self.ask(lambda machine, token, now: consumer_heartbeat(machine, request, token, now))

    def _owned(self, member: str) -> dict[bytes, frozenset[int]]:
        group = self.shard.machine.consumers.groups.get(MODERN)
        if group is None:
            return {}
        return {topic: frozenset(epochs) for topic, epochs in group.current(member).assigned.items()}

    def create(self) -> None:
        name = self.mostly(self.pick((OURS, BRIEF)), "", MODERN)
        request = CreateGroup(
            name,
            self.mostly(10_000, 0, -1, 2**31 - 1),
            self.pick(((), ("orders",), ("orders", "nowhere"))),
            self.mostly(None, "o.*"),
            self.mostly(self.pick(tuple(ASSIGNORS)), "best", ""),
            ephemeral=name == BRIEF and self.dice.random() < 0.5,
        )
        self.ask(lambda machine, token, now: machine.registry.create(request, token, now))

    def register(self) -> None:
        member = self.mostly(self.pick(("a", "b", "c", "d")), "")
        claims = {("orders", self.dice.randrange(-1, 4)), (self.pick(NAMES), 0)} if self.dice.random() < 0.1 else ()
        request = RegisterConsumer(
            self.mostly(self.pick((OURS, OURS, BRIEF)), "", MODERN),
            member,
            self.pick((("orders",), ("orders", "other"), ())),
            frozenset(claims),
            self.mostly(self.pick((0, 10_000, 30_000)), 1, -1, 2**31 - 1),
            self.mostly(REBALANCE_MAX_MS, 0, 2_000),
            "client",
            "/host",
        )
        token = self.ask(lambda machine, token, now: machine.registry.register(request, token, now))
        if request.group == OURS:
            self.asked[token] = member
            self._learn()

    def beat_registered(self) -> None:
        name, member, generation = self.whom()
        request = HeartbeatPlus(name, member, generation, self.mostly(self.pick((0, 10_000)), -1, 1, 2**31 - 1))
        self.ask(lambda machine, token, now: machine.registered.heartbeat(request, token, now))

    def leave(self) -> None:
        name, member, _ = self.whom()
        request = Leave(name, (LeaveOf(member), LeaveOf("nobody", self.pick((None, "i")))))
        self.ask(lambda machine, token, now: machine.registry.leave(request, token, now))

    def commit(self) -> None:
        name, member, generation = self.whom()
        if self.dice.random() < 0.3:
            name = MODERN
        topic = self.topics.by_name("orders")
        part = PartitionCommit(
            "orders", self.dice.randrange(3), self.dice.randrange(99), topic_id=topic.topic_id if topic else bytes(16)
        )
        request = Commit(name, [part], member, generation)
        self.ask(committing(request))

    def rewind(self) -> None:
        name, parts = (
            self.mostly(self.pick((OURS, MODERN)), "none", ""),
            [PartitionCommit("orders", self.dice.randrange(3), 1)],
        )
        self.ask(lambda machine, token, now: machine.rewind(name, parts, token, now))

    # the world

    def delete(self) -> None:
        """Only of a group whose generations this simulation does not record."""
        self.ask(lambda machine, token, now: machine.delete_groups([BRIEF, "none"], token, now))

    def change_topic(self) -> None:
        name = self.pick(NAMES)
        self.topics.change(name, self.pick((0, 3, 4, 5)))
        machine, now = self.shard.machine, self.shard.now
        machine.consumers.topics_changed((name,))
        self.shard.do(check_changed_topics(machine.registered, (name,), now))

    def wait(self) -> None:
        self.shard.advance(self.dice.choice([1, 100, 3_000, 3_000, 12_000]), self._learn)

    def restart(self) -> None:
        before = self.shard.machine
        after = self.shard.replayed()
        for name, group in before.consumers.groups.items():
            twin = after.consumers.groups[name]
            assert (twin.epoch, twin.members, twin.currents, twin.targets, twin.owners) == (
                group.epoch, group.members, group.currents, group.targets, group.owners,
            )  # fmt: skip
        for name in before.registered.groups:
            stored = before.registered.groups[name].stored
            assert stored == (after.registered.groups[name].stored if name in after.registered.groups else None)
        self.shard.restart()

    def ask(self, command: Callable[[GroupMachine, Token, Now], Effects]) -> Token:
        token = self.shard.ask(command)
        self._learn()
        return token

    def whom(self) -> tuple[str, str, int]:
        """Usually a member of a registered group, in its generation."""
        name = self.mostly(self.pick((OURS, OURS, BRIEF)), "", "none")
        group = self.shard.machine.registered.groups.get(name)
        if group is None or not group.members:
            return name, "a", self.pick((-1, 1))
        member = self.mostly(self.pick(list(group.members)), "nobody", "")
        return name, member, self.mostly(group.generation, group.generation - 1, -1, 2**31 - 1)

    def _learn(self) -> None:
        """No partition has two owners in one generation."""
        for token in [token for token in self.asked if token in self.shard.answers]:
            member, answer = self.asked.pop(token), self.shard.answers[token]
            if isinstance(answer, ConsumerRegistered) and not answer.error:
                for topic, offsets in answer.partitions.items():
                    for index in offsets:
                        owner = self.owners.setdefault((answer.generation, topic, index), member)
                        assert owner == member, (answer.generation, topic, index, owner, member)

    def check(self) -> None:
        limit = REBALANCE_MAX_MS + 3_000
        assert all(self.shard.ms - since <= limit for since in self.shard.waiting.values()), (
            "a request is never answered"
        )
        self._learn()
        self.receive()
        machine = self.shard.machine
        now = {}
        if MODERN in machine.consumers.groups:
            now[MODERN] = machine.consumers.groups[MODERN].epoch
        else:
            self.generations.pop(MODERN, None)  # without members it gave its name to another kind
        if OURS in machine.registered.groups:
            now[OURS] = machine.registered.groups[OURS].generation
        for name, generation in now.items():
            assert generation >= self.generations.get(name, -1), name
        self.generations |= now
        self._check_owners(machine)

    def _check_owners(self, machine: GroupMachine) -> None:
        """A partition of a consumer group is assigned to one member, or its revocation by one member is pending."""
        group = machine.consumers.groups.get(MODERN)
        held: dict[tuple[bytes, int], str] = {}
        for member in group.members if group is not None else ():
            current = group.current(member) if group is not None else None
            assert current is not None
            for parts in (current.assigned, current.pending_revocation):
                for topic, epochs in parts.items():
                    for index in epochs:
                        assert held.setdefault((topic, index), member) == member


def test_misbehaving_members_do_not_break_a_shard() -> None:
    assert_all_is_answered(Members, HISTORIES)
