"""Static members of a classic group: they have an instance id; a restart changes their member id without a rebalance.

`join` validates the join and calls `replace_static_member`; the other functions are actions of `table`.
`members.validate_member` rejects requests of a fenced member id. Consumer groups: `groups/consumer/static_members`.
Sources: KIP-345, KIP-814.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.classic.generation import joined_response
from kafkalite.state.groups.classic.group import ClassicCommand, ClassicGroup
from kafkalite.state.groups.classic.rebalance import update_member
from kafkalite.state.groups.classic.requests import Join
from kafkalite.state.groups.classic.states import ClassicEvent, ClassicState

STATIC_WAIT_MIN_MS = 1_000


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


def return_generation_to_static_member(group: ClassicGroup, command: ClassicCommand) -> None:
    """A restarted static member keeps its partitions without a rebalance (KIP-345, KIP-814)."""
    member = command.member
    assert member is not None
    join = group.members.take_delayed_join(member)
    command.effects.records.append(group.metadata_record())
    is_leader = member.member_id == group.members.leader
    response = joined_response(group, member, include_members=command.can_skip_assignment)
    if command.can_skip_assignment:
        response = response._replace(skip_assignment=is_leader)
    elif is_leader:  # an old client that finds itself to be the leader would assign
        response = response._replace(leader=command.replaced_id)
    command.effects.answer(join, response)


def wait_for_static_members(group: ClassicGroup, command: ClassicCommand) -> None:
    """Wait until a member joins or the sessions expire; a minimum keeps a rebalance timeout of 0 from spinning."""
    wait_ms = max(STATIC_WAIT_MIN_MS, group.members.rebalance_timeout_ms())
    command.effects.set_timer(group.join_timer(), command.now.ms + wait_ms)
