"""The commands of a registered group: requests of members and administrators, timers, and changes of topics.

A request is validated and becomes an event of `groups/registered/table`; each function returns the effects.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.requests import Leave, LeaveOf, Left, LeftMember
from kafkalite.state.groups.records import GroupDefinition
from kafkalite.state.groups.registered.assignment import is_outdated, sizes
from kafkalite.state.groups.registered.group import RegisteredCommand, RegisteredGroup
from kafkalite.state.groups.registered.member import RegisteredGroupMember
from kafkalite.state.groups.registered.rebalance import event_without_members
from kafkalite.state.groups.registered.requests import (
    ConsumerRegistered,
    HeartbeatAnswered,
    HeartbeatPlus,
    RegisterConsumer,
)
from kafkalite.state.groups.registered.states import RegisteredEvent, RegisteredState

UNKNOWN_MEMBER_ID = KafkaErrorCode.UNKNOWN_MEMBER_ID


# requests


def register(group: RegisteredGroup, request: RegisterConsumer, token: Token, now: Now) -> Effects:
    """Register for the next generation. The result is a `ConsumerRegistered`, which may be delayed until it begins."""
    command = RegisteredCommand(now, token=token)
    timeout_ms = request.session_timeout_ms or max(group.definition.session_timeout_ms, 0)
    request = request._replace(session_timeout_ms=timeout_ms)
    if error := _validate_registration(group, request):
        command.effects.answer(token, ConsumerRegistered(error))
        return command.effects
    member = group.members.get(request.consumer_id)
    unchanged = member is not None and member.is_unchanged_by(request)
    before = group.named_topics(member) if member is not None else set[str]()
    if member is None:
        member = group.members[request.consumer_id] = RegisteredGroupMember(request)
    command.member = member
    member.registration, member.session.timeout_ms = request, timeout_ms
    group.readers.replace(group.name, before, group.named_topics(member))
    group.keep_alive(member, command)
    group.resolve_pattern(command)
    group.unregistered.pop(member.name, None)
    replaced = member.replace_process(request.process_id)
    superseded = KafkaErrorCode.FENCED_INSTANCE_ID if replaced else KafkaErrorCode.REBALANCE_IN_PROGRESS
    group.complete_registration(member, ConsumerRegistered(superseded), command)
    if unchanged and (group.state is RegisteredState.STABLE or member.only_claims):
        group.transition(RegisteredEvent.REPEATED, command)
    elif member.only_claims:
        group.transition(RegisteredEvent.CLAIMED, command)
    else:
        member.delayed = token
        group.transition(RegisteredEvent.REGISTERED, command)
    return group.finish(command)


def heartbeat(group: RegisteredGroup, request: HeartbeatPlus, token: Token, now: Now) -> Effects:
    """Extend the session of a member. The result, a `HeartbeatAnswered`, shows whether it must register."""
    command = RegisteredCommand(now, token=token, generation=request.generation)
    member = command.member = group.members.get(request.consumer_id)
    error = UNKNOWN_MEMBER_ID if member is None else KafkaErrorCode.NONE
    if member is not None and member.fences(request.process_id):
        error = KafkaErrorCode.FENCED_INSTANCE_ID
    if not error and request.session_timeout_ms:
        error = _validate_session_timeout(group, request.session_timeout_ms)
    if not error and request.generation > group.generation:
        error = KafkaErrorCode.ILLEGAL_GENERATION
    if error or member is None:
        command.effects.answer(token, HeartbeatAnswered(error))
        return command.effects
    member.session.timeout_ms = request.session_timeout_ms or member.session.timeout_ms
    group.keep_alive(member, command)
    group.resolve_pattern(command)
    stale = member.name in group.unregistered or (member.delayed is None and request.generation < member.epoch)
    group.transition(RegisteredEvent.STALE_HEARTBEAT if stale else RegisteredEvent.HEARTBEAT, command)
    return command.effects


def leave(group: RegisteredGroup, request: Leave, token: Token, now: Now) -> Effects:
    """Members leave, by their consumer ids. The result is a `Left`."""
    command = RegisteredCommand(now, token=token)
    left = tuple(_leave_one(group, leaver, command) for leaver in request.members)
    command.effects.answer(token, Left(members=left))
    return group.finish(command)


def define(group: RegisteredGroup, definition: GroupDefinition, now: Now) -> Effects:
    """Replace the definition of a group without members."""
    command = RegisteredCommand(now, definition=definition._replace(first_topics=group.definition.first_topics))
    group.transition(RegisteredEvent.DEFINED, command)
    return command.effects


# time and topics


def session_expired(group: RegisteredGroup, name: str, now: Now) -> Effects:
    """The session timer of a member has fired. A session does not expire while its registration is delayed."""
    command = RegisteredCommand(now)
    member = group.members.get(name)
    if member is None:
        return command.effects
    if member.delayed is not None:
        member.session.timer_ms = None
    elif member.session.timer_fired(group.session_timer(name), command.effects, now):
        _remove(group, member, command)
    return group.finish(command)


def rebalance_timeout_expired(group: RegisteredGroup, now: Now) -> Effects:
    """The time to register is over."""
    command = RegisteredCommand(now)
    group.transition(RegisteredEvent.REBALANCE_TIMEOUT, command)
    return group.finish(command)


def topics_changed(group: RegisteredGroup, now: Now) -> Effects:
    """Topics were created or deleted, or have more partitions."""
    command = RegisteredCommand(now)
    group.resolved = False
    return _check_topics(group, command)


def pattern_due(group: RegisteredGroup, now: Now) -> Effects:
    """Resolve the pattern again, when its timer fires."""
    command = RegisteredCommand(now)
    group.resolve_pattern(command)
    return command.effects


def pattern_resolved(group: RegisteredGroup, matched: tuple[str, ...], now: Now) -> Effects:
    """The pattern matches these topics."""
    command = RegisteredCommand(now)
    group.matched, group.resolving, group.resolved_at_ms = matched, False, now.ms
    return _check_topics(group, command)


def start_sessions(group: RegisteredGroup, now: Now) -> Effects:
    """Start the members' sessions after replay, and check whether the assignment is up to date."""
    command = RegisteredCommand(now)
    for member in group.members.values():
        group.keep_alive(member, command)
    return _check_topics(group, command)


