"""How a request to join a classic group is judged, and which event of `groups/classic/table` it becomes."""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.core import ClassicCommand
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.rebalance import ClassicRebalance
from kafkalite.state.groups.classic.requests import Join, Joined, fresh_member_id
from kafkalite.state.groups.classic.table import ClassicEvent, ClassicState

__all__ = ["ClassicJoin"]


class ClassicJoin(ClassicRebalance):
    """New, known and static members that join."""

    __slots__ = ()

    def join(self, request: Join, token: Token, now: Now) -> Effects:
        """Join or rejoin. The answer (`Joined`) may come much later."""
        step = ClassicCommand(now, token=token, can_skip_assignment=request.can_skip_assignment)
        if not self._has_room(request.member_id):
            self._reject(request.member_id, step)
        elif not self._can_speak(request):
            refused = Joined(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            step.effects.answer(token, refused)
        elif not self.members.accepts(request):
            self._reject(request.member_id, step)
        elif not request.member_id:
            self._join_new(request, step)
        elif request.member_id in self.members.pending and request.group_instance_id is None:
            self._add(request.member_id, request, step)
        else:
            self._join_known(request, step)
        return step.effects

    def _has_room(self, member_id: str) -> bool:
        # While members rejoin, those that came first may stay: the number is of joins, not of members.
        limit, member = self.settings.members_max, self.members.all.get(member_id)
        if self.state is ClassicState.PREPARING:
            return (member is not None and member.join is not None) or self.members.awaiting < limit
        return self.state is ClassicState.EMPTY or member is not None or len(self.members) < limit

    def _reject(self, member_id: str, step: ClassicCommand) -> None:
        step.effects.answer(step.token, Joined(KafkaErrorCode.GROUP_MAX_SIZE_REACHED))
        was_member = member_id in self.members.all
        if was_member or member_id in self.members.pending:
            step.effects.cancel_timer(self._session_timer(member_id))
            self._remove(member_id, step)
            self.transition(ClassicEvent.MEMBERS_LEFT if was_member else ClassicEvent.PENDING_GONE, step)

    def _can_speak(self, request: Join) -> bool:
        if self.state is ClassicState.EMPTY:
            return bool(request.protocol_type) and bool(request.protocols)
        return request.protocol_type == self.protocol_type and self.members.agree_on(request.protocols)

    def _join_new(self, request: Join, step: ClassicCommand) -> None:
        instance = request.group_instance_id
        member_id = fresh_member_id(request)
        if instance is not None and instance in self.members.static:
            self._replace_static(self.members.static[instance], member_id, request, step)
        elif instance is None and request.member_id_required:
            self.members.reserve_member_id(member_id, request.session_timeout_ms)
            step.effects.set_timer(self._session_timer(member_id), step.now.ms + request.session_timeout_ms)
            step.effects.answer(step.token, Joined(KafkaErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(member_id, request, step)

    def _add(self, member_id: str, request: Join, step: ClassicCommand) -> None:
        member = ClassicMember(member_id, request)
        member.is_new = True
        if not self.members:
            self.protocol_type = request.protocol_type
        self.grew = True
        self.members.add(member)
        self.members.park_join(member, step.token)
        self._keep_alive(member, step, self.settings.new_member_join_ms)
        self.transition(ClassicEvent.MEMBER_ADDED, step)

    def _join_known(self, request: Join, step: ClassicCommand) -> None:
        if error := self.members.validate_member(request.member_id, request.group_instance_id):
            step.effects.answer(step.token, Joined(error, request.member_id))
            return
        member = step.member = self.members.all[request.member_id]
        must_assign = self.state is ClassicState.STABLE and request.member_id == self.members.leader
        if self.state is not ClassicState.PREPARING and not must_assign and member.speaks_as(request):
            self.transition(ClassicEvent.MEMBER_REPEATED, step)
            return
        self._update(member, request, step)
        self.transition(ClassicEvent.MEMBER_UPDATED, step)

    def _update(self, member: ClassicMember, request: Join, step: ClassicCommand) -> None:
        self.members.update(member, request)
        replaced = self.members.park_join(member, step.token)
        if replaced is not None:
            step.effects.answer(replaced, Joined(KafkaErrorCode.REBALANCE_IN_PROGRESS, member.member_id))

    def _replace_static(self, old_id: str, new_id: str, request: Join, step: ClassicCommand) -> None:
        step.replaced_id = old_id
        self._answer_parked(self.members.all[old_id], KafkaErrorCode.FENCED_INSTANCE_ID, old_id, step)
        step.effects.cancel_timer(self._session_timer(old_id))
        member = step.member = self.members.replace(old_id, new_id)
        member.is_new = False
        self._update(member, request, step)
        self._keep_alive(member, step)
        changed = self.state is ClassicState.STABLE and self.members.chosen_protocol() != self.protocol
        self.transition(ClassicEvent.PROTOCOL_CHANGED if changed else ClassicEvent.STATIC_REPLACED, step)
