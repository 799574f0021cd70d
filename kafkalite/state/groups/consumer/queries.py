"""What others ask of a consumer group: whether a commit or a fetch of offsets is in order, what the group looks like,
and the records that delete it or fence the owners of partitions whose offsets are rewound.

Source: ConsumerGroup.java (validateOffsetCommit with KIP-1251, validateOffsetFetch, asDescribedGroup,
createGroupTombstoneRecords).
"""

from collections.abc import Collection
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.assignors import Assignment
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.reconciliation import MemberState, Owners
from kafkalite.state.groups.consumer.requests import (
    STATIC_LEAVE_EPOCH,
    ConsumerGroupSettings,
    GroupDescription,
    MemberDescription,
)
from kafkalite.state.groups.consumer.target_assignment import assignor_of
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

__all__ = [
    "ConsumerCommitValidation",
    "deletion",
    "describe",
    "fence_owners",
    "tombstones",
    "validate_offset_commit",
    "validate_offset_fetch",
]


MEMBER_RECORDS = (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupMemberMetadata,
)


class ConsumerCommitValidation(NamedTuple):
    """Whether a member may commit.

    Arguments:
        code: an error of the whole request, NONE = ask `of_partition`.
        epoch: of the request; older than the member's own: each partition is judged by when the member got it.
        current: what the member owns, where the epoch is an older one; None = it is the member's own.
        member_id, owners: a partition that somebody else owns now is not the sender's to commit: it gave it up, and
            this commit comes late.
        behind: the epoch is older than the target assignment: what nobody owns now may have been the sender's in it.
            It commits only what it owns, so that nothing late undoes a rewind.
        late: the error for that.
    """

    code: KafkaErrorCode
    epoch: int = 0
    current: ConsumerGroupCurrentMemberAssignment | None = None
    member_id: str = ""
    owners: Owners = {}  # noqa: RUF012
    late: KafkaErrorCode = KafkaErrorCode.STALE_MEMBER_EPOCH
    behind: bool = False

    @property
    def uniform(self) -> bool:
        """Whether all partitions are judged alike: nobody owns any, or may have owned one."""
        return self.current is None and not self.owners and not self.behind

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> KafkaErrorCode:
        """Answer NONE, or that the sender did not own the partition in this epoch, or does not any more."""
        if self.code != KafkaErrorCode.NONE:
            return self.code
        if self.current is None:
            lost = self.owners.get((topic_id, partition), "" if self.behind else self.member_id) != self.member_id
            return self.late if lost else KafkaErrorCode.NONE
        for epochs in (self.current.assigned, self.current.pending_revocation):
            given_at = epochs.get(topic_id, {}).get(partition)
            if given_at is not None:
                return KafkaErrorCode.NONE if given_at <= self.epoch else KafkaErrorCode.STALE_MEMBER_EPOCH
        return KafkaErrorCode.STALE_MEMBER_EPOCH


def validate_offset_commit(group: ConsumerGroup, member_id: str, member_epoch: int) -> ConsumerCommitValidation:
    """Judge a commit. While the group has no members, whoever names no epoch may commit. The epoch of a member of the
    classic protocol is its generation.
    """
    if member_epoch < 0 and not group.members:
        return ConsumerCommitValidation(KafkaErrorCode.NONE)
    if member_id not in group.members:
        return ConsumerCommitValidation(KafkaErrorCode.UNKNOWN_MEMBER_ID)
    current = group.current(member_id)
    classic = group.speaks_classic(member_id)
    late = KafkaErrorCode.ILLEGAL_GENERATION if classic else KafkaErrorCode.STALE_MEMBER_EPOCH
    if member_epoch == current.member_epoch:
        behind = member_epoch < group.assignment_epoch
        return ConsumerCommitValidation(KafkaErrorCode.NONE, member_epoch, None, member_id, group.owners, late, behind)
    if classic:
        return ConsumerCommitValidation(late)
    if member_epoch < 0 or member_epoch > current.member_epoch:
        return ConsumerCommitValidation(KafkaErrorCode.STALE_MEMBER_EPOCH)
    return ConsumerCommitValidation(KafkaErrorCode.NONE, member_epoch, current)


def validate_offset_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> KafkaErrorCode:
    """Judge a fetch of offsets; who names neither member nor epoch, as tools do, may fetch."""
    if member_id is None and member_epoch < 0:
        return KafkaErrorCode.NONE
    if member_id is None or member_id not in group.members:
        return KafkaErrorCode.UNKNOWN_MEMBER_ID
    if member_epoch == group.current(member_id).member_epoch:
        return KafkaErrorCode.NONE
    classic = group.speaks_classic(member_id)
    return KafkaErrorCode.ILLEGAL_GENERATION if classic else KafkaErrorCode.STALE_MEMBER_EPOCH


