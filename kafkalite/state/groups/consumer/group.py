"""One consumer group: its durable state and what others need of it, such as the validation of commits.

Invariants:
1. `apply` alone changes the group, in replay and in normal operation. A command that needs the result of its own
   records works on a `Draft`.
2. Replay is as lenient as Kafka's: records of a compacted log may name members that are deleted.
Source: ConsumerGroup.java of Apache Kafka (validateOffsetCommit with KIP-1251, createGroupTombstoneRecords).
"""

from collections.abc import Callable, Collection, Container
from copy import copy
from enum import Enum
from typing import Any, Protocol

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now
from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL
from kafkalite.state.groups.consumer.commit_validation import COMMIT_ACCEPTED, ConsumerCommitValidation
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupSettings,
    TopicLookup,
)
from kafkalite.state.groups.group import Group, GroupOverview, MemberOverview, TopicIdPartition
from kafkalite.state.groups.records import (
    CONSUMER,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTombstone,
    GroupDeleted,
)

INITIAL_EPOCH = 1
"""Group epoch and target epoch of a group without records, so that a joining member gets an epoch above 0."""


STABLE = int(MemberState.STABLE)
MEMBER_RECORDS = (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupMemberMetadata,
)


class ConsumerGroupState(Enum):
    """The state of a group by the name that Kafka shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroupContext(Protocol):
    """The shard of a group: settings and topics, which are not part of its durable state."""

    topics: TopicLookup

    def settings_of(self, group_id: str, /) -> ConsumerGroupSettings:
        """The settings of a group."""

    def topics_read(self, group_id: str) -> Container[str]:
        """The topics that members of a group read."""


class ConsumerGroup(Group):
    """One group. All other attributes are the result of `apply`. A commit does not extend the session of a member.

    Arguments:
        group_id: its name.
        context: its shard.

    Attributes:
        subscriptions: number of members by topic names and pattern; members of a group rarely have different ones.
    """

    protocol_type = CONSUMER_PROTOCOL

    def __init__(self, group_id: str, context: ConsumerGroupContext) -> None:
        self.group_id = group_id
        self.context = context
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
        self.subscriptions: dict[tuple[tuple[str, ...], str], int] = {}

    def copy(self) -> "ConsumerGroup":
        """Return an independent copy; it shares the records, which are immutable."""
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
        """Whether the member has reached its target assignment."""
        current = self.current(member_id)
        return current.state == MemberState.STABLE and current.member_epoch == self.assignment_epoch

    def current(self, member_id: str) -> ConsumerGroupCurrentMemberAssignment:
        """Return the current assignment of a member; that of a new member is empty."""
        known = self.currents.get(member_id)
        return known or ConsumerGroupCurrentMemberAssignment(
            self.group_id, member_id, JOIN_EPOCH, -1, int(MemberState.STABLE), {}, {}
        )

    def is_stable_member(self, member_id: str, instance_id: str | None, epoch: int, client: tuple[str, str]) -> bool:
        """Whether a heartbeat comes from a reconciled member of the consumer protocol whose metadata is unchanged."""
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
        """Whether no member uses the consumer protocol."""
        return all(member.classic is not None for member in self.members.values())

    def topics_of(self, member_id: str) -> set[str]:
        """Return the topics to which a member subscribes; an unresolved pattern matches none."""
        member = self.members[member_id]
        pattern = self.patterns.get(member.subscribed_topic_regex)
        return {*member.subscribed_topic_names, *(pattern.topics if pattern else ())}

    def subscribed_topics(self) -> set[str]:
        """Return all topics to which members subscribe."""
        patterns = [self.patterns[each] for each in self.subscribed_patterns() if each in self.patterns]
        names = [names for names, _ in self.subscriptions]
        return set().union(*names, *(pattern.topics for pattern in patterns))

    def subscribed_patterns(self) -> set[str]:
        """Return all patterns to which members subscribe."""
        return {pattern for _, pattern in self.subscriptions if pattern}

    def apply(self, record: object) -> None:
        """Apply a record of this group."""
        _APPLY[type(record)](self, record)

    # the interface of every group (`groups/group`)

    @property
    def generation_id(self) -> int:
        """The group epoch."""
        return self.epoch

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        member_epochs: bool = True,
    ) -> ConsumerCommitValidation:
        """Return whether a commit is accepted. While the group has no members, one without an epoch is.

        Arguments:
            member_id: of the sender.
            group_instance_id, transactional: have no meaning in a consumer group.
            generation: the member epoch, or the generation of a member of the classic protocol; -1 = none.
            member_epochs: the version of the request has member epochs.

        Errors: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION (no `member_epochs`), STALE_MEMBER_EPOCH, ILLEGAL_GENERATION (a
        member of the classic protocol).
        """
        if generation < 0 and not self.members:
            return COMMIT_ACCEPTED
        if member_id not in self.members:
            return ConsumerCommitValidation(KafkaErrorCode.UNKNOWN_MEMBER_ID)
        current = self.current(member_id)
        classic = self.speaks_classic(member_id)
        if not member_epochs and not classic:
            return ConsumerCommitValidation(KafkaErrorCode.UNSUPPORTED_VERSION)
        late = KafkaErrorCode.ILLEGAL_GENERATION if classic else KafkaErrorCode.STALE_MEMBER_EPOCH
        if generation == current.member_epoch:
            behind = generation < self.assignment_epoch
            return ConsumerCommitValidation(KafkaErrorCode.NONE, generation, None, member_id, self.owners, late, behind)
        if classic:
            return ConsumerCommitValidation(late)
        if generation < 0 or generation > current.member_epoch:
            return ConsumerCommitValidation(KafkaErrorCode.STALE_MEMBER_EPOCH)
        return ConsumerCommitValidation(KafkaErrorCode.NONE, generation, current)

    def validate_offset_fetch(self, member_id: str | None, generation: int) -> KafkaErrorCode:
        """Whether the sender may fetch offsets; without a member id and an epoch, as tools send it, it may."""
        if member_id is None and generation < 0:
            return KafkaErrorCode.NONE
        if member_id is None or member_id not in self.members:
            return KafkaErrorCode.UNKNOWN_MEMBER_ID
        if generation == self.current(member_id).member_epoch:
            return KafkaErrorCode.NONE
        classic = self.speaks_classic(member_id)
        return KafkaErrorCode.ILLEGAL_GENERATION if classic else KafkaErrorCode.STALE_MEMBER_EPOCH

    def topics_read(self) -> Container[str]:
        """The topics that members read."""
        return self.context.topics_read(self.group_id)

    def fence_owners(self, partitions: Collection[TopicIdPartition], now: Now) -> Effects:
        """Make the owners of `partitions` drop all their partitions, rejoin and read the new offsets.

        The target assignment stays and gets a new epoch. The owners get that epoch, without partitions. Their
        heartbeats with the old epoch fail with FENCED_MEMBER_EPOCH, their commits with STALE_MEMBER_EPOCH; they join
        with epoch 0 and are assigned their target again. A target assignment that is due stays due.
        Owners of the classic protocol are removed, which makes a target assignment due: a rejoin has no epoch that
        would show what the member has missed. The target gets a new epoch also if no member owns the partitions: a
        member that gave one up may still have the epoch of the target, and is `behind` then.
        """
        if not self.members:
            return Effects()
        keys = {(each.topic_id, each.partition) for each in partitions}
        owners = sorted({self.owners[key] for key in keys if key in self.owners})
        removed = [member_id for member_id in owners if self.speaks_classic(member_id)]
        stable = self.epoch == self.assignment_epoch
        epoch = self.epoch + 1 if stable else self.epoch
        group_epoch = epoch if stable and not removed else epoch + 1
        records: list[object] = [
            ConsumerGroupTombstone(self.group_id, of, member_id) for member_id in removed for of in MEMBER_RECORDS
        ]
        records.append(ConsumerGroupMetadata(self.group_id, group_epoch, self.metadata_hash))
        timestamp_ms = self.assignment_timestamp_ms
        records.append(ConsumerGroupTargetAssignmentMetadata(self.group_id, epoch, timestamp_ms))
        fenced = [member_id for member_id in owners if member_id not in removed]
        return Effects(records=records + [_emptied(self.current(member_id), epoch) for member_id in fenced])

    def delete(self, now: Now) -> Effects:
        """The tombstones of an empty group."""
        assert not self.members, self.group_id
        return Effects(records=self.tombstones())

    def tombstones(self) -> list[object]:
        """The records that delete the group with all its members."""
        records: list[object] = []
        for of, keys in (
            (ConsumerGroupCurrentMemberAssignment, self.currents),
            (ConsumerGroupTargetAssignmentMember, self.targets),
            (ConsumerGroupTargetAssignmentMetadata, [""]),
            (ConsumerGroupMemberMetadata, self.members),
            (ConsumerGroupRegularExpression, self.patterns),
            (ConsumerGroupPartitionMetadata, [""] if self.has_partition_metadata else []),
        ):
            records += [ConsumerGroupTombstone(self.group_id, of, key) for key in sorted(keys)]
        return [*records, GroupDeleted(self.group_id, CONSUMER)]

    def overview(self) -> GroupOverview:
        """The group for ListGroups+."""
        members = []
        for member_id in sorted(self.members):
            owned = {}
            for topic_id, epochs in self.current(member_id).assigned.items():
                topic = self.context.topics.by_id(topic_id)
                if topic is not None:
                    owned[topic.name] = sorted(epochs)
            members.append(MemberOverview(member_id, owned))
        session_timeout_ms = self.context.settings_of(self.group_id).session_timeout_ms
        return GroupOverview(sorted(self.subscribed_topics()), session_timeout_ms, members)


def _emptied(current: ConsumerGroupCurrentMemberAssignment, epoch: int) -> ConsumerGroupCurrentMemberAssignment:
    away = current.member_epoch == STATIC_LEAVE_EPOCH
    return current._replace(
        member_epoch=STATIC_LEAVE_EPOCH if away else epoch,
        previous_member_epoch=epoch,
        state=int(MemberState.UNRELEASED_PARTITIONS),
        assigned={},
        pending_revocation={},
    )


def _metadata(group: ConsumerGroup, record: ConsumerGroupMetadata) -> None:
    group.epoch, group.metadata_hash = record.epoch, record.metadata_hash


def _partition_metadata(group: ConsumerGroup, record: ConsumerGroupPartitionMetadata) -> None:
    group.has_partition_metadata = True


def _member(group: ConsumerGroup, record: ConsumerGroupMemberMetadata) -> None:
    before = group.members.get(record.member_id)
    if before is not None:
        _forget_subscription(group, before)
        if before.instance_id != record.instance_id:
            _forget_instance(group, before)  # it has another instance id now
    group.members[record.member_id] = record
    subscription = record.subscribed_topic_names, record.subscribed_topic_regex
    group.subscriptions[subscription] = group.subscriptions.get(subscription, 0) + 1
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
        _forget_subscription(group, member)
        _forget_instance(group, member)


def _forget_subscription(group: ConsumerGroup, member: ConsumerGroupMemberMetadata) -> None:
    subscription = member.subscribed_topic_names, member.subscribed_topic_regex
    group.subscriptions[subscription] -= 1
    if not group.subscriptions[subscription]:
        del group.subscriptions[subscription]


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
