"""One classic group: its members, its generation and its state.

Pure. A request becomes an event (`join`, `commands`), the transition table gives the next state and the action
(`table`, `rebalance`), and the action changes the group. Invariants:
1. The generation increases when all joins of a rebalance are complete; by one, unless members were fenced. Requests of
   another generation are rejected.
2. Every token is answered once: a delayed join when its generation begins, a delayed sync when the leader has sent the
   assignment or the rebalance restarts, at the latest when the timer of the rebalance or of the member fires.
3. A record is written when a group is created, when the leader has sent the assignment, when a static member is
   replaced in a Stable group, when the last member has left, when members are fenced and when a consumer group is
   downgraded. Only its contents survive a restart.
4. A fenced member is unknown from then on, also after a restart: its earlier commits are rejected. Commits of a
   partition that is rewound during a rebalance are rejected until the next generation (`rewound`).
Differences from Kafka: a second join or sync of a member completes the first one with REBALANCE_IN_PROGRESS, Kafka
never answers it; a member that is rejected because the group is full no longer delays the rebalance.
Source: GroupMetadataManager.java, ClassicGroup.java of Apache Kafka; KIP-394, KIP-345, KIP-814.
"""

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.effects import Effects, Now, TimerName, Token
from kafkalite.state.groups.classic.commit_validation import COMMIT_ACCEPTED, ClassicCommitValidation
from kafkalite.state.groups.classic.members import ClassicMember, ClassicMembers
from kafkalite.state.groups.classic.requests import Joined, Synced
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL, ClassicSettings
from kafkalite.state.groups.classic.states import ClassicEvent, ClassicState
from kafkalite.state.groups.group import DescribedGroup, Group, GroupOverview, MemberOverview, TopicIdPartition
from kafkalite.state.groups.groups_by_topic import EVERYTHING, NO_TOPICS
from kafkalite.state.groups.records import CLASSIC, ClassicGroupMetadata


@dataclass(slots=True)
class ClassicCommand:
    """One command while it is executed.

    Arguments:
        now: the time of the command.
        effects: its effects so far.
        token: of its response; None = it has no response.
        member: the sender.
        assignments: by member id, from a leader's sync.
        can_skip_assignment: the sender of a join understands that it need not assign.
        replaced_id: the former member id of a static member that joins.
    """

    now: Now
    effects: Effects = field(default_factory=Effects)
    token: Token = None
    member: ClassicMember | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    can_skip_assignment: bool = True
    replaced_id: str = ""


ClassicAction = Callable[["ClassicGroup", ClassicCommand], ClassicEvent | None]
"""Changes a group that has changed its state; the event that it returns follows at once."""


class ClassicTransition(NamedTuple):
    """A row of the transition table: the next state, and the action that runs in it."""

    state: ClassicState
    action: ClassicAction