def describe(group: ConsumerGroup, settings: ConsumerGroupSettings) -> GroupDescription:
    """Answer the group as ConsumerGroupDescribe shows it, members in order of their ids."""
    return GroupDescription(
        group=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=assignor_of(group, settings),
        members=tuple(_describe_member(group, group.members[member_id]) for member_id in sorted(group.members)),
    )


def _describe_member(group: ConsumerGroup, member: ConsumerGroupMemberMetadata) -> MemberDescription:
    current = group.current(member.member_id)
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_owned(current),
        target_assignment=group.targets.get(member.member_id, {}),
        speaks_classic=member.classic is not None,
    )


def _owned(current: ConsumerGroupCurrentMemberAssignment) -> Assignment:
    topics = sorted(current.assigned.keys() | current.pending_revocation.keys())
    return {
        topic_id: frozenset(current.assigned.get(topic_id, {}).keys() | current.pending_revocation.get(topic_id, {}))
        for topic_id in topics
    }


def deletion(group: ConsumerGroup) -> list[object] | KafkaErrorCode:
    """Answer the records that delete the group, or NON_EMPTY_GROUP; its offsets are the caller's."""
    return KafkaErrorCode.NON_EMPTY_GROUP if group.members else tombstones(group)


def tombstones(group: ConsumerGroup) -> list[object]:
    """Answer the records that delete the group with all its members."""
    records: list[object] = []
    for of, keys in (
        (ConsumerGroupCurrentMemberAssignment, group.currents),
        (ConsumerGroupTargetAssignmentMember, group.targets),
        (ConsumerGroupTargetAssignmentMetadata, [""]),
        (ConsumerGroupMemberMetadata, group.members),
        (ConsumerGroupRegularExpression, group.patterns),
        (ConsumerGroupPartitionMetadata, [""] if group.has_partition_metadata else []),
    ):
        records += [ConsumerGroupTombstone(group.group_id, of, key) for key in sorted(keys)]
    return [*records, GroupDeleted(group.group_id, CONSUMER)]


def fence_owners(group: ConsumerGroup, partitions: Collection[tuple[bytes, int]]) -> list[object]:
    """Answer the records that make the owners of `partitions` drop all they have and ask for it again.

    The target assignment stays and gets a new epoch, which the owners are set to, without partitions. What they still
    send with their old epoch is FENCED_MEMBER_EPOCH, their commits are STALE_MEMBER_EPOCH; they join with epoch 0 and
    are given their target anew. Where a new target assignment is due, it stays due.
    Owners of the classic protocol are removed, which makes one due: a rejoin does not tell the broker what a member
    has missed. The target gets a new epoch also where nobody owns the partitions: whoever gave one up may have the
    same epoch still, and is `behind` then.
    """
    if not group.members:
        return []
    owners = sorted(
        {group.owners[topic_partition] for topic_partition in partitions if topic_partition in group.owners}
    )
    removed = [member_id for member_id in owners if group.speaks_classic(member_id)]
    stable = group.epoch == group.assignment_epoch
    epoch = group.epoch + 1 if stable else group.epoch
    group_epoch = epoch if stable and not removed else epoch + 1
    records: list[object] = [
        ConsumerGroupTombstone(group.group_id, of, member_id) for member_id in removed for of in MEMBER_RECORDS
    ]
    records.append(ConsumerGroupMetadata(group.group_id, group_epoch, group.metadata_hash))
    timestamp_ms = group.assignment_timestamp_ms
    records.append(ConsumerGroupTargetAssignmentMetadata(group.group_id, epoch, timestamp_ms))
    fenced = [member_id for member_id in owners if member_id not in removed]
    return records + [_emptied(group.current(member_id), epoch) for member_id in fenced]


def _emptied(current: ConsumerGroupCurrentMemberAssignment, epoch: int) -> ConsumerGroupCurrentMemberAssignment:
    away = current.member_epoch == STATIC_LEAVE_EPOCH
    return current._replace(
        member_epoch=STATIC_LEAVE_EPOCH if away else epoch,
        previous_member_epoch=epoch,
        state=int(MemberState.UNRELEASED_PARTITIONS),
        assigned={},
        pending_revocation={},
    )
