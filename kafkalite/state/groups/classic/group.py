"""One classic group: members join, the broker waits for all of them, the leader assigns, all get their part.

Pure: a request becomes an event of `groups/classic/table`, the table says the next state and the action. Laws:
1. A generation grows when its joins are complete, by one unless members were fenced; requests of another generation
   are refused.
2. Every token is answered once: a parked join when its generation begins, a parked sync when the leader has assigned or
   the rebalance starts anew, at the latest when the timer of the rebalance or of the member runs out.
3. A record is written when a group is founded, when the leader has assigned, when a static member is replaced in a
   Stable group, when the last member has gone, when members are fenced and when a consumer group becomes this one. Only
   what it holds survives a restart.
4. A member that is fenced is unknown from then on, also after a restart: nothing that it did before can be committed.
   Of a partition that is rewound while members rejoin nothing is committed until the next generation (`rewound`).
Differences from Kafka: a second join or sync of a member answers the first one (REBALANCE_IN_PROGRESS), where Kafka
lets it hang; a member that is refused because the group is full no longer holds up the rebalance.
Source: GroupMetadataManager.java, ClassicGroup.java of Apache Kafka; KIP-394, KIP-345, KIP-814.
"""

from collections.abc import Collection, Iterator

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.core import CONSUMER_PROTOCOL, ClassicCommand
from kafkalite.state.groups.classic.join import ClassicJoin
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.requests import ErrorOnly, Heartbeat, Leave, LeaveOf, Left, LeftMember, Sync, Synced
from kafkalite.state.groups.classic.table import ClassicEvent, ClassicState
from kafkalite.state.groups.records import ClassicGroupMetadata
from kafkalite.state.groups.sessions import SESSIONS_AT_ONCE

__all__ = ["ClassicGroup"]

STABLE = ClassicState.STABLE


