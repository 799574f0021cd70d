"""The actions of `groups/registered/table`: what a registered group does after an event has changed its state.

An action returns the event that follows from it at once, or None.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.groups.records import (
    REGISTERED,
    GroupDeleted,
    GroupGenerationDeleted,
    RewindMark,
    RewindMarkDeleted,
)
from kafkalite.state.groups.registered.assignment import (
    is_outdated,
    new_assignment,
    sizes,
    start_offsets,
    waits_for_pattern,
)
from kafkalite.state.groups.registered.group import RegisteredCommand, RegisteredGroup
from kafkalite.state.groups.registered.member import NO_PARTITIONS, RegisteredGroupMember
from kafkalite.state.groups.registered.requests import ConsumerRegistered, HeartbeatAnswered
from kafkalite.state.groups.registered.states import RegisteredEvent, RegisteredState


def do_nothing(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """The event has no effect."""


# the barrier


def wait_for_registrations(group: RegisteredGroup, command: RegisteredCommand) -> RegisteredEvent | None:
    """Wait until all members of the assignment have registered, at most for the longest of their rebalance timeouts."""
    assigned = group.assigned_members()
    group.unregistered = {member.name: None for member in assigned if member.delayed is None}
    longest_ms = max((member.registration.rebalance_timeout_ms for member in assigned), default=0)
    command.effects.set_timer(group.barrier_timer(), command.now.ms + max(longest_ms, 0))
    return begin_if_all_registered(group, command)


def begin_if_all_registered(group: RegisteredGroup, command: RegisteredCommand) -> RegisteredEvent | None:
    """Begin the generation if all members have registered and the topics of the pattern are known."""
    if group.unregistered or waits_for_pattern(group):
        return None
    return RegisteredEvent.ALL_REGISTERED


def remove_unregistered_members(group: RegisteredGroup, command: RegisteredCommand) -> RegisteredEvent:
    """Remove the members that have not registered in time; they start the next rebalance when they register."""
    for name in list(group.unregistered):
        group.remove_member(name, command, KafkaErrorCode.UNKNOWN_MEMBER_ID)
    return RegisteredEvent.ALL_REGISTERED if group.members else event_without_members(group)


def event_without_members(group: RegisteredGroup) -> RegisteredEvent:
    """The event after the last member was removed."""
    return RegisteredEvent.NO_MEMBERS_EPHEMERAL if group.definition.ephemeral else RegisteredEvent.NO_MEMBERS


def begin_generation(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """Assign all partitions, store the generation, and complete all delayed registrations."""
    command.effects.cancel_timer(group.barrier_timer())
    _increase_generation(group, command)
    for member in group.members.values():
        group.set_claims(member.name, member.registration.claims, command)
    for member, topic_partitions in new_assignment(group).items():
        command.token, member.delayed = member.delayed, None
        _assign(group, member, topic_partitions, command)
        group.keep_alive(member, command)  # its session could not expire during the wait


def store_empty_group(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """Store a generation without members."""
    command.effects.cancel_timer(group.barrier_timer())
    command.changed = True


# without a barrier


def grant_claims(group: RegisteredGroup, command: RegisteredCommand) -> RegisteredEvent | None:
    """Assign a member its claims at once; previous owners of these partitions must register.

    Another member may have claimed some of them until it registered for the next generation: its stored claim ends now,
    so that no partition has two claims if the broker stops before that generation begins.
    """
    member = command.member
    assert member is not None
    claimed = member.registration.claims
    _increase_generation(group, command)
    for other in group.members.values():
        if other is not member:
            group.set_claims(other.name, group.claims.get(other.name, NO_PARTITIONS) - claimed, command)
            if not claimed.isdisjoint(other.owned):
                other.change(other.owned - claimed, group.generation)
    group.set_claims(member.name, claimed, command)
    _assign(group, member, claimed, command)
    return _check_assignment(group, command)


def release_claims(group: RegisteredGroup, command: RegisteredCommand) -> RegisteredEvent | None:
    """Release claimed partitions; the other members keep theirs."""
    _increase_generation(group, command)
    return _check_assignment(group, command)


def return_assignment(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """Return the partitions of a member with their current start offsets. A member that has received them before has
    lost the response or is a new process: a new generation fences the commits of the previous one.
    """
    member = command.member
    assert member is not None
    if member.knows_epoch:
        _increase_generation(group, command)
    _assign(group, member, member.owned, command)


def store_rewind_marks(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """Begin the generation of a rewind: owners must register, and older commits of the partitions are rejected."""
    group.generation += 1
    command.changed = True
    for topic_partition in command.topic_partitions:
        group.marks[topic_partition] = group.generation
        command.effects.records.append(RewindMark(group.name, *topic_partition, group.generation))
    for member in group.members.values():
        if not member.owned.isdisjoint(command.topic_partitions):
            member.change(member.owned, group.generation)


# heartbeats


def acknowledge_heartbeat(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """Return the current generation; while a registration is delayed, the generation that the member named."""
    assert command.member is not None
    known = command.generation if command.member.delayed is not None else group.generation
    command.effects.answer(command.token, HeartbeatAnswered(0, known))


def request_registration(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """Respond with REBALANCE_IN_PROGRESS: the member must register."""
    command.effects.answer(command.token, HeartbeatAnswered(KafkaErrorCode.REBALANCE_IN_PROGRESS))


# the group itself


def store_definition(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """Store a new definition, and have its pattern resolved."""
    assert command.definition is not None
    group.definition = command.definition
    group.matched, group.resolving, group.resolved = None, False, False
    command.effects.records.append(group.definition)
    group.resolve_pattern(command)


def store_tombstones(group: RegisteredGroup, command: RegisteredCommand) -> None:
    """Delete the group from the log."""
    for timer in (group.barrier_timer(), group.pattern_timer()):
        command.effects.cancel_timer(timer)
    command.effects.records += [RewindMarkDeleted(group.name, *rewound) for rewound in sorted(group.marks)]
    if group.stored is not None:
        command.effects.records.append(GroupGenerationDeleted(group.name))
    command.effects.records.append(GroupDeleted(group.name, REGISTERED))


# parts of the above


def _increase_generation(group: RegisteredGroup, command: RegisteredCommand) -> None:
    group.generation += 1
    command.changed = True
    if group.definition.first_topics is None and group.members and not waits_for_pattern(group):
        first = tuple(sorted(sizes(group, group.topics_read()).items()))
        group.definition = group.definition._replace(first_topics=first)
        command.effects.records.append(group.definition)


def _assign(
    group: RegisteredGroup,
    member: RegisteredGroupMember,
    topic_partitions: frozenset[TopicPartition],
    command: RegisteredCommand,
) -> None:
    """Assign partitions to a member in the current generation, and answer its registration."""
    member.assign(topic_partitions, group.generation)
    command.changed = True
    registered = ConsumerRegistered(0, group.generation, start_offsets(group, member))
    command.effects.answer(command.token, registered)


def _check_assignment(group: RegisteredGroup, command: RegisteredCommand) -> RegisteredEvent | None:
    """After claims have changed, the shares of other members may change, or all that remain have registered."""
    if group.state is RegisteredState.PREPARING:
        return begin_if_all_registered(group, command)
    return RegisteredEvent.TOPICS_CHANGED if is_outdated(group) else None