@dataclass(slots=True, eq=False)
class ClassicGroup(Group):
    """State and members of one group.

    Arguments:
        name: of the group.
        transitions: the transition table.
        settings: the broker's settings.
        state_since_wall_ms: wall time of the last change of the state.
        members: its members.

    Attributes:
        reserved_generation: written to the log by `record_of_unknown_generation`; no member has it.
        rewound: partitions that were rewound in this generation; their commits are rejected.
        topics: topics to which members subscribe, None = unknown.
        is_initial: the current rebalance is the first one since the group was Empty.
        joined_in_delay: a member joined during the initial delay.
        delay: the current initial delay, and by how much it may be extended (ms).
        stored: the last applied record.
    """

    name: str
    transitions: Mapping[tuple[ClassicState, ClassicEvent], ClassicTransition]
    settings: ClassicSettings
    state_since_wall_ms: int
    members: ClassicMembers
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    reserved_generation: int = 0
    rewound: frozenset[TopicPartition] = frozenset()
    protocol_type: str | None = None
    protocol: str | None = None
    topics: frozenset[str] | None = None
    is_initial: bool = False
    joined_in_delay: bool = False
    delay: tuple[int, int] = (0, 0)
    stored: ClassicGroupMetadata | None = None

    def transition(self, event: ClassicEvent, command: ClassicCommand) -> None:
        """Enter the state that the table gives, run its action, and handle the event that follows from it, if any."""
        following: ClassicEvent | None = event
        while following is not None:
            row = self.transitions[self.state, following]
            if self.state is not row.state:
                self.state = row.state
                self.state_since_wall_ms = command.now.wall_ms
            following = row.action(self, command)

    # records

    def metadata_record(self) -> ClassicGroupMetadata:
        """The record of the group as it is."""
        return ClassicGroupMetadata(
            self.name,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.members.leader,
            self.state_since_wall_ms,
            tuple(member.to_record(self.protocol) for member in self.members.all.values()),
        )

    def creation_record(self) -> ClassicGroupMetadata:
        """The record of a new group before its first generation, as Kafka writes it."""
        return ClassicGroupMetadata(self.name, "", self.generation, None, None, self.state_since_wall_ms, ())

    def record_of_unknown_generation(self) -> ClassicGroupMetadata:
        """A record whose generation no member has: after a restart all members rejoin, and the partitions of removed
        members are assigned. It has the members that were assigned something.
        """
        assigned = tuple(member.to_record(self.protocol) for member in self.members.all.values() if not member.is_new)
        names = [member.member_id for member in assigned]
        leader = self.members.leader if self.members.leader in names else next(iter(names), None)
        self.reserved_generation = self.generation + 1
        return self.metadata_record()._replace(generation=self.reserved_generation, leader=leader, members=assigned)

    @property
    def last_generation(self) -> int:
        """The highest generation that a member or a record may have."""
        return max(self.generation, self.reserved_generation)

    def restore(self, record: ClassicGroupMetadata) -> None:
        """Take over a record at replay: the group is Stable with members, Empty without."""
        self.members = ClassicMembers(self.members.account)
        for stored in record.members:
            self.members.remove(stored.member_id)  # a damaged record may contain a member twice
            self.members.remove(self.members.static.get(stored.group_instance_id or "", ""))
            self.members.add(ClassicMember.restore(stored, record.protocol or ""))
        self.members.leader = record.leader if record.leader in self.members.all else self.members.leader
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY
        self.state_since_wall_ms = record.state_timestamp_ms
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol = record.protocol
        self.topics = self.subscribed_topics()

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics to which the members subscribe; None if a subscription cannot be read."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        topics: set[str] = set()
        for member in self.members.all.values():
            of_member = self.settings.topics_of(member.metadata(self.protocol))
            if of_member is None:
                return None
            topics |= of_member
        return frozenset(topics)

    # members

    def keep_alive(self, member: ClassicMember, command: ClassicCommand, for_ms: int | None = None) -> None:
        """Extend the session of a member by its session timeout, or by `for_ms`."""
        member.session.extend(self.session_timer(member.member_id), command.effects, command.now, for_ms)

    def remove_member(self, member_id: str, command: ClassicCommand) -> None:
        """Remove a member or a reserved id; its delayed requests fail with UNKNOWN_MEMBER_ID."""
        member = self.members.all.get(member_id)
        if member is not None:
            self.fail_delayed_requests(member, KafkaErrorCode.UNKNOWN_MEMBER_ID, "", command)
        command.effects.cancel_timer(self.session_timer(member_id))
        self.members.remove(member_id)

    def fail_delayed_requests(
        self, member: ClassicMember, error: int, sent_member_id: str, command: ClassicCommand
    ) -> None:
        """Complete the delayed join and sync of a member with an error.

        Arguments:
            member: whose requests fail.
            error: a Kafka error code.
            sent_member_id: the member id in the response to the join.
            command: receives the responses.
        """
        join = self.members.take_delayed_join(member)
        if join is not None:
            command.effects.answer(join, Joined(error, sent_member_id))
        sync, member.delayed_sync = member.delayed_sync, None
        if sync is not None:
            command.effects.answer(sync, Synced(error))

    def may_own(self, member: ClassicMember, partitions: Collection[TopicPartition]) -> bool:
        """Whether a member may own any of these partitions; True if that is unknown."""
        if member.is_new:
            return False
        if self.state is ClassicState.COMPLETING or self.protocol_type != CONSUMER_PROTOCOL:
            return True
        if self.state is ClassicState.PREPARING and not member.assignment:
            return True  # the previous assignment was dropped here, but the member may have kept it
        owned = self.settings.partitions_of(member.assignment)
        # a cooperative member revokes a partition, and may commit it, after it has received its assignment
        held = self.settings.held_of(member.metadata(self.protocol))
        return owned is None or held is None or not (owned | held).isdisjoint(partitions)

    # the interface of every group (`groups/group`)

    @property
    def generation_id(self) -> int:
        """The generation."""
        return self.generation

    @property
    def is_retained(self) -> bool:
        """Whether a member id was given out and is not used yet: the member is about to join."""
        return bool(self.members.reserved_ids)

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        member_epochs: bool = True,
    ) -> ClassicCommitValidation:
        """Return whether a commit is accepted. A commit without a generation comes from a consumer that is no member.

        Arguments:
            member_id: of the sender; empty = it is no member.
            group_instance_id: of a static member; None = none.
            generation: of the sender; -1 = none.
            transactional: TxnOffsetCommit, which may come from a producer that is no member.
            member_epochs: has no meaning in a classic group.

        Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        if generation < 0 and self.state is ClassicState.EMPTY:
            return COMMIT_ACCEPTED
        if generation >= 0 or member_id or group_instance_id is not None:
            if error := self.members.validate_member(member_id, group_instance_id):
                return ClassicCommitValidation(error)
            if generation != self.generation:
                return ClassicCommitValidation(KafkaErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            return ClassicCommitValidation(KafkaErrorCode.UNKNOWN_MEMBER_ID)
        rebalancing = self.state is ClassicState.COMPLETING and not transactional
        return ClassicCommitValidation(
            KafkaErrorCode.REBALANCE_IN_PROGRESS if rebalancing else KafkaErrorCode.NONE, self.rewound
        )

    def validate_offset_delete(self) -> int:
        """NON_EMPTY_GROUP where the broker does not know which topics the members read."""
        known = self.state is ClassicState.EMPTY or self.protocol_type == CONSUMER_PROTOCOL
        return KafkaErrorCode.NONE if known else KafkaErrorCode.NON_EMPTY_GROUP

    def topics_read(self) -> Container[str]:
        """The topics that members read; all topics if the subscription of a consumer cannot be read."""
        if self.topics is None:
            return EVERYTHING if self.protocol_type == CONSUMER_PROTOCOL else NO_TOPICS
        return self.topics

    def expire_since(self) -> int | None:
        """The wall time in ms from which the retention of offsets counts; -1 = from each commit, None = no offset
        expires now.
        """
        if self.protocol_type is None:
            return -1
        if self.state is ClassicState.EMPTY:
            return self.state_since_wall_ms
        stable_consumers = self.state is ClassicState.STABLE and self.topics is not None
        return -1 if stable_consumers else None

    def validate_delete(self) -> int:
        """NON_EMPTY_GROUP, or 0: the group may be deleted."""
        return KafkaErrorCode.NONE if self.state is ClassicState.EMPTY else KafkaErrorCode.NON_EMPTY_GROUP

    def describe(self) -> DescribedGroup:
        """The group for DescribeGroups."""
        record = self.metadata_record()
        if self.state is ClassicState.STABLE:
            return DescribedGroup(self.state.value, record.protocol_type, record.protocol or "", record.members)
        bare = tuple(member._replace(subscription=b"", assignment=b"") for member in record.members)
        return DescribedGroup(self.state.value, record.protocol_type, "", bare)

    def overview(self) -> GroupOverview:
        """The group for ListGroups+. The partitions of a member are those of its assignment, if that can be read."""
        members = list(self.members.all.values())
        longest_ms = max((member.session.timeout_ms for member in members), default=-1)
        shown = [MemberOverview(member.member_id, self._assigned(member)) for member in members]
        return GroupOverview(sorted(self.topics or ()), longest_ms, shown)

    def offsets_committed(self, member_id: str, now: Now) -> Effects:
        """A commit counts as a heartbeat while the group is Stable or waits for its members."""
        command = ClassicCommand(now)
        member = self.members.all.get(member_id)
        if member is not None and self.state in (ClassicState.STABLE, ClassicState.PREPARING):
            self.keep_alive(member, command)
        return command.effects

    def fence_owners(self, partitions: Collection[TopicIdPartition], now: Now) -> Effects:
        """Remove the members that own any of these rewound partitions, as if their sessions had expired (invariant 4).

        They drop all their partitions as lost, join as new members and read the committed offsets. A rebalance is not
        enough: a member that keeps a partition also keeps its position. During a rebalance the partition may have no
        owner, and a commit of its previous owner may be late: such commits are rejected in this generation, and the
        stored generation is unknown to all members. The record also drops members that have left since the last one,
        which a restart would restore.
        """
        command = ClassicCommand(now)
        rewound = frozenset(TopicPartition(each.topic, each.partition) for each in partitions)
        owners = [name for name, member in self.members.all.items() if self.may_own(member, rewound)]
        for name in owners:
            self.remove_member(name, command)
        if owners or self.state is ClassicState.PREPARING:
            self.rewound |= rewound
            if owners or (self.stored is not None and self.stored.members):
                command.effects.records.append(self.record_of_unknown_generation())
        if owners:
            self.transition(ClassicEvent.MEMBERS_LEFT, command)
        return command.effects

    def delete(self, now: Now) -> Effects:
        """The tombstone of an empty group; reserved member ids are dropped."""
        command = ClassicCommand(now)
        for member_id in self.members.reserved_ids:
            command.effects.cancel_timer(self.session_timer(member_id))
        self.transition(ClassicEvent.DELETED, command)
        return command.effects

    def _assigned(self, member: ClassicMember) -> dict[str, list[int]]:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self.settings.partitions_of(member.assignment) or ()):
            owned.setdefault(topic, []).append(partition)
        return owned

    # names of timers

    def session_timer(self, member_id: str) -> TimerName:
        """The timer of a member's session, or of a reserved member id."""
        return (CLASSIC, self.name, "session", member_id)

    def join_timer(self) -> TimerName:
        """The timer of the initial delay or of the rebalance timeout."""
        return (CLASSIC, self.name, "join")

    def sync_timer(self) -> TimerName:
        """The timer until which the members must fetch their assignment."""
        return (CLASSIC, self.name, "sync")
