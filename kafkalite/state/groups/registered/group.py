"""One registered group: members register, the broker waits for all of them, assigns, and answers.

Pure: a request becomes an event of `groups/registered/table`, the table says the next state and the action. Laws:
1. A generation grows with every change of what anybody owns and with every rewind, and is stored with all that it says.
2. A partition has one owner in a generation. Who owned it before has registered since, or is out, or registers as the
   next thing it does: until then nothing that it commits for the partition is taken.
3. Each member has an epoch: the last generation that changed what it owns, or where it is to read. Who does not know
   its epoch is told to register by its heartbeat; all others learn new generations and go on.
4. A registration that must not wait is answered at once: one that says nothing new, and one of claims alone. All others
   are answered when the generation begins, at the latest when the longest rebalance timeout ends.
5. Members are durable from their first generation until they are gone. After a restart they have their whole session.
"""

from collections.abc import Collection, Container

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.requests import Leave, LeaveOf, Left, LeftMember
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL
from kafkalite.state.groups.group import (
    NO_GENERATION,
    DescribedGroup,
    GroupOverview,
    MemberOverview,
    TopicIdPartition,
)
from kafkalite.state.groups.records import ClassicMemberRecord, GroupDefinition, GroupGeneration, TopicPartition
from kafkalite.state.groups.registered.barrier import UNKNOWN_MEMBER_ID, RegisteredRebalance
from kafkalite.state.groups.registered.commit_validation import RegisteredCommitValidation
from kafkalite.state.groups.registered.core import NOT_DEFINED, RegisteredCommand, RegisteredGroupMember
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from kafkalite.state.groups.registered.table import RegisteredEvent, RegisteredState

__all__ = ["RegisteredGroup"]


