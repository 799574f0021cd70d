"""SyncGroup in a classic group: validates it, turns it into an event of `groups/classic/table`, and limits the time.

The leader sends the assignment with it, and each member receives its part: at once, or when the leader has sent it.
Members that do not send it within the rebalance timeout are removed.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.group import ClassicCommand, ClassicGroup
from kafkalite.state.groups.classic.requests import Sync, Synced
from kafkalite.state.groups.classic.states import ClassicEvent, ClassicState


def sync(group: ClassicGroup, request: Sync, token: Token, now: Now) -> Effects:
    """Send or fetch the assignment. The result is a `Synced`, delayed until the leader has sent the assignment."""
    command = ClassicCommand(now, token=token)
    if error := _validate_sync(group, request):
        command.effects.answer(token, Synced(error))
        return command.effects
    command.member = group.members.all[request.member_id]
    if group.state is not ClassicState.PREPARING:
        _end_pending_sync(group, request.member_id, command)
    if request.member_id == group.members.leader:
        command.assignments = request.assignments
        group.transition(ClassicEvent.LEADER_SYNCED, command)
    else:
        group.transition(ClassicEvent.MEMBER_SYNCED, command)
    return command.effects


def sync_timeout_expired(group: ClassicGroup, now: Now) -> Effects:
    """Remove the members that did not fetch their assignment in time."""
    command = ClassicCommand(now)
    for member_id in list(group.members.pending_sync):
        group.remove_member(member_id, command)
    group.transition(ClassicEvent.SYNC_TIMEOUT, command)
    return command.effects


def _validate_sync(group: ClassicGroup, request: Sync) -> int:
    if error := group.members.validate_member(request.member_id, request.group_instance_id):
        return error
    if request.generation != group.generation:
        return KafkaErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol):
        return KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return KafkaErrorCode.NONE


def _end_pending_sync(group: ClassicGroup, member_id: str, command: ClassicCommand) -> None:
    pending = group.members.pending_sync
    if member_id in pending:
        del pending[member_id]
        if not pending:
            command.effects.cancel_timer(group.sync_timer())