# parts of the above


def _validate_registration(group: RegisteredGroup, request: RegisterConsumer) -> int:
    if error := _validate_session_timeout(group, request.session_timeout_ms):
        return error
    member = group.members.get(request.consumer_id)
    if member is not None and member.fences(request.process_id, registers=True):
        return KafkaErrorCode.FENCED_INSTANCE_ID
    if member is None and len(group.members) >= group.settings.members_max:
        return KafkaErrorCode.GROUP_MAX_SIZE_REACHED
    return _validate_claims(group, request) if request.claims else KafkaErrorCode.NONE


def _validate_claims(group: RegisteredGroup, request: RegisterConsumer) -> int:
    partitions = sizes(group, {topic for topic, _ in request.claims})
    if not all(0 <= number < partitions.get(topic, 0) for topic, number in request.claims):
        return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    others = (member for name, member in group.members.items() if name != request.consumer_id)
    claimed = any(not request.claims.isdisjoint(other.registration.claims) for other in others)
    return KafkaErrorCode.UNRELEASED_INSTANCE_ID if claimed else KafkaErrorCode.NONE


def _validate_session_timeout(group: RegisteredGroup, session_timeout_ms: int) -> KafkaErrorCode:
    valid = group.settings.session_min_ms <= session_timeout_ms <= group.settings.session_max_ms
    return KafkaErrorCode.NONE if valid else KafkaErrorCode.INVALID_SESSION_TIMEOUT


def _leave_one(group: RegisteredGroup, leaver: LeaveOf, command: RegisteredCommand) -> LeftMember:
    member = group.members.get(leaver.member_id)
    if member is None:
        return LeftMember(*leaver, UNKNOWN_MEMBER_ID)
    _remove(group, member, command)
    return LeftMember(*leaver, KafkaErrorCode.NONE)


def _remove(group: RegisteredGroup, member: RegisteredGroupMember, command: RegisteredCommand) -> None:
    group.remove_member(member.name, command, UNKNOWN_MEMBER_ID)
    if not group.members:
        event = event_without_members(group)
    else:
        event = RegisteredEvent.CLAIMING_MEMBER_LEFT if member.only_claims else RegisteredEvent.MEMBER_LEFT
    group.transition(event, command)


def _check_topics(group: RegisteredGroup, command: RegisteredCommand) -> Effects:
    if group.members:
        group.resolve_pattern(command)
    if group.state is not RegisteredState.STABLE or is_outdated(group):
        group.transition(RegisteredEvent.TOPICS_CHANGED, command)
    return group.finish(command)