class RegisteredGroup(RegisteredRebalance):
    """One registered group: what can be asked of it, and what its timers do."""

    __slots__ = ()

    protocol_type = CONSUMER_PROTOCOL

    # requests of members

    def register(self, request: RegisterConsumer, token: Token, now: Now) -> Effects:
        """Register for the next generation. The answer (`ConsumerRegistered`) may come much later."""
        step = RegisteredCommand(now, token=token)
        request = request._replace(session_timeout_ms=self.session_timeout_ms(request))
        if error := self._refusal(request):
            step.effects.answer(token, ConsumerRegistered(error))
            return step.effects
        member = step.member = self.members.get(request.consumer_id)
        repeats = member is not None and member.says_the_same(request)
        before = self.named_topics(member) if member is not None else set[str]()
        if member is None:
            member = step.member = self.members[request.consumer_id] = RegisteredGroupMember(request)
        member.asked, member.session_timeout_ms = request, request.session_timeout_ms
        self.readers.replace(self.name, before, self.named_topics(member))
        self.keep_alive(member, step)
        self.ask_topics(step)
        self._registered_again(member, step)
        if repeats and (self.state is RegisteredState.STABLE or member.claims_alone):
            self.transition(RegisteredEvent.REPEATED, step)
        elif member.claims_alone:
            self.transition(RegisteredEvent.CLAIMED, step)
        else:
            member.parked = token
            self.transition(RegisteredEvent.REGISTERED, step)
        return self.finish(step)

    def heartbeat(self, request: HeartbeatPlus, token: Token, now: Now) -> Effects:
        """A member is alive; the answer (`HeartbeatAnswered`) says whether it must register."""
        step = RegisteredCommand(now, token=token, generation=request.generation)
        member = step.member = self.members.get(request.consumer_id)
        error = (
            UNKNOWN_MEMBER_ID if member is None else self._bounds_refusal(request.session_timeout_ms, may_be_zero=True)
        )
        if not error and request.generation > self.generation:
            error = KafkaErrorCode.ILLEGAL_GENERATION
        if error or member is None:
            step.effects.answer(token, HeartbeatAnswered(error))
            return step.effects
        member.session_timeout_ms = request.session_timeout_ms or member.session_timeout_ms
        self.keep_alive(member, step)
        self.ask_topics(step)
        behind = member.name in self.late or (member.parked is None and request.generation < member.epoch)
        self.transition(RegisteredEvent.BEHIND if behind else RegisteredEvent.ALIVE, step)
        return step.effects

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Members leave, by their consumer ids; answers `Left`."""
        step = RegisteredCommand(now, token=token)
        left = tuple(self._leave_one(leaver, step) for leaver in request.members)
        step.effects.answer(token, Left(members=left))
        return self.finish(step)

    # the interface of every group (`groups/group`)

    @property
    def generation_id(self) -> int:
        """The generation, -1 = the group has had none."""
        return self.generation or NO_GENERATION

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self.members)

    @property
    def is_retained(self) -> bool:
        """Whether CreateGroup has created the group: it exists, and keeps its type, until it is deleted."""
        return self.definition.session_timeout_ms != NOT_DEFINED

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool = False
    ) -> RegisteredCommitValidation:
        """Whether a commit is accepted: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, or 0 = each partition is validated. A
        commit without a generation comes from a consumer that is no member: it is accepted while the group has none.
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

    def validate_offset_delete(self) -> int:
        """Single offsets may be deleted: the broker knows what the members read."""
        return KafkaErrorCode.NONE

    def topics_read(self) -> Container[str]:
        """The topics that members read."""
        return self.read_topics()

    def expire_since(self) -> int:
        """The wall time in ms from which the retention of offsets counts; -1 = from each commit."""
        return -1 if self.members or self.stored is None else self.since_wall_ms

    def fence_owners(self, partitions: Collection[TopicIdPartition], now: Now) -> Effects:
        """Rewind these partitions: their owners must register and read the new offsets."""
        if not partitions:
            return Effects()
        return self.rewind(tuple((each.topic, each.partition) for each in partitions), now)

    def validate_delete(self) -> int:
        """NON_EMPTY_GROUP, or 0: the group may be deleted."""
        return KafkaErrorCode.NON_EMPTY_GROUP if self.members else KafkaErrorCode.NONE

    def describe(self) -> DescribedGroup:
        """The group for DescribeGroups, as if its members spoke the consumer protocol."""
        protocol = self.settings.consumer_protocol
        subscription = protocol.subscription_to(self._topics_shown())
        members = tuple(
            ClassicMemberRecord(
                member.name,
                None,
                member.asked.client_id,
                member.asked.client_host,
                member.asked.rebalance_timeout_ms,
                member.session_timeout_ms,
                subscription,
                protocol.assignment(member.owned_by_topic(), b""),
            )
            for member in self.members.values()
        )
        return DescribedGroup(self.state.value, self.protocol_type, self.definition.assignor, members)

    def overview(self) -> GroupOverview:
        """The group for ListGroups+."""
        longest_ms = max((member.session_timeout_ms for member in self.members.values()), default=NOT_DEFINED)
        defined_ms = self.definition.session_timeout_ms
        return GroupOverview(
            self._topics_shown(),
            longest_ms if defined_ms == NOT_DEFINED else defined_ms,
            [MemberOverview(member.name, member.owned_by_topic()) for member in self.members.values()],
        )

    def offsets_committed(self, member_id: str, now: Now) -> Effects:
        """A commit counts as a heartbeat."""
        step = RegisteredCommand(now)
        member = self.members.get(member_id)
        if member is not None:
            self.keep_alive(member, step)
        return step.effects

    # administration

    def define(self, definition: GroupDefinition, now: Now) -> Effects:
        """Become what a definition says; the group has no members."""
        step = RegisteredCommand(now, definition=definition._replace(first_topics=self.definition.first_topics))
        self.transition(RegisteredEvent.DEFINED, step)
        return step.effects

    def rewind(self, topic_partitions: tuple[TopicPartition, ...], now: Now) -> Effects:
        """The offsets of these partitions are being set anew (law 3)."""
        step = RegisteredCommand(now, topic_partitions=tuple(sorted(set(topic_partitions))))
        self.transition(RegisteredEvent.REWOUND, step)
        return self.finish(step)

    def delete(self, now: Now) -> Effects:
        """Write the tombstones of an empty group."""
        step = RegisteredCommand(now)
        self.transition(RegisteredEvent.DELETED, step)
        return step.effects

    # time and topics

    def session_expired(self, name: str, now: Now) -> Effects:
        """A member was silent for its session timeout; the clock stands still while its registration is parked."""
        step = RegisteredCommand(now)
        member = self.members.get(name)
        if member is None:
            return step.effects
        member.timer_ms = None
        if member.parked is not None:
            return step.effects
        if member.session_over_ms > now.ms:
            self._watch(member, step)
        else:
            self._gone(member, step)
        return self.finish(step)

    def registration_timeout_expired(self, now: Now) -> Effects:
        """The time to register is over."""
        step = RegisteredCommand(now)
        self.transition(RegisteredEvent.TIME_OVER, step)
        return self.finish(step)

    def topics_changed(self, now: Now) -> Effects:
        """Topics came, went or grew."""
        step = RegisteredCommand(now)
        self.resolved = False
        if self.members:
            self.ask_topics(step)
        self._look_at_topics(step)
        return self.finish(step)

    def pattern_due(self, now: Now) -> Effects:
        """The pattern may be resolved again."""
        step = RegisteredCommand(now)
        self.ask_topics(step)
        return step.effects

    def pattern_resolved(self, matched: tuple[str, ...], now: Now) -> Effects:
        """The topics that the pattern matches."""
        step = RegisteredCommand(now)
        self.matched, self.resolving, self.resolved_at_ms = matched, False, now.ms
        if self.members:
            self.ask_topics(step)
        self._look_at_topics(step)
        return self.finish(step)

    def loaded(self, now: Now) -> Effects:
        """Start the members' sessions after replay, and look whether they own what they should."""
        step = RegisteredCommand(now)
        for member in self.members.values():
            self.keep_alive(member, step)
        if self.members:
            self.ask_topics(step)
        self._look_at_topics(step)
        return self.finish(step)

    def restore(self, record: GroupGeneration) -> None:
        """Become what a record says, at replay: Stable with members, Empty without."""
        nothing: frozenset[TopicPartition] = frozenset()
        names = {stored.consumer_id for stored in record.members}
        self.claims = {name: topic_partitions for name, topic_partitions in self.claims.items() if name in names}
        self.generation = record.generation
        self.since_wall_ms = record.state_timestamp_ms
        self.members = {
            stored.consumer_id: RegisteredGroupMember.restored(
                self.name, stored, self.claims.get(stored.consumer_id, nothing)
            )
            for stored in record.members
        }
        for member in self.members.values():
            self.readers.replace(self.name, (), self.named_topics(member))
        self.state = RegisteredState.STABLE if self.members else RegisteredState.EMPTY

    def session_timeout_ms(self, request: RegisterConsumer) -> int:
        """What a registration asks for, or the definition says."""
        return request.session_timeout_ms or max(self.definition.session_timeout_ms, 0)

    # parts of the above

    def _topics_shown(self) -> tuple[str, ...]:
        return tuple(sorted(self.read_topics() or self.defined_topics()))

    def _refusal(self, request: RegisterConsumer) -> int:
        if error := self._bounds_refusal(request.session_timeout_ms):
            return error
        if request.consumer_id not in self.members and len(self.members) >= self.settings.members_max:
            return KafkaErrorCode.GROUP_MAX_SIZE_REACHED
        return self._claims_refusal(request) if request.claims else KafkaErrorCode.NONE

    def _claims_refusal(self, request: RegisterConsumer) -> int:
        sizes = self.sizes({topic for topic, _ in request.claims})
        if not all(0 <= number < sizes.get(topic, 0) for topic, number in request.claims):
            return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        others = (member for name, member in self.members.items() if name != request.consumer_id)
        taken = any(not request.claims.isdisjoint(other.asked.claims) for other in others)
        return KafkaErrorCode.UNRELEASED_INSTANCE_ID if taken else KafkaErrorCode.NONE

    def _bounds_refusal(self, session_timeout_ms: int, *, may_be_zero: bool = False) -> int:
        bounds = range(self.settings.session_min_ms, self.settings.session_max_ms + 1)
        good = session_timeout_ms in bounds or (may_be_zero and session_timeout_ms == 0)
        return KafkaErrorCode.NONE if good else KafkaErrorCode.INVALID_SESSION_TIMEOUT

    def _registered_again(self, member: RegisteredGroupMember, step: RegisteredCommand) -> None:
        """An older request of the same member waits no more."""
        self.late.pop(member.name, None)
        self._unpark(member, ConsumerRegistered(KafkaErrorCode.REBALANCE_IN_PROGRESS), step)

    def _leave_one(self, leaver: LeaveOf, step: RegisteredCommand) -> LeftMember:
        member = self.members.get(leaver.member_id)
        if member is None:
            return LeftMember(*leaver, UNKNOWN_MEMBER_ID)
        self._gone(member, step)
        return LeftMember(*leaver, KafkaErrorCode.NONE)

    def _gone(self, member: RegisteredGroupMember, step: RegisteredCommand) -> None:
        self.remove(member.name, step, UNKNOWN_MEMBER_ID)
        if not self.members:
            self.transition(self.last_gone(), step)
        else:
            self.transition(RegisteredEvent.CLAIMS_GONE if member.claims_alone else RegisteredEvent.GONE, step)

    def _look_at_topics(self, step: RegisteredCommand) -> None:
        if self.state is not RegisteredState.STABLE or self.is_outdated():
            self.transition(RegisteredEvent.TOPICS_CHANGED, step)
