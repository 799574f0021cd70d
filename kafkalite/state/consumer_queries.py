"""What others ask of a consumer group: whether a commit or a fetch of offsets is in order, what the group looks like,
and the records that delete it or fence the owners of partitions whose offsets are rewound.

Source: ConsumerGroup.java (validateOffsetCommit with KIP-1251, validateOffsetFetch, asDescribedGroup,
createGroupTombstoneRecords).
"""

from collections.abc import Collection
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.assignors import Assignment
from kafkalite.state.consumer_messages import (
    STATIC_LEAVE_EPOCH,
    ConsumerGroupSettings,
    GroupDescription,
    MemberDescription,
)
from kafkalite.state.consumer_reconciliation import MemberState
from kafkalite.state.consumer_state import ConsumerGroup
from kafkalite.state.consumer_target import assignor_of
from kafkalite.state.group_records import (
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

__all__ = ["CommitCheck", "check_commit", "check_fetch", "deletion", "describe", "fence_owners"]


class CommitCheck(NamedTuple):
    """Whether a member may commit.

    Arguments:
        code: an error of the whole request, NONE = ask `of_partition`.
        epoch: of the request; older than the member's own: each partition is judged by when the member got it.
        current: what the member owns; None = everything may be committed.
    """

    code: KafkaErrorCode
    epoch: int = 0
    current: ConsumerGroupCurrentMemberAssignment | None = None

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> KafkaErrorCode:
        """Answer NONE, or STALE_MEMBER_EPOCH: the sender of this epoch did not own the partition."""
        if self.code != KafkaErrorCode.NONE or self.current is None:
            return self.code
        for epochs in (self.current.assigned, self.current.pending_revocation):
            given_at = epochs.get(topic_id, {}).get(partition)
            if given_at is not None:
                return KafkaErrorCode.NONE if given_at <= self.epoch else KafkaErrorCode.STALE_MEMBER_EPOCH
        return KafkaErrorCode.STALE_MEMBER_EPOCH


def check_commit(group: ConsumerGroup, member_id: str, member_epoch: int) -> CommitCheck:
    """Judge a commit. While the group has no members, whoever names no epoch may commit."""
    if member_epoch < 0 and not group.members:
        return CommitCheck(KafkaErrorCode.NONE)
    if member_id not in group.members:
        return CommitCheck(KafkaErrorCode.UNKNOWN_MEMBER_ID)
    current = group.current(member_id)
    if member_epoch == current.member_epoch:
        return CommitCheck(KafkaErrorCode.NONE)
    if member_epoch < 0 or member_epoch > current.member_epoch:
        return CommitCheck(KafkaErrorCode.STALE_MEMBER_EPOCH)
    return CommitCheck(KafkaErrorCode.NONE, member_epoch, current)


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> KafkaErrorCode:
    """Judge a fetch of offsets; who names neither member nor epoch, as tools do, may fetch."""
    if member_id is None and member_epoch < 0:
        return KafkaErrorCode.NONE
    if member_id is None or member_id not in group.members:
        return KafkaErrorCode.UNKNOWN_MEMBER_ID
    known = group.current(member_id).member_epoch
    return KafkaErrorCode.NONE if member_epoch == known else KafkaErrorCode.STALE_MEMBER_EPOCH


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
    )


def _owned(current: ConsumerGroupCurrentMemberAssignment) -> Assignment:
    topics = sorted(current.assigned.keys() | current.pending_revocation.keys())
    return {
        topic_id: frozenset(current.assigned.get(topic_id, {}).keys() | current.pending_revocation.get(topic_id, {}))
        for topic_id in topics
    }


def deletion(group: ConsumerGroup) -> list[object] | KafkaErrorCode:
    """Answer the records that delete the group, or NON_EMPTY_GROUP; its offsets are the caller's."""
    if group.members:
        return KafkaErrorCode.NON_EMPTY_GROUP
    records: list[object] = []
    for of, keys in (
        (ConsumerGroupCurrentMemberAssignment, group.currents),
        (ConsumerGroupTargetAssignmentMember, group.targets),
        (ConsumerGroupTargetAssignmentMetadata, [""]),
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
    """
    fenced = sorted({group.owners[place] for place in partitions if place in group.owners})
    if not fenced:
        return []
    settled = group.epoch == group.assignment_epoch
    epoch = group.epoch + 1 if settled else group.epoch
    records: list[object] = [ConsumerGroupMetadata(group.group_id, group.epoch + 1, group.metadata_hash)]
    timestamp_ms = group.assignment_timestamp_ms
    records.append(ConsumerGroupTargetAssignmentMetadata(group.group_id, epoch, timestamp_ms))
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
