"""Converts a classic group with members to a consumer group, and back (KIP-848, online migration).

The functions compute one group from the other: records of a consumer group, or members of a classic group. A member
keeps every partition that it certainly owns, and is assigned none that another member may still own. A member whose
partitions are unknown is not converted: it receives UNKNOWN_MEMBER_ID and joins as a new member.

A member owns its last assignment. A cooperative member also keeps a partition that the leader has revoked until it
learns of that: one that it claimed before the generation began and still claims, if no other member is assigned it.
Later claims do not count: a static member that missed the generation claims partitions that others have taken over. A
record contains one subscription of each member; after a replay it counts as both the earlier and the current one.
Source: ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup of Apache Kafka 4.3, which uses assignments only,
converts members without an assignment, and assigns targets where this module assigns owned partitions.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.groups.classic.group import ClassicGroup
from kafkalite.state.groups.classic.members import ClassicMember
from kafkalite.state.groups.classic.requests import Join
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL
from kafkalite.state.groups.classic.states import ClassicState
from kafkalite.state.groups.consumer.group import INITIAL_EPOCH, ConsumerGroup
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import CommandRejected, ConsumerGroupSettings, TopicLookup
from kafkalite.state.groups.consumer_protocol import ConsumerProtocol, Subscription
from kafkalite.state.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
)

Owned = dict[bytes, frozenset[int]]


class ConvertedMember(NamedTuple):
    """A member of a classic group that is converted; its `claims` are from the generation `claimed_in`."""

    member: ClassicMember
    subscription: Subscription
    assigned: frozenset[TopicPartition]
    claims: frozenset[TopicPartition]
    claimed_in: int


def upgrade(
    group: ClassicGroup, settings: ConsumerGroupSettings, topics: TopicLookup, embedded: ConsumerProtocol
) -> list[object]:
    """Return the records of the consumer group to which a classic group with members is converted.

    The member epoch is the generation; the target assignment consists of the owned partitions, and its epoch is the
    same, or a later one after a rewind (`ClassicGroup.rewound`).

    Arguments:
        group: the classic group.
        settings: of the consumer group.
        topics: the current topics.
        embedded: decodes subscriptions and assignments.

    Raises: CommandRejected, GROUP_ID_NOT_FOUND: the group is not converted.
    """
    _check(group, settings)
    name, epoch = group.name, max(group.generation, INITIAL_EPOCH)
    taken = [_read(group, member, embedded) for member in group.members.all.values()]
    found = [
        (each.member, each.subscription, _by_topic(topic_partitions, topics))
        for each, topic_partitions in _shared_out([each for each in taken if _is_certain(group, each.member)])
    ]
    records: list[object] = [_metadata(name, member, subscription) for member, subscription, _ in found]
    target_epoch = max(epoch, group.last_generation)
    records.append(ConsumerGroupMetadata(name, target_epoch))
    records += [ConsumerGroupTargetAssignmentMember(name, member.member_id, owned) for member, _, owned in found]
    records.append(ConsumerGroupTargetAssignmentMetadata(name, target_epoch))
    return records + [_current(name, member, epoch, owned) for member, _, owned in found]


def _check(group: ClassicGroup, settings: ConsumerGroupSettings) -> None:
    if not settings.migration.upgrades:
        raise _refused(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL:
        raise _refused(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > settings.max_size:
        raise _refused(group, "the group size exceeds the consumer group maximum size")


def _refused(group: ClassicGroup, why: str) -> CommandRejected:
    message = f"Cannot upgrade classic group {group.name} to consumer group because {why}."
    return CommandRejected(KafkaErrorCode.GROUP_ID_NOT_FOUND, message)


def _is_certain(group: ClassicGroup, member: ClassicMember) -> bool:
    """Whether the owned partitions of the member are known. In a group that is not Stable, a member without an
    assignment may still have an older one.
    """
    return not member.is_new and (group.state is ClassicState.STABLE or bool(member.assignment))


def _read(group: ClassicGroup, member: ClassicMember, embedded: ConsumerProtocol) -> ConvertedMember:
    read = [embedded.subscription(metadata) for _, metadata in member.protocols]
    subscription, assigned = next(iter(read), None), embedded.decode_assignment(member.assignment)
    if subscription is None or None in read or assigned is None:
        raise _refused(group, "the embedded consumer protocol is malformed")
    if assigned.has_user_data:
        raise _refused(group, "an unsupported custom assignor is in use")
    before = [embedded.subscription(metadata) for _, metadata in member.generation_protocols]
    claims = _claims(read) & _claims(before)
    return ConvertedMember(member, subscription, assigned.topic_partitions, claims, subscription.generation)


def _claims(subscriptions: Iterable[Subscription | None]) -> frozenset[TopicPartition]:
    return frozenset().union(*(each.owned for each in subscriptions if each is not None))


def _shared_out(members: list[ConvertedMember]) -> list[tuple[ConvertedMember, set[TopicPartition]]]:
    """The converted members with their partitions: those of the assignment first, then claims; of two claims the newer
    one counts. A member whose assignment overlaps with that of another member is not converted.
    """
    taken: set[TopicPartition] = set()
    found = []
    for each in members:
        if taken.isdisjoint(each.assigned):
            taken |= each.assigned
            found.append((each, set(each.assigned)))
    for each, owned in sorted(found, key=lambda one: one[0].claimed_in, reverse=True):
        owned |= each.claims - taken
        taken |= each.claims
    return found


def _by_topic(topic_partitions: set[TopicPartition], topics: TopicLookup) -> Owned:
    owned: dict[bytes, set[int]] = {}
    for name, partition in sorted(topic_partitions):
        topic = topics.by_name(name)
        if topic is not None and 0 <= partition < topic.partitions:
            owned.setdefault(topic.topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def _metadata(name: str, member: ClassicMember, subscription: Subscription) -> ConsumerGroupMemberMetadata:
    return ConsumerGroupMemberMetadata(
        name,
        member.member_id,
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=max(0, member.rebalance_timeout_ms),
        classic=ClassicMemberMetadata(member.session.timeout_ms, member.protocols),
    )


def _current(name: str, member: ClassicMember, epoch: int, owned: Owned) -> ConsumerGroupCurrentMemberAssignment:
    given = {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in owned.items()}
    return ConsumerGroupCurrentMemberAssignment(
        name, member.member_id, epoch, epoch, int(MemberState.STABLE), given, {}
    )


def downgrade(group: ConsumerGroup, topics: TopicLookup, embedded: ConsumerProtocol) -> list[ClassicMember] | None:
    """Return the members of the classic group to which a consumer group of classic members is converted; None if they
    have no protocol in common.

    Each member is assigned the partitions that it owns or has still to revoke.
    """
    supported = [{name for name, _ in member.classic.protocols} for member in group.members.values() if member.classic]
    if not supported or not set.intersection(*supported):
        return None
    return [_member(group, group.members[member_id], topics, embedded) for member_id in sorted(group.members)]


def _member(
    group: ConsumerGroup, member: ConsumerGroupMemberMetadata, topics: TopicLookup, embedded: ConsumerProtocol
) -> ClassicMember:
    assert member.classic is not None
    request = Join(
        group=group.group_id,
        member_id=member.member_id,
        fresh_id="",
        protocol_type=CONSUMER_PROTOCOL,
        protocols=member.classic.protocols,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        group_instance_id=member.instance_id,
    )
    current = group.current(member.member_id)
    partitions: dict[str, list[int]] = {}
    for epochs_by_topic in (current.assigned, current.pending_revocation):
        for topic_id, epochs in epochs_by_topic.items():
            topic = topics.by_id(topic_id)
            if topic is not None:
                partitions.setdefault(topic.name, []).extend(epochs)
    metadata = next((metadata for _, metadata in member.classic.protocols), b"")
    return ClassicMember(member.member_id, request, embedded.assignment(partitions, metadata))