class ClassicGroup(ClassicJoin):
    """One classic group: what can be asked of it, and what its timers do."""

    __slots__ = ()

    def sync(self, request: Sync, token: Token, now: Now) -> Effects:
        """Bring or fetch the assignment. The answer (`Synced`) waits for the leader."""
        step = ClassicCommand(now, token=token)
        if error := self._sync_refusal(request):
            step.effects.answer(token, Synced(error))
            return step.effects
        step.member = self.members.all[request.member_id]
        if self.state is not ClassicState.PREPARING:
            self._synced(request.member_id, step)
        if request.member_id == self.members.leader:
            step.assignments = dict(request.assignments)
            self.transition(ClassicEvent.LEADER_SYNCED, step)
        else:
            self.transition(ClassicEvent.MEMBER_SYNCED, step)
        return step.effects

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> Effects:
        """A member is alive; the answer (`Done`) says whether it must rejoin."""
        step = ClassicCommand(now, token=token)
        error = self.members.validate_member(request.member_id, request.group_instance_id)
        if not error and request.generation != self.generation:
            error = KafkaErrorCode.ILLEGAL_GENERATION
        if error:
            step.effects.answer(token, ErrorOnly(error))
            return step.effects
        step.member = self.members.all[request.member_id]
        self._keep_alive(step.member, step)
        self.transition(ClassicEvent.HEARTBEAT, step)
        return step.effects

    def fast_heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> bool:
        """Take note of a heartbeat for which `heartbeat` would do nothing else: the group is Stable, the member is one,
        and its timer is set. False = it is another one, and nothing has happened.
        """
        members = self.members
        member = members.all.get(member_id)
        if member is None or self.state is not STABLE or generation != self.generation:
            return False
        if instance_id is not None and members.static.get(instance_id) != member_id:
            return False
        over_ms, timer_ms = now_ms + member.session_timeout_ms, member.timer_ms
        if timer_ms is None or over_ms < timer_ms:
            return False
        member.session_over_ms = over_ms
        return True

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """Members leave, or are removed by their instance ids; answers `Left`."""
        step = ClassicCommand(now, token=token)
        left = tuple(self._leave_one(leaver, step) for leaver in request.members)
        if any(not member.error for member in left):
            self.transition(ClassicEvent.MEMBERS_LEFT, step)
        step.effects.answer(token, Left(members=left))
        return step.effects

    def fence_owners(self, partitions: Collection[tuple[str, int]], now: Now) -> Effects:
        """Remove the members that own any of these partitions, as if their sessions had run out (law 4).

        They drop all that they have as lost, join as new members and read the committed offsets. A rebalance alone
        would not do: who keeps a partition through it keeps his position, too. While members rejoin, the partition may
        be nobody's already, and a commit of who had it may come late: in this generation none is taken any more, and
        what is stored is a generation that nobody knows. That leaves out members that have gone since the last record,
        which would be members again after a restart.
        """
        step = ClassicCommand(now)
        owners = [name for name, member in self.members.all.items() if self._owns(member, partitions)]
        for name in owners:
            self._remove(name, step)
        if owners or self.state is ClassicState.PREPARING:
            self.rewound |= frozenset(partitions)
            if owners or (self.stored is not None and self.stored.members):
                step.effects.records.append(self._unknown_record())
        if owners:
            self.transition(ClassicEvent.MEMBERS_LEFT, step)
        return step.effects

    def delete(self, now: Now) -> Effects:
        """Write the tombstone of an empty group, and forget the ids given out."""
        step = ClassicCommand(now)
        for member_id in self.members.pending:
            step.effects.cancel_timer(self._session_timer(member_id))
        self.transition(ClassicEvent.DELETED, step)
        return step.effects

    def upgrade(self, now: Now) -> Effects:
        """Give the name to a consumer group, which has taken over the members."""
        step = ClassicCommand(now)
        self.transition(ClassicEvent.UPGRADED, step)
        return step.effects

    def take_over(self, generation: int, members: Collection[ClassicMember], now: Now) -> Effects:
        """Be the classic group that a consumer group becomes, in the generation that its members know. They are asked
        to rejoin: nobody has assigned what the others left behind. After a restart they are, too (`_unknown_record`).
        """
        step = ClassicCommand(now)
        self.state, self.generation, self.protocol_type = ClassicState.STABLE, generation, CONSUMER_PROTOCOL
        for member in members:
            self.members.add(member)
            self._keep_alive(member, step)
        self.protocol = self.members.chosen_protocol()
        self.topics = self.subscribed_topics()
        step.effects.records.append(self._unknown_record())
        self.transition(ClassicEvent.DOWNGRADED, step)
        return step.effects

    def session_expired(self, member_id: str, now: Now) -> Effects:
        """A member was silent for its session timeout, or an id that was given out was not used."""
        step = ClassicCommand(now)
        member = self.members.all.get(member_id)
        if member_id in self.members.pending:
            self.members.remove(member_id)
            self.transition(ClassicEvent.PENDING_GONE, step)
        elif member is not None:
            member.timer_ms = None
            if member.session_over_ms > now.ms:
                self._watch(member, step)
            elif not member.waits:
                self._remove(member_id, step)
                self.transition(ClassicEvent.MEMBER_SILENT, step)
        return step.effects

    def rebalance_timeout_expired(self, now: Now) -> Effects:
        """The initial delay is over, or the time that members have to rejoin."""
        step = ClassicCommand(now)
        extended = self.initial and self.grew and self.delay[1] > 0
        self.transition(ClassicEvent.DELAY_EXTENDED if extended else ClassicEvent.JOIN_TIME_OVER, step)
        return step.effects

    def sync_timeout_expired(self, now: Now) -> Effects:
        """Members that did not ask for their assignment in time are removed."""
        step = ClassicCommand(now)
        for member_id in list(self.members.pending_sync):
            self._remove(member_id, step)
        self.transition(ClassicEvent.SYNC_TIME_OVER, step)
        return step.effects

    def loaded(self, now: Now) -> Iterator[Effects]:
        """Start the members' sessions after replay, some at a time; a group above its limit rebalances, so that it can
        shrink.
        """
        step = ClassicCommand(now)
        for at, member in enumerate(self.members.all.values()):
            if at % SESSIONS_AT_ONCE == SESSIONS_AT_ONCE - 1:
                yield step.effects
                step = ClassicCommand(now)
            self._keep_alive(member, step)
        if len(self.members) > self.settings.members_max:
            self.transition(ClassicEvent.OVERSIZED, step)
        yield step.effects

    def offsets_committed(self, member_id: str, now: Now) -> Effects:
        """A commit counts as a heartbeat, while the group is Stable or waits for its members."""
        step = ClassicCommand(now)
        member = self.members.all.get(member_id)
        if member is not None and self.state in (ClassicState.STABLE, ClassicState.PREPARING):
            self._keep_alive(member, step)
        return step.effects

    def _leave_one(self, leaver: LeaveOf, step: ClassicCommand) -> LeftMember:
        member_id, instance = leaver
        if not member_id:
            found = self.members.static.get(instance) if instance is not None else None
            error = KafkaErrorCode.NONE if found is not None else KafkaErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in self.members.pending:
            found, error = member_id, KafkaErrorCode.NONE
        else:
            found, error = member_id, KafkaErrorCode(self.members.validate_member(member_id, instance))
        if not error and found is not None:
            step.effects.cancel_timer(self._session_timer(found))
            self._remove(found, step)
        return LeftMember(member_id, instance, error)

    def _sync_refusal(self, request: Sync) -> int:
        if error := self.members.validate_member(request.member_id, request.group_instance_id):
            return error
        if request.generation != self.generation:
            return KafkaErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol):
            return KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return KafkaErrorCode.NONE

    def _unknown_record(self) -> ClassicGroupMetadata:
        """What a restart finds: the members that were assigned something, in a generation that they do not know. They
        join anew, and what was taken from others is assigned.
        """
        assigned = tuple(one.stored(self.protocol) for one in self.members.all.values() if not one.is_new)
        names = [one.member_id for one in assigned]
        leader = self.members.leader if self.members.leader in names else next(iter(names), None)
        self.reserved = self.generation + 1
        return self.metadata_record()._replace(generation=self.reserved, leader=leader, members=assigned)

    def _owns(self, member: ClassicMember, partitions: Collection[tuple[str, int]]) -> bool:
        """Whether it may have one of these partitions; True where nobody can tell."""
        if member.is_new:
            return False
        if self.state is ClassicState.COMPLETING or self.protocol_type != CONSUMER_PROTOCOL:
            return True
        if self.state is ClassicState.PREPARING and not member.assignment:
            return True  # that of the generation before was dropped, but the member may have kept it
        owned = self.settings.partitions_of(member.assignment)
        # a cooperative member that has to give a partition up does so, and may commit it, after it has been assigned
        held = self.settings.held_of(member.metadata(self.protocol))
        return owned is None or held is None or not (owned | held).isdisjoint(partitions)

    def _synced(self, member_id: str, step: ClassicCommand) -> None:
        if member_id in self.members.pending_sync:
            del self.members.pending_sync[member_id]
            if not self.members.pending_sync:
                step.effects.cancel_timer(self._sync_timer())
