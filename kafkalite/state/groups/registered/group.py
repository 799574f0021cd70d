"""One registered group: its members, its generation and its state.

Pure. A request becomes an event (`commands`), the transition table gives the next state and the action (`table`,
`rebalance`), and the action changes the group. Invariants:
1. The generation increases with each change of ownership and with each rewind, and is stored completely.
2. A partition has one owner in a generation. Its previous owner has registered since, was removed, or must register:
   until then its commits of the partition are rejected.
3. Each member has an epoch: the last generation that changed its partitions or positions. The heartbeat of a member
   with an older generation fails: it must register. Others receive new generations by heartbeat and continue.
4. A registration without changes, or for claims only, is answered at once. All others are answered when the generation
   begins, at the latest when the longest rebalance timeout ends.
5. Members are durable from their first generation until they are removed. After a restart their sessions restart.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.effects import Effects, Now, ResolvePatterns, TimerName, Token
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL
from kafkalite.state.groups.consumer.requests import TopicLookup
from kafkalite.state.groups.group import (
    NO_GENERATION,
    DescribedGroup,
    Group,
    GroupOverview,
    MemberOverview,
    TopicIdPartition,
)
from kafkalite.state.groups.records import (
    REGISTERED,
    ClassicMemberRecord,
    GroupDefinition,
    GroupGeneration,
    StaticClaim,
    StaticClaimDeleted,
)
from kafkalite.state.groups.registered.commit_validation import RegisteredCommitValidation
from kafkalite.state.groups.registered.member import NO_PARTITIONS, RegisteredGroupMember
from kafkalite.state.groups.registered.requests import ConsumerRegistered
from kafkalite.state.groups.registered.settings import (
    NOT_DEFINED,
    PATTERN_INTERVAL_MS,
    CommittedOffsets,
    RegisteredSettings,
)
from kafkalite.state.groups.registered.states import RegisteredEvent, RegisteredState
from kafkalite.state.groups.registered.subscribed_groups import RegisteredReaders

UNKNOWN_MEMBER_ID = KafkaErrorCode.UNKNOWN_MEMBER_ID


@dataclass(slots=True)
class RegisteredCommand:
    """One command while it is executed.

    Arguments:
        now: the time of the command.
        effects: its effects so far.
        token: of its response; None = it has no response.
        member: the sender.
        generation: that the sender of a heartbeat names.
        topic_partitions: of a rewind, in order.
        definition: of CreateGroup.
        changed: the generation differs from the stored one; `finish` stores it.
    """

    now: Now
    effects: Effects = field(default_factory=Effects)
    token: Token = None
    member: RegisteredGroupMember | None = None
    generation: int = 0
    topic_partitions: tuple[TopicPartition, ...] = ()
    definition: GroupDefinition | None = None
    changed: bool = False


RegisteredAction = Callable[["RegisteredGroup", RegisteredCommand], RegisteredEvent | None]
"""Changes a group that has changed its state; the event that it returns follows at once."""


class RegisteredTransition(NamedTuple):
    """A row of the transition table: the next state, and the action that runs in it."""

    state: RegisteredState
    action: RegisteredAction


@dataclass(slots=True, eq=False)
class RegisteredGroup(Group):
    """State and members of one group.

    Arguments:
        definition: of the group.
        transitions: the transition table.
        settings: the broker's settings.
        topics: finds the topics that exist.
        offsets: the committed offsets of the shard.
        since_wall_ms: since when the stored generation has members, or has none; at first the time of its creation.
        readers: the index of the shard, which follows what members read.

    Attributes:
        unregistered: members of the assignment that have not registered for the next generation.
        claims: claimed partitions of this generation, by member.
        marks: by rewound partition, the generation that its last rewind began.
        stored: the last applied record of a generation.
        matched: the topics that the pattern matches, None = unknown.
        resolving: the pattern is being resolved.
        resolved: the last resolution reflects all topics.
        resolved_at_ms: monotonic time of the last result, None = there was none.
    """

    definition: GroupDefinition
    transitions: Mapping[tuple[RegisteredState, RegisteredEvent], RegisteredTransition]
    settings: RegisteredSettings
    topics: TopicLookup
    offsets: CommittedOffsets
    since_wall_ms: int
    readers: RegisteredReaders
    state: RegisteredState = RegisteredState.EMPTY
    generation: int = 0
    members: dict[str, RegisteredGroupMember] = field(default_factory=dict)
    unregistered: dict[str, None] = field(default_factory=dict)
    claims: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    marks: dict[TopicPartition, int] = field(default_factory=dict)
    stored: GroupGeneration | None = None
    matched: tuple[str, ...] | None = None
    resolving: bool = False
    resolved: bool = False
    resolved_at_ms: int | None = None

    protocol_type = CONSUMER_PROTOCOL

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.definition.group

    def transition(self, event: RegisteredEvent, command: RegisteredCommand) -> None:
        """Enter the state that the table gives, run its action, and handle the event that follows from it, if any."""
        following: RegisteredEvent | None = event
        while following is not None:
            row = self.transitions[self.state, following]
            self.state = row.state
            following = row.action(self, command)

    def finish(self, command: RegisteredCommand) -> Effects:
        """End a command: add the record of the generation, once, after all changes of the command."""
        if command.changed and self.state is not RegisteredState.DEAD:
            record = self.generation_record()
            if bool(record.members) is not bool(self.stored is not None and self.stored.members):
                self.since_wall_ms = command.now.wall_ms
                record = record._replace(state_timestamp_ms=command.now.wall_ms)
            command.effects.records.append(record)
        return command.effects

    def generation_record(self) -> GroupGeneration:
        """The record of the generation."""
        members = tuple(member.stored for member in self.members.values() if member.stored is not None)
        return GroupGeneration(self.name, self.generation, self.since_wall_ms, members)

    def restore(self, record: GroupGeneration) -> None:
        """Take over a record at replay: the group is Stable with members, Empty without."""
        names = {stored.consumer_id for stored in record.members}
        self.claims = {name: claimed for name, claimed in self.claims.items() if name in names}
        self.generation = record.generation
        self.since_wall_ms = record.state_timestamp_ms
        self.members = {
            stored.consumer_id: RegisteredGroupMember.restore(
                self.name, stored, self.claims.get(stored.consumer_id, NO_PARTITIONS)
            )
            for stored in record.members
        }
        for member in self.members.values():
            self.readers.replace(self.name, (), self.named_topics(member))
        self.state = RegisteredState.STABLE if self.members else RegisteredState.EMPTY

    # topics and partitions

    def assigned_members(self) -> list[RegisteredGroupMember]:
        """The members that are not excluded from the assignment."""
        return [member for member in self.members.values() if not member.only_claims]

    def topics_of(self, member: RegisteredGroupMember) -> tuple[str, ...]:
        """The topics whose partitions a member is assigned, as far as they are known."""
        if member.only_claims or member.registration.topics:
            return member.registration.topics
        return self.defined_topics()

    def defined_topics(self) -> tuple[str, ...]:
        """The topics of the definition."""
        return (self.matched or ()) if self.definition.pattern is not None else self.definition.topics

    def named_topics(self, member: RegisteredGroupMember) -> set[str]:
        """The topics that a member reads by name, also by claims; without those that the pattern matches."""
        registration = member.registration
        if registration.topics or registration.claims:
            return {*registration.topics, *(name for name, _ in registration.claims)}
        return set() if self.definition.pattern is not None else set(self.definition.topics)

    def topics_read(self) -> set[str]:
        """All topics that members read, also by claims."""
        names = {name for member in self.members.values() for name in self.topics_of(member)}
        return names | {name for member in self.members.values() for name, _ in member.registration.claims}

    def topics_shown(self) -> tuple[str, ...]:
        """The topics of the members, or of the definition, for descriptions; in order."""
        return tuple(sorted(self.topics_read() or self.defined_topics()))

    def reads_any(self, names: frozenset[str]) -> bool:
        """Whether a member reads one of these topics, also by claims. The index of the shard may be older than the
        group.
        """
        members = self.members.values()
        if any(not names.isdisjoint(self.topics_of(member)) for member in members):
            return True
        return any(name in names for member in members for name, _ in member.registration.claims)

    # members

    def remove_member(self, name: str, command: RegisteredCommand, error: int) -> None:
        """Remove a member; its delayed registration fails with `error`."""
        member = self.members.pop(name)
        self.readers.replace(self.name, self.named_topics(member), ())
        self.unregistered.pop(name, None)
        command.effects.cancel_timer(self.session_timer(name))
        self.complete_registration(member, ConsumerRegistered(error), command)
        self.set_claims(name, NO_PARTITIONS, command)
        command.changed = command.changed or member.stored is not None

    def keep_alive(self, member: RegisteredGroupMember, command: RegisteredCommand) -> None:
        """Extend the session of a member by its session timeout."""
        member.session.extend(self.session_timer(member.name), command.effects, command.now)

    def complete_registration(
        self, member: RegisteredGroupMember, result: ConsumerRegistered, command: RegisteredCommand
    ) -> None:
        """Complete the delayed registration of a member, if there is one."""
        token, member.delayed = member.delayed, None
        if token is not None:
            command.effects.answer(token, result)

    def set_claims(self, name: str, claimed: frozenset[TopicPartition], command: RegisteredCommand) -> None:
        """Store the claims of a member if they have changed."""
        if self.claims.get(name, NO_PARTITIONS) == claimed:
            return
        if claimed:
            self.claims[name] = claimed
            command.effects.records.append(StaticClaim(self.name, name, claimed))
        else:
            del self.claims[name]
            command.effects.records.append(StaticClaimDeleted(self.name, name))

    def resolve_pattern(self, command: RegisteredCommand) -> None:
        """Have the pattern resolved, unless that is done or in progress; at most once per `PATTERN_INTERVAL_MS`."""
        if self.definition.pattern is None or self.resolving or self.resolved:
            return
        soonest_ms = command.now.ms if self.resolved_at_ms is None else self.resolved_at_ms + PATTERN_INTERVAL_MS
        if soonest_ms > command.now.ms:
            command.effects.set_timer(self.pattern_timer(), soonest_ms)
            return
        self.resolving = self.resolved = True
        command.effects.questions.append(ResolvePatterns(self.name, (self.definition.pattern,), internal=False))

    # the interface of every group (`groups/group`)

    @property
    def generation_id(self) -> int:
        """The generation, -1 = the group has had none."""
        return self.generation or NO_GENERATION

    @property
    def is_retained(self) -> bool:
        """Whether CreateGroup has created the group: it exists, and keeps its type, until it is deleted."""
        return self.definition.session_timeout_ms != NOT_DEFINED

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        member_epochs: bool = True,
    ) -> RegisteredCommitValidation:
        """Return the error of a commit: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, or 0 = each partition is validated.

        A commit without a generation comes from a consumer that is no member: it is accepted while the group has none.

        Arguments:
            member_id: the consumer id; empty = no member.
            group_instance_id, member_epochs: have no meaning in a registered group.
            generation: of the sender; -1 = none.
            transactional: TxnOffsetCommit, which may come from a producer that is no member.
        """
        member = self.members.get(member_id)
        if generation < 0 and not member_id and (transactional or not self.members):
            return RegisteredCommitValidation(KafkaErrorCode.NONE)
        if member is None:
            return RegisteredCommitValidation(UNKNOWN_MEMBER_ID)
        if member.stored is None or not 0 <= generation <= self.generation:
            return RegisteredCommitValidation(KafkaErrorCode.ILLEGAL_GENERATION)
        return RegisteredCommitValidation(KafkaErrorCode.NONE, generation, member.stored, self.marks)

    def validate_offset_fetch(self, member_id: str | None, generation: int) -> int:
        """Whether the sender may fetch offsets; without a member id and a generation, as tools send it, it may."""
        if not member_id and generation < 0:
            return KafkaErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return UNKNOWN_MEMBER_ID
        known = member.epoch <= generation <= self.generation
        return KafkaErrorCode.NONE if known else KafkaErrorCode.ILLEGAL_GENERATION

    def expire_since(self) -> int:
        """The wall time in ms from which the retention of offsets counts; -1 = from each commit."""
        return -1 if self.members or self.stored is None else self.since_wall_ms

    def fence_owners(self, partitions: Collection[TopicIdPartition], now: Now) -> Effects:
        """Begin the generation of a rewind: the owners of these partitions must register to read the new offsets."""
        if not partitions:
            return Effects()
        rewound = {TopicPartition(each.topic, each.partition) for each in partitions}
        command = RegisteredCommand(now, topic_partitions=tuple(sorted(rewound)))
        self.transition(RegisteredEvent.REWOUND, command)
        return self.finish(command)

    def delete(self, now: Now) -> Effects:
        """The tombstones of an empty group."""
        command = RegisteredCommand(now)
        self.transition(RegisteredEvent.DELETED, command)
        return command.effects

    def describe(self) -> DescribedGroup:
        """The group for DescribeGroups, as if its members spoke the consumer protocol."""
        protocol = self.settings.consumer_protocol
        subscription = protocol.subscription_to(self.topics_shown())
        members = tuple(
            ClassicMemberRecord(
                member.name,
                None,
                member.registration.client_id,
                member.registration.client_host,
                member.registration.rebalance_timeout_ms,
                member.session.timeout_ms,
                subscription,
                protocol.assignment(member.owned_by_topic(), b""),
            )
            for member in self.members.values()
        )
        return DescribedGroup(self.state.value, self.protocol_type, self.definition.assignor, members)

    def overview(self) -> GroupOverview:
        """The group for ListGroups+."""
        longest_ms = max((member.session.timeout_ms for member in self.members.values()), default=NOT_DEFINED)
        defined_ms = self.definition.session_timeout_ms
        return GroupOverview(
            self.topics_shown(),
            longest_ms if defined_ms == NOT_DEFINED else defined_ms,
            [MemberOverview(member.name, member.owned_by_topic()) for member in self.members.values()],
        )

    def offsets_committed(self, member_id: str, now: Now) -> Effects:
        """A commit counts as a heartbeat."""
        command = RegisteredCommand(now)
        member = self.members.get(member_id)
        if member is not None:
            self.keep_alive(member, command)
        return command.effects

    # names of timers

    def session_timer(self, name: str) -> TimerName:
        """The timer of a member's session."""
        return (REGISTERED, self.name, "session", name)

    def barrier_timer(self) -> TimerName:
        """The timer of the rebalance timeout."""
        return (REGISTERED, self.name, "barrier")

    def pattern_timer(self) -> TimerName:
        """The timer until the pattern may be resolved again."""
        return (REGISTERED, self.name, "pattern")
