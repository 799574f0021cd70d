"""What is durable of one consumer group: the records themselves, by member, and what follows from them.

Laws: `apply` alone changes it, in life and in replay. A command that needs to see what its own records lead to works on
a `Draft`. Replay is lenient where Kafka's is: records of a compacted log may speak of members that are gone.
"""

from collections.abc import Callable
from copy import copy
from enum import Enum
from typing import Any

from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import JOIN_EPOCH
from kafkalite.state.groups.records import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTombstone,
)

__all__ = ["INITIAL_EPOCH", "ConsumerGroup", "ConsumerGroupState", "Draft"]

INITIAL_EPOCH = 1
"""Group epoch and target epoch of a group without records, so that whoever joins gets an epoch that is not 0."""


STABLE = int(MemberState.STABLE)


class ConsumerGroupState(Enum):
    """The state of a group by the name that Kafka shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """One group. Everything here is the outcome of `apply`; nobody else writes to it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.has_partition_metadata = False
        self.members: dict[str, ConsumerGroupMemberMetadata] = {}
        self.currents: dict[str, ConsumerGroupCurrentMemberAssignment] = {}
        self.targets: dict[str, Assignment] = {}
        self.patterns: dict[str, ConsumerGroupRegularExpression] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        self.static_members: dict[str, str] = {}

    def copy(self) -> "ConsumerGroup":
        """Answer a group that can go its own way; the records in it are shared, for they never change."""
        twin = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(twin, name, value.copy())
        return twin

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.is_reconciled(member_id) for member_id in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def is_reconciled(self, member_id: str) -> bool:
        """Whether the member owns all that it is to own."""
        current = self.current(member_id)
        return current.state == MemberState.STABLE and current.member_epoch == self.assignment_epoch

    def current(self, member_id: str) -> ConsumerGroupCurrentMemberAssignment:
        """Answer what the member owns; for one that has just come, nothing."""
        known = self.currents.get(member_id)
        return known or ConsumerGroupCurrentMemberAssignment(
            self.group_id, member_id, JOIN_EPOCH, -1, int(MemberState.STABLE), {}, {}
        )

    def is_stable_member(self, member_id: str, instance_id: str | None, epoch: int, client: tuple[str, str]) -> bool:
        """Whether who sends this is a member of the consumer protocol that nothing has to be told, nor noted of."""
        member, current = self.members.get(member_id), self.currents.get(member_id)
        if member is None or current is None or member.classic is not None or current.state != STABLE:
            return False
        if instance_id is not None and self.static_members.get(instance_id) != member_id:
            return False
        if not epoch == current.member_epoch == self.assignment_epoch == self.epoch > INITIAL_EPOCH:
            return False
        return (member.client_id, member.client_host) == client

    def speaks_classic(self, member_id: str) -> bool:
        """Whether this is a member, and one of the classic protocol."""
        member = self.members.get(member_id)
        return member is not None and member.classic is not None

    @property
    def all_classic(self) -> bool:
        """Whether no member speaks the consumer protocol."""
        return all(member.classic is not None for member in self.members.values())

    def topics_of(self, member_id: str) -> set[str]:
        """Answer the names of the topics the member is subscribed to; a pattern not yet resolved matches none."""
        member = self.members[member_id]
        pattern = self.patterns.get(member.subscribed_topic_regex)
        return {*member.subscribed_topic_names, *(pattern.topics if pattern else ())}

    def subscribed_topics(self) -> set[str]:
        """Answer the names of all topics that anybody in the group is subscribed to."""
        names = {member.subscribed_topic_names for member in self.members.values()}
        patterns = [self.patterns[each] for each in self.subscribed_patterns() if each in self.patterns]
        return set().union(*names, *(pattern.topics for pattern in patterns))

    def subscribed_patterns(self) -> set[str]:
        """Answer all patterns that anybody in the group is subscribed to."""
        return {member.subscribed_topic_regex for member in self.members.values()} - {""}

    def apply(self, record: object) -> None:
        """Take over one record of this group."""
        _APPLY[type(record)](self, record)


def _metadata(group: ConsumerGroup, record: ConsumerGroupMetadata) -> None:
    group.epoch, group.metadata_hash = record.epoch, record.metadata_hash


