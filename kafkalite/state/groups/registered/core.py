"""What every part of a registered group works on: its members, its generation, and the table that moves it.

A member is durable from its first generation on. What it asked for in a registration counts from the next generation;
what it is, and owns, in this one is the record in `Member.stored`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kafkalite.state.effects import Effects, Now, ResolvePatterns, TimerName, Token
from kafkalite.state.groups.consumer.requests import TopicLookup
from kafkalite.state.groups.consumer_protocol import UNREADABLE, ConsumerProtocol
from kafkalite.state.groups.records import (
    REGISTERED,
    GroupDefinition,
    GroupGeneration,
    RegisteredMember,
    StaticClaim,
    StaticClaimDeleted,
    TopicPartition,
)
from kafkalite.state.groups.registered import table
from kafkalite.state.groups.registered.requests import (
    BY_RESET_POLICY,
    FROM_LOG_START,
    ConsumerRegistered,
    RegisterConsumer,
)
from kafkalite.state.groups.registered.subscribed_groups import RegisteredReaders
from kafkalite.state.groups.registered.table import RegisteredEvent, RegisteredState
from kafkalite.state.groups.sessions import look_at_ms

__all__ = [
    "NOTHING",
    "NOT_DEFINED",
    "NO_EPOCH",
    "PATTERN_INTERVAL_MS",
    "CommittedOffsets",
    "RegisteredCommand",
    "RegisteredGroupCore",
    "RegisteredGroupMember",
    "RegisteredSettings",
]

NO_EPOCH = -1
NOT_DEFINED = -1
"""The session timeout in the definition of a group that was not created: its first member founded it."""

PATTERN_INTERVAL_MS = 1_000
"""At least this lies between two resolutions of a pattern, however many topics come."""

NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class RegisteredSettings:
    """The broker's settings for registered groups.

    Arguments:
        session_min_ms, session_max_ms: bounds of session timeouts in ms.
        members_max: of a group.
        consumer_protocol: writes subscriptions and assignments for DescribeGroups.
    """

    session_min_ms: int = 6_000
    session_max_ms: int = 1_800_000
    members_max: int = 2**31 - 1
    consumer_protocol: ConsumerProtocol = UNREADABLE


class CommittedOffsets(Protocol):
    """The committed offsets of the shard."""

    def committed_offset(self, group: str, topic: str, partition: int) -> int:
        """The offset, -1 where nothing is committed."""

    def delete_all(self, group: str) -> Iterable[object]:
        """Tombstones for all that a group has committed."""


@dataclass(slots=True)
class RegisteredCommand:
    """One command on its way through the group: when, by whom, and what it led to so far.

    Arguments:
        changed: the generation, as it is stored, is another one; it is written at the end of the command.
    """

    now: Now
    effects: Effects = field(default_factory=Effects)
    token: Token = None
    member: "RegisteredGroupMember | None" = None
    generation: int = 0
    topic_partitions: tuple[TopicPartition, ...] = ()
    definition: GroupDefinition | None = None
    changed: bool = False


class RegisteredGroupMember:
    """One member. `parked` is the token of its registration, None = none is parked; `answered` says that it has been
    told of its epoch.

    The session ends at `session_over_ms`; a timer is set for `timer_ms`, often earlier, and looks then: a heartbeat
    need not set one.
    """

    __slots__ = ("answered", "asked", "parked", "session_over_ms", "session_timeout_ms", "stored", "timer_ms")

    def __init__(self, asked: RegisterConsumer, stored: RegisteredMember | None = None) -> None:
        self.asked = asked
        self.stored = stored
        self.answered = stored is not None
        self.parked: Token | None = None
        self.session_timeout_ms = asked.session_timeout_ms
        self.session_over_ms = 0
        self.timer_ms: int | None = None

    @classmethod
    def restored(
        cls, group: str, stored: RegisteredMember, claims: frozenset[TopicPartition]
    ) -> "RegisteredGroupMember":
        """A member as the records have it: it asked for what it has."""
        asked = RegisterConsumer(
            group,
            stored.consumer_id,
            stored.topics,
            claims,
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            stored.client_id,
            stored.client_host,
        )
        return cls(asked, stored)

    @property
    def name(self) -> str:
        """The consumer id."""
        return self.asked.consumer_id

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return NOTHING if self.stored is None else self.stored.owned

    def owned_by_topic(self) -> dict[str, tuple[int, ...]]:
        """The partitions that the member owns, by topic; both in order."""
        owned: dict[str, tuple[int, ...]] = {}
        for topic, partition in sorted(self.owned):
            owned[topic] = (*owned.get(topic, ()), partition)
        return owned

    @property
    def epoch(self) -> int:
        return NO_EPOCH if self.stored is None else self.stored.epoch

    @property
    def claims_alone(self) -> bool:
        """Whether it takes no part in the assignment: nobody waits for it, and it waits for nobody."""
        return bool(self.asked.claims) and not self.asked.topics

    def says_the_same(self, request: RegisterConsumer) -> bool:
        """Whether a registration wants nothing new."""
        return self.asked.topics == request.topics and self.asked.claims == request.claims

    def give(self, owned: frozenset[TopicPartition], generation: int) -> None:
        """From this generation on the member is what it asked for, and owns this."""
        self.answered = True
        asked = self.asked
        self.stored = RegisteredMember(
            asked.consumer_id,
            asked.client_id,
            asked.client_host,
            self.session_timeout_ms,
            asked.rebalance_timeout_ms,
            asked.topics,
            generation,
            generation,
            owned,
        )

    def change(self, owned: frozenset[TopicPartition], epoch: int) -> None:
        """What it owns, or where it reads, changes before it has registered again."""
        assert self.stored is not None
        self.answered = False
        self.stored = self.stored._replace(owned=owned, epoch=epoch)


class RegisteredGroupCore:
    """State and members of a group, and how it moves.

    Attributes:
        readers: the index of the shard, which follows what members read.
        late: those that are assigned partitions, and have not registered for the generation that is being prepared.
        claims: what is claimed in this generation, by member.
        marks: of each rewound partition, the generation that its last rewind began.
        stored: the last record of the generation that was applied.
        since_wall_ms: since when the stored generation has members, or none.
        matched: the topics that the pattern matches, None = not known yet.
        resolving: a question for them is out; `resolved`: the answer takes account of all topics there are.
    """

    __slots__ = (
        "claims",
        "definition",
        "generation",
        "late",
        "marks",
        "matched",
        "members",
        "name",
        "offsets",
        "readers",
        "resolved",
        "resolved_at_ms",
        "resolving",
        "settings",
        "since_wall_ms",
        "state",
        "stored",
        "topics",
    )

    def __init__(
        self,
        definition: GroupDefinition,
        settings: RegisteredSettings,
        topics: TopicLookup,
        offsets: CommittedOffsets,
        wall_ms: int,
        readers: RegisteredReaders,
    ) -> None:
        self.readers = readers
        self.name = definition.group
        self.definition = definition
        self.settings = settings
        self.topics = topics
        self.offsets = offsets
        self.state = RegisteredState.EMPTY
        self.since_wall_ms = wall_ms
        self.generation = 0
        self.members: dict[str, RegisteredGroupMember] = {}
        self.late: dict[str, None] = {}
        self.claims: dict[str, frozenset[TopicPartition]] = {}
        self.marks: dict[TopicPartition, int] = {}
        self.stored: GroupGeneration | None = None
        self.matched: tuple[str, ...] | None = None
        self.resolving = False
        self.resolved = False
        self.resolved_at_ms: int | None = None

    def transition(self, event: RegisteredEvent, step: RegisteredCommand) -> None:
        """Go where the table says and do what it says."""
        row = table.TRANSITIONS[self.state, event]
        self.state = row.state
        getattr(self, row.action)(step)

    def finish(self, step: RegisteredCommand) -> Effects:
        """End a command: the generation is written once, as all of it left it."""
        if step.changed and self.state is not RegisteredState.DEAD:
            record = self.generation_record()
            if bool(record.members) is not bool(self.stored is not None and self.stored.members):
                self.since_wall_ms = step.now.wall_ms
                record = record._replace(state_timestamp_ms=step.now.wall_ms)
            step.effects.records.append(record)
        return step.effects

    def generation_record(self) -> GroupGeneration:
        """The generation as it is stored."""
        members = tuple(member.stored for member in self.members.values() if member.stored is not None)
        return GroupGeneration(self.name, self.generation, self.since_wall_ms, members)

    # who reads what

    def assigned_members(self) -> list[RegisteredGroupMember]:
        """Those that take part in the assignment."""
        return [member for member in self.members.values() if not member.claims_alone]

    def waits_for_pattern(self) -> bool:
        """Whether somebody is to read what the pattern matches, and that is not known yet."""
        unknown = self.definition.pattern is not None and self.matched is None
        return unknown and any(not member.asked.topics for member in self.assigned_members())

    def topics_of(self, member: RegisteredGroupMember) -> tuple[str, ...]:
        """The topics that a member is to be assigned partitions of, as far as they are known."""
        if member.claims_alone or member.asked.topics:
            return member.asked.topics
        return self.defined_topics()

    def defined_topics(self) -> tuple[str, ...]:
        """The topics of the definition."""
        return (self.matched or ()) if self.definition.pattern is not None else self.definition.topics

    def named_topics(self, member: RegisteredGroupMember) -> set[str]:
        """The topics that a member reads by name, also by claims; what the pattern matches is not among them."""
        if member.asked.topics or member.asked.claims:
            return {*member.asked.topics, *(name for name, _ in member.asked.claims)}
        return set() if self.definition.pattern is not None else set(self.definition.topics)

    def read_topics(self) -> set[str]:
        """All topics that anybody reads, also by claims."""
        names = {name for member in self.members.values() for name in self.topics_of(member)}
        return names | {name for member in self.members.values() for name, _ in member.asked.claims}

    def reads_any(self, names: frozenset[str]) -> bool:
        """Whether a member reads one of these topics, also by claims. The group may have changed since the index of its
        shard named it.
        """
        members = self.members.values()
        if any(not names.isdisjoint(self.topics_of(member)) for member in members):
            return True
        return any(name in names for member in members for name, _ in member.asked.claims)

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Those of the topics that exist, with their numbers of partitions."""
        found = {name: self.topics.by_name(name) for name in names}
        return {name: topic.partitions for name, topic in found.items() if topic is not None}

    def is_outdated(self) -> bool:
        """Whether what the members are to read is not what they own: topics came, went or grew, or somebody is gone."""
        if self.waits_for_pattern():
            return False  # it will be judged when it is known
        assigned = self.assigned_members()
        names = {name for member in assigned for name in self.topics_of(member)}
        taken = set().union(*self.claims.values())
        wanted = {(name, number) for name, count in self.sizes(names).items() for number in range(count)} - taken
        return wanted != {topic_partition for member in assigned for topic_partition in member.owned} - taken

    def start_offsets(self, member: RegisteredGroupMember) -> dict[str, dict[int, int]]:
        """Where a member begins to read what it owns."""
        first = dict(self.definition.first_topics or ())
        starts: dict[str, dict[int, int]] = {}
        for topic, number in sorted(member.owned):
            offset = self.offsets.committed_offset(self.name, topic, number)
            if offset < 0:
                offset = BY_RESET_POLICY if number < first.get(topic, 0) else FROM_LOG_START
            starts.setdefault(topic, {})[number] = offset
        return starts

    # members come and go

    def remove(self, name: str, step: RegisteredCommand, error: int) -> None:
        """Let go of a member; who waits in its name hears `error`."""
        member = self.members.pop(name)
        self.readers.replace(self.name, self.named_topics(member), ())
        self.late.pop(name, None)
        step.effects.cancel_timer(self._session_timer(name))
        self._unpark(member, ConsumerRegistered(error), step)
        self._claim(name, frozenset(), step)
        step.changed = step.changed or member.stored is not None

    def keep_alive(self, member: RegisteredGroupMember, step: RegisteredCommand) -> None:
        """The session of a member begins anew."""
        member.session_over_ms = step.now.ms + member.session_timeout_ms
        if member.timer_ms is None or member.session_over_ms < member.timer_ms:
            self._watch(member, step)

    def _watch(self, member: RegisteredGroupMember, step: RegisteredCommand) -> None:
        member.timer_ms = look_at_ms(member.session_over_ms, step.now.ms)
        step.effects.set_timer(self._session_timer(member.name), member.timer_ms)

    def _unpark(self, member: RegisteredGroupMember, result: ConsumerRegistered, step: RegisteredCommand) -> None:
        token, member.parked = member.parked, None
        if token is not None:
            step.effects.answer(token, result)

    def _claim(self, name: str, topic_partitions: frozenset[TopicPartition], step: RegisteredCommand) -> None:
        if self.claims.get(name, frozenset()) == topic_partitions:
            return
        if topic_partitions:
            self.claims[name] = topic_partitions
            step.effects.records.append(StaticClaim(self.name, name, topic_partitions))
        else:
            del self.claims[name]
            step.effects.records.append(StaticClaimDeleted(self.name, name))

    # patterns

    def ask_topics(self, step: RegisteredCommand) -> None:
        """Have the pattern resolved, unless that is done or under way; not too often."""
        if self.definition.pattern is None or self.resolving or self.resolved:
            return
        soonest_ms = step.now.ms if self.resolved_at_ms is None else self.resolved_at_ms + PATTERN_INTERVAL_MS
        if soonest_ms > step.now.ms:
            step.effects.set_timer(self._pattern_timer(), soonest_ms)
            return
        self.resolving = self.resolved = True
        step.effects.questions.append(ResolvePatterns(self.name, (self.definition.pattern,), internal=False))

    def _session_timer(self, name: str) -> TimerName:
        return (REGISTERED, self.name, "session", name)

    def _barrier_timer(self) -> TimerName:
        return (REGISTERED, self.name, "barrier")

    def _pattern_timer(self) -> TimerName:
        return (REGISTERED, self.name, "pattern")
