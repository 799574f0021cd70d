"""JoinGroup in a classic group: validates a join and turns it into an event of `groups/classic/table`."""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.group import ClassicCommand, ClassicGroup
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.rebalance import update_member
from kafkalite.state.groups.classic.requests import Join, Joined, fresh_member_id
from kafkalite.state.groups.classic.states import ClassicEvent, ClassicState


def join(group: ClassicGroup, request: Join, token: Token, now: Now) -> Effects:
    """Join or rejoin. The result is a `Joined`, which may be delayed until the generation begins."""
    command = ClassicCommand(now, token=token, can_skip_assignment=request.can_skip_assignment)
    if not _has_capacity(group, request.member_id):
        _reject_for_size(group, request.member_id, command)
    elif not _is_compatible(group, request):
        rejected = Joined(KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        command.effects.answer(token, rejected)
    elif not group.members.accepts(request):
        _reject_for_size(group, request.member_id, command)
    elif not request.member_id:
        _join_without_id(group, request, command)
    elif request.member_id in group.members.reserved_ids and request.group_instance_id is None:
        _add(group, request.member_id, request, command)
    else:
        _rejoin(group, request, command)
    return command.effects


def _has_capacity(group: ClassicGroup, member_id: str) -> bool:
    # During a rebalance the members that rejoin first may stay: the limit counts joins, not members.
    limit, member = group.settings.members_max, group.members.all.get(member_id)
    if group.state is ClassicState.PREPARING:
        return (member is not None and member.delayed_join is not None) or group.members.delayed_joins < limit
    return group.state is ClassicState.EMPTY or member is not None or len(group.members) < limit


def _reject_for_size(group: ClassicGroup, member_id: str, command: ClassicCommand) -> None:
    command.effects.answer(command.token, Joined(KafkaErrorCode.GROUP_MAX_SIZE_REACHED))
    was_member = member_id in group.members.all
    if was_member or member_id in group.members.reserved_ids:
        group.remove_member(member_id, command)
        group.transition(ClassicEvent.MEMBERS_LEFT if was_member else ClassicEvent.RESERVED_ID_EXPIRED, command)


def _is_compatible(group: ClassicGroup, request: Join) -> bool:
    if group.state is ClassicState.EMPTY:
        return bool(request.protocol_type) and bool(request.protocols)
    return request.protocol_type == group.protocol_type and group.members.support_any(request.protocols)


def _join_without_id(group: ClassicGroup, request: Join, command: ClassicCommand) -> None:
    instance = request.group_instance_id
    member_id = fresh_member_id(request)
    if instance is not None and instance in group.members.static:
        replace_static_member(group, group.members.static[instance], member_id, request, command)
    elif instance is None and request.member_id_required:
        group.members.reserve_member_id(member_id, request.session_timeout_ms)
        command.effects.set_timer(group.session_timer(member_id), command.now.ms + request.session_timeout_ms)
        command.effects.answer(command.token, Joined(KafkaErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(group, member_id, request, command)


def _add(group: ClassicGroup, member_id: str, request: Join, command: ClassicCommand) -> None:
    member = ClassicMember(member_id, request)
    member.is_new = True
    if not group.members:
        group.protocol_type = request.protocol_type
    group.joined_in_delay = True
    group.members.add(member)
    group.members.delay_join(member, command.token)
    group.keep_alive(member, command, group.settings.new_member_join_ms)
    group.transition(ClassicEvent.MEMBER_ADDED, command)


def _rejoin(group: ClassicGroup, request: Join, command: ClassicCommand) -> None:
    if error := group.members.validate_member(request.member_id, request.group_instance_id):
        command.effects.answer(command.token, Joined(error, request.member_id))
        return
    member = command.member = group.members.all[request.member_id]
    must_assign = group.state is ClassicState.STABLE and request.member_id == group.members.leader
    if group.state is not ClassicState.PREPARING and not must_assign and member.has_protocols_of(request):
        group.transition(ClassicEvent.MEMBER_UNCHANGED, command)
        return
    update_member(group, member, request, command)
    group.transition(ClassicEvent.MEMBER_REJOINED, command)


def replace_static_member(
    group: ClassicGroup, old_id: str, new_id: str, request: Join, command: ClassicCommand
) -> None:
    """A static member has restarted: it joins under a new member id, and the former one is fenced.

    Arguments:
        group: it has the instance id.
        old_id, new_id: the former member id, and the one of this join.
        request: the join.
        command: its effects.
    """
    command.replaced_id = old_id
    group.fail_delayed_requests(group.members.all[old_id], KafkaErrorCode.FENCED_INSTANCE_ID, old_id, command)
    command.effects.cancel_timer(group.session_timer(old_id))
    member = command.member = group.members.replace(old_id, new_id)
    member.is_new = False
    update_member(group, member, request, command)
    group.keep_alive(member, command)
    changed = group.state is ClassicState.STABLE and group.members.chosen_protocol() != group.protocol
    group.transition(ClassicEvent.PROTOCOL_CHANGED if changed else ClassicEvent.STATIC_REPLACED, command)
