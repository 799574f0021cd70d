"""Decides whether a member of a consumer group may commit the partitions of a request.

Source: ConsumerGroup.validateOffsetCommit of Apache Kafka, KIP-1251.
"""

from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.groups.consumer.reconciliation import Owners
from kafkalite.state.groups.records import ConsumerGroupCurrentMemberAssignment


class ConsumerCommitValidation(NamedTuple):
    """The validation of a commit.

    Arguments:
        code: the error of all partitions; NONE = `of_partition` validates each.
        epoch: of the request. With an epoch older than the member's, a partition is accepted if the member was assigned
            it in that epoch or before.
        current: what the member owns, if the epoch is older than the member's; None = it is the member's.
        member_id, owners: a commit of a partition that another member owns now is late, and rejected: the sender has
            released the partition.
        behind: the epoch is older than that of the target assignment: a partition that no member owns now may have been
            the sender's before a rewind. The sender may commit only what it owns.
        late: the error of a late commit.
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
        """Whether all partitions have the same result: no member owns any, or may have owned one."""
        return self.current is None and not self.owners and not self.behind

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> KafkaErrorCode:
        """NONE, or the error if the sender did not own the partition in this epoch, or does not own it any more."""
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


COMMIT_ACCEPTED = ConsumerCommitValidation(KafkaErrorCode.NONE)