def _partition_metadata(group: ConsumerGroup, record: ConsumerGroupPartitionMetadata) -> None:
    group.has_partition_metadata = True


def _member(group: ConsumerGroup, record: ConsumerGroupMemberMetadata) -> None:
    before = group.members.get(record.member_id)
    if before is not None and before.instance_id != record.instance_id:
        _forget_instance(group, before)  # it goes by another one now
    group.members[record.member_id] = record
    if record.instance_id is not None:
        group.static_members[record.instance_id] = record.member_id


def _target_metadata(group: ConsumerGroup, record: ConsumerGroupTargetAssignmentMetadata) -> None:
    group.assignment_epoch = record.assignment_epoch
    group.assignment_timestamp_ms = record.assignment_timestamp_ms


def _target(group: ConsumerGroup, record: ConsumerGroupTargetAssignmentMember) -> None:
    group.targets[record.member_id] = record.partitions


def _current(group: ConsumerGroup, record: ConsumerGroupCurrentMemberAssignment) -> None:
    _release(group, record.member_id)
    group.currents[record.member_id] = record
    for epochs_by_topic in (record.assigned, record.pending_revocation):
        for topic_id, epochs in epochs_by_topic.items():
            for partition in epochs:
                group.owners[topic_id, partition] = record.member_id


def _pattern(group: ConsumerGroup, record: ConsumerGroupRegularExpression) -> None:
    group.patterns[record.pattern] = record


def _tombstone(group: ConsumerGroup, record: ConsumerGroupTombstone) -> None:
    _DELETE[record.of](group, record.key)


def _release(group: ConsumerGroup, member_id: str) -> None:
    current = group.currents.pop(member_id, None)
    for epochs_by_topic in (current.assigned, current.pending_revocation) if current else ():
        for topic_id, epochs in epochs_by_topic.items():
            for partition in epochs:
                if group.owners.get((topic_id, partition)) == member_id:
                    del group.owners[topic_id, partition]


def _delete_member(group: ConsumerGroup, member_id: str) -> None:
    member = group.members.pop(member_id, None)
    if member is not None:
        _forget_instance(group, member)


def _forget_instance(group: ConsumerGroup, member: ConsumerGroupMemberMetadata) -> None:
    if member.instance_id is not None and group.static_members.get(member.instance_id) == member.member_id:
        del group.static_members[member.instance_id]


def _delete_target(group: ConsumerGroup, member_id: str) -> None:
    group.targets.pop(member_id, None)


def _delete_target_metadata(group: ConsumerGroup, key: str) -> None:
    group.assignment_epoch, group.assignment_timestamp_ms = INITIAL_EPOCH, 0


def _delete_pattern(group: ConsumerGroup, pattern: str) -> None:
    group.patterns.pop(pattern, None)


def _delete_partition_metadata(group: ConsumerGroup, key: str) -> None:
    group.has_partition_metadata = False


_APPLY: dict[type, Callable[[ConsumerGroup, Any], None]] = {
    ConsumerGroupMetadata: _metadata,
    ConsumerGroupPartitionMetadata: _partition_metadata,
    ConsumerGroupMemberMetadata: _member,
    ConsumerGroupTargetAssignmentMetadata: _target_metadata,
    ConsumerGroupTargetAssignmentMember: _target,
    ConsumerGroupCurrentMemberAssignment: _current,
    ConsumerGroupRegularExpression: _pattern,
    ConsumerGroupTombstone: _tombstone,
}

_DELETE: dict[type, Callable[[ConsumerGroup, str], None]] = {
    ConsumerGroupPartitionMetadata: _delete_partition_metadata,
    ConsumerGroupMemberMetadata: _delete_member,
    ConsumerGroupTargetAssignmentMetadata: _delete_target_metadata,
    ConsumerGroupTargetAssignmentMember: _delete_target,
    ConsumerGroupCurrentMemberAssignment: _release,
    ConsumerGroupRegularExpression: _delete_pattern,
}


class Draft:
    """A group as the records of the command at hand will leave it. The group itself stays as it is until `apply`."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[object] = []

    def add(self, record: object) -> None:
        if not self.records:
            self.group = self.group.copy()
        self.records.append(record)
        self.group.apply(record)

    def delete(self, of: type, key: str = "") -> None:
        self.add(ConsumerGroupTombstone(self.group.group_id, of, key))
