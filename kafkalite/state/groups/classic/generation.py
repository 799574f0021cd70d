"""The generation of a classic group: when it increases, and what its members receive.

It increases when all joins of a rebalance are complete, and when the last member has left. `group` has its number and
the one that is reserved for a record. The functions are actions of `groups/classic/table`.
"""

from kafkalite.state.groups.classic.group import ClassicCommand, ClassicGroup
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.requests import Joined, JoinedMember


def increase_generation(group: ClassicGroup) -> None:
    """Begin a generation that neither a member nor a record has (invariant 1 of `group`)."""
    group.generation = group.last_generation + 1
    group.rewound = frozenset()


def begin_generation(group: ClassicGroup, command: ClassicCommand) -> None:
    """Complete all delayed joins, and wait for the syncs."""
    increase_generation(group)
    group.protocol = group.members.chosen_protocol()
    group.topics = group.subscribed_topics()
    group.members.pending_sync = dict.fromkeys(group.members.all)
    for member in group.members.all.values():
        member.is_new, member.generation_protocols = False, member.protocols
        group.members.recount(member)
        join = group.members.take_delayed_join(member)
        if join is not None:
            command.effects.answer(join, joined_response(group, member))
        group.keep_alive(member, command)
    command.effects.set_timer(group.sync_timer(), command.now.ms + group.members.rebalance_timeout_ms())


def return_generation(group: ClassicGroup, command: ClassicCommand) -> None:
    """Return the current generation to a member that lost the response, or has no changes."""
    assert command.member is not None
    command.effects.answer(command.token, joined_response(group, command.member))


def store_empty_group(group: ClassicGroup, command: ClassicCommand) -> None:
    """Store a generation without members."""
    increase_generation(group)
    group.protocol = None
    group.topics = group.subscribed_topics()
    command.effects.records.append(group.metadata_record())


def joined_response(group: ClassicGroup, member: ClassicMember, *, include_members: bool = True) -> Joined:
    """The response to the join of a member; the leader gets the members, to assign partitions to them."""
    leads = include_members and member.member_id == group.members.leader
    included = group.members.all.values() if leads else ()
    protocol = group.protocol
    return Joined(
        0,
        member.member_id,
        group.generation,
        group.protocol_type,
        protocol,
        group.members.leader or "",
        members=tuple(JoinedMember(m.member_id, m.group_instance_id, m.metadata(protocol)) for m in included),
    )


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
