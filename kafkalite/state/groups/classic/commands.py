"""The commands of a classic group: requests of members, timers and conversions. JoinGroup is in `groups/classic/join`,
SyncGroup in `groups/classic/sync`.

A request is validated and becomes an event of `groups/classic/table`; each function returns the effects.
"""

from collections.abc import Collection, Iterator

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.group import ClassicCommand, ClassicGroup
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.requests import ErrorOnly, Heartbeat, Leave, LeaveOf, Left, LeftMember
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL
from kafkalite.state.groups.classic.states import ClassicEvent, ClassicState
from kafkalite.state.groups.sessions import SESSIONS_AT_ONCE

STABLE = ClassicState.STABLE


# requests of members


def heartbeat(group: ClassicGroup, request: Heartbeat, token: Token, now: Now) -> Effects:
    """Extend the session of a member. The result, an `ErrorOnly`, shows whether it must rejoin."""
    command = ClassicCommand(now, token=token)
    error = group.members.validate_member(request.member_id, request.group_instance_id)
    if not error and request.generation != group.generation:
        error = KafkaErrorCode.ILLEGAL_GENERATION
    if error:
        command.effects.answer(token, ErrorOnly(error))
        return command.effects
    command.member = group.members.all[request.member_id]
    group.keep_alive(command.member, command)
    group.transition(ClassicEvent.HEARTBEAT, command)
    return command.effects


def fast_heartbeat(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> bool:
    """Extend the session of a member if `heartbeat` would do nothing else: the group is Stable, the member is valid,
    and its timer is set early enough.

    Arguments:
        group: of the member.
        member_id: of the sender.
        instance_id: of a static member, else None.
        generation: that the sender names.
        now_ms: monotonic time.

    Returns: False = this is not such a heartbeat, and nothing has changed.
    """
    members = group.members
    member = members.all.get(member_id)
    if member is None or group.state is not STABLE or generation != group.generation:
        return False
    if instance_id is not None and members.static.get(instance_id) != member_id:
        return False
    return member.session.extend_without_timer(now_ms)


def leave(group: ClassicGroup, request: Leave, token: Token, now: Now) -> Effects:
    """Members leave, or an administrator removes them by their instance ids. The result is a `Left`."""
    command = ClassicCommand(now, token=token)
    left = tuple(_leave_one(group, leaver, command) for leaver in request.members)
    if any(not member.error for member in left):
        group.transition(ClassicEvent.MEMBERS_LEFT, command)
    command.effects.answer(token, Left(members=left))
    return command.effects


# conversions


def upgrade(group: ClassicGroup, now: Now) -> Effects:
    """End a group whose members are now in a consumer group of the same name."""
    command = ClassicCommand(now)
    group.transition(ClassicEvent.UPGRADED, command)
    return command.effects


def downgrade(group: ClassicGroup, generation: int, members: Collection[ClassicMember], now: Now) -> Effects:
    """Fill a new group with the members of a consumer group. They must rejoin, because the partitions of members that
    have left are not assigned; after a restart, too (`record_of_unknown_generation`).

    Arguments:
        group: without members.
        generation: the group epoch that the members know.
        members: of the consumer group.
        now: the time.
    """
    command = ClassicCommand(now)
    group.state, group.generation, group.protocol_type = ClassicState.STABLE, generation, CONSUMER_PROTOCOL
    for member in members:
        group.members.add(member)
        group.keep_alive(member, command)
    group.protocol = group.members.chosen_protocol()
    group.topics = group.subscribed_topics()
    command.effects.records.append(group.record_of_unknown_generation())
    group.transition(ClassicEvent.DOWNGRADED, command)
    return command.effects


# time


def session_expired(group: ClassicGroup, member_id: str, now: Now) -> Effects:
    """The session timer of a member or of a reserved member id has fired."""
    command = ClassicCommand(now)
    member = group.members.all.get(member_id)
    if member_id in group.members.reserved_ids:
        group.members.remove(member_id)
        group.transition(ClassicEvent.RESERVED_ID_EXPIRED, command)
    elif member is not None:
        expired = member.session.timer_fired(group.session_timer(member_id), command.effects, now)
        if expired and not member.has_delayed_request:
            group.remove_member(member_id, command)
            group.transition(ClassicEvent.SESSION_EXPIRED, command)
    return command.effects


def rebalance_timeout_expired(group: ClassicGroup, now: Now) -> Effects:
    """The initial delay or the rebalance timeout is over."""
    command = ClassicCommand(now)
    extended = group.is_initial and group.joined_in_delay and group.delay[1] > 0
    event = ClassicEvent.MEMBERS_JOINED_IN_DELAY if extended else ClassicEvent.REBALANCE_TIMEOUT
    group.transition(event, command)
    return command.effects


def start_sessions(group: ClassicGroup, now: Now) -> Iterator[Effects]:
    """Start the members' sessions after replay, some at a time. A group above its limit rebalances to shrink."""
    command = ClassicCommand(now)
    for at, member in enumerate(group.members.all.values()):
        if at % SESSIONS_AT_ONCE == SESSIONS_AT_ONCE - 1:
            yield command.effects
            command = ClassicCommand(now)
        group.keep_alive(member, command)
    if len(group.members) > group.settings.members_max:
        group.transition(ClassicEvent.TOO_MANY_MEMBERS, command)
    yield command.effects


# parts of the above


def _leave_one(group: ClassicGroup, leaver: LeaveOf, command: ClassicCommand) -> LeftMember:
    member_id, instance = leaver
    if not member_id:
        found = group.members.static.get(instance) if instance is not None else None
        error = KafkaErrorCode.NONE if found is not None else KafkaErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.members.reserved_ids:
        found, error = member_id, KafkaErrorCode.NONE
    else:
        found, error = member_id, KafkaErrorCode(group.members.validate_member(member_id, instance))
    if not error and found is not None:
        group.remove_member(found, command)
    return LeftMember(member_id, instance, error)
