"""The actions of `groups/classic/table`: what a classic group does after an event has changed its state.

`generation` has the actions that begin a generation.

An action returns the event that follows from it at once, or None.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.classic.group import ClassicCommand, ClassicGroup
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.requests import ErrorOnly, Join, Joined, Synced
from kafkalite.state.groups.classic.states import ClassicEvent
from kafkalite.state.groups.records import CLASSIC, GroupDeleted

STATIC_WAIT_MIN_MS = 1_000


def do_nothing(group: ClassicGroup, command: ClassicCommand) -> None:
    """The event has no effect."""


# members join


def start_initial_rebalance(group: ClassicGroup, command: ClassicCommand) -> None:
    """Wait for further members before the first generation begins."""
    delay = group.settings.initial_delay_ms
    group.is_initial, group.joined_in_delay = True, False
    group.delay = (delay, max(group.members.rebalance_timeout_ms() - delay, 0))
    _end_syncs(group, command)
    command.effects.set_timer(group.join_timer(), command.now.ms + delay)


def start_rebalance(group: ClassicGroup, command: ClassicCommand) -> ClassicEvent | None:
    """Wait until all members have rejoined, at most for the longest of their rebalance timeouts."""
    group.is_initial = False
    _end_syncs(group, command)
    if group.members.all_joined():
        return complete_joins(group, command)
    command.effects.set_timer(group.join_timer(), command.now.ms + group.members.rebalance_timeout_ms())
    return None


def wait_for_static_members(group: ClassicGroup, command: ClassicCommand) -> None:
    """Wait until a member joins or the sessions expire; a minimum keeps a rebalance timeout of 0 from spinning."""
    wait_ms = max(STATIC_WAIT_MIN_MS, group.members.rebalance_timeout_ms())
    command.effects.set_timer(group.join_timer(), command.now.ms + wait_ms)


def restart_rebalance(group: ClassicGroup, command: ClassicCommand) -> ClassicEvent | None:
    """Drop the generation whose assignment is not complete: delayed syncs fail, all members must rejoin."""
    for member in group.members.all.values():
        member.assignment = b""
        _complete_sync(group, member, Synced(KafkaErrorCode.REBALANCE_IN_PROGRESS), command)
    return start_rebalance(group, command)


def extend_initial_delay(group: ClassicGroup, command: ClassicCommand) -> None:
    """Members joined during the initial delay: wait again, at most for the rebalance timeout in total."""
    delay, remaining = group.delay
    group.joined_in_delay = False
    group.delay = (min(group.settings.initial_delay_ms, remaining), max(remaining - delay, 0))
    command.effects.set_timer(group.join_timer(), command.now.ms + group.delay[0])


def complete_unless_initial_delay(group: ClassicGroup, command: ClassicCommand) -> ClassicEvent | None:
    """Complete the joins if all members have joined; the initial delay is never shortened."""
    return None if group.is_initial else complete_if_all_joined(group, command)


def complete_if_all_joined(group: ClassicGroup, command: ClassicCommand) -> ClassicEvent | None:
    """Complete the joins if all members have joined."""
    return complete_joins(group, command) if group.members.all_joined() else None


def complete_joins(group: ClassicGroup, command: ClassicCommand) -> ClassicEvent:
    """End the wait for joins: dynamic members that have not joined are removed, static ones may rejoin later."""
    command.effects.cancel_timer(group.join_timer())
    for member in list(group.members.all.values()):
        if member.delayed_join is None and member.group_instance_id is None:
            group.remove_member(member.member_id, command)
    if not group.members:
        return ClassicEvent.NO_MEMBERS
    return ClassicEvent.ALL_JOINED if group.members.elect_joined_leader() else ClassicEvent.NONE_JOINED


def update_member(group: ClassicGroup, member: ClassicMember, request: Join, command: ClassicCommand) -> None:
    """A known member joins: delay its response; an earlier join of it fails."""
    group.members.update(member, request)
    replaced = group.members.delay_join(member, command.token)
    if replaced is not None:
        command.effects.answer(replaced, Joined(KafkaErrorCode.REBALANCE_IN_PROGRESS, member.member_id))


# members fetch their assignment


def distribute_assignment(group: ClassicGroup, command: ClassicCommand) -> None:
    """Store the leader's assignment and complete all delayed syncs; a member without a part gets an empty one."""
    delay_sync(group, command)
    for member in group.members.all.values():
        member.assignment = command.assignments.get(member.member_id, b"")
    command.effects.records.append(group.metadata_record())
    for member in group.members.all.values():
        _complete_sync(group, member, Synced(0, group.protocol_type, group.protocol, member.assignment), command)


def delay_sync(group: ClassicGroup, command: ClassicCommand) -> None:
    """Delay the response to a sync until the leader has sent the assignment."""
    member = command.member
    assert member is not None
    replaced, member.delayed_sync = member.delayed_sync, command.token
    if replaced is not None:
        command.effects.answer(replaced, Synced(KafkaErrorCode.REBALANCE_IN_PROGRESS))


def return_assignment(group: ClassicGroup, command: ClassicCommand) -> None:
    """Return the member's part of the assignment."""
    assert command.member is not None
    synced = Synced(0, group.protocol_type, group.protocol, command.member.assignment)
    command.effects.answer(command.token, synced)


def reject_sync(group: ClassicGroup, command: ClassicCommand) -> None:
    """Reject a sync: the member must rejoin."""
    command.effects.answer(command.token, Synced(KafkaErrorCode.REBALANCE_IN_PROGRESS))


# heartbeats


def request_rejoin(group: ClassicGroup, command: ClassicCommand) -> None:
    """Respond to a heartbeat with REBALANCE_IN_PROGRESS: the member must rejoin."""
    command.effects.answer(command.token, ErrorOnly(KafkaErrorCode.REBALANCE_IN_PROGRESS))


def acknowledge_heartbeat(group: ClassicGroup, command: ClassicCommand) -> None:
    """Respond to a heartbeat without an error."""
    command.effects.answer(command.token, ErrorOnly())


# the group itself


def store_tombstone(group: ClassicGroup, command: ClassicCommand) -> None:
    """Delete the group from the log."""
    command.effects.records.append(GroupDeleted(group.name, CLASSIC))


def convert_to_consumer_group(group: ClassicGroup, command: ClassicCommand) -> None:
    """End the group: the consumer group of the same name has its members; delayed requests fail, members rejoin."""
    for member in group.members.all.values():
        group.fail_delayed_requests(member, KafkaErrorCode.REBALANCE_IN_PROGRESS, member.member_id, command)
    for member_id in [*group.members.all, *group.members.reserved_ids]:
        command.effects.cancel_timer(group.session_timer(member_id))
    command.effects.cancel_timer(group.join_timer())
    command.effects.cancel_timer(group.sync_timer())
    store_tombstone(group, command)


# parts of the above


def _complete_sync(group: ClassicGroup, member: ClassicMember, result: Synced, command: ClassicCommand) -> None:
    token, member.delayed_sync = member.delayed_sync, None
    if token is not None:
        command.effects.answer(token, result)
        group.keep_alive(member, command)  # its session could not expire during the wait


def _end_syncs(group: ClassicGroup, command: ClassicCommand) -> None:
    group.members.pending_sync.clear()
    command.effects.cancel_timer(group.sync_timer())
