"""Decides whether a member of a registered group may commit the partitions of a request."""

from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.groups.records import RegisteredMember

NO_MARKS: Mapping[TopicPartition, int] = {}


class RegisteredCommitValidation(NamedTuple):
    """The validation of a commit of `generation`. Without an error and without a `member` every partition may be
    committed: the group has no members.
    """

    code: int
    generation: int = -1
    member: RegisteredMember | None = None
    marks: Mapping[TopicPartition, int] = NO_MARKS

    @property
    def uniform(self) -> bool:
        """Whether all partitions have the same result: the sender is no member."""
        return self.member is None

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> int:
        """ILLEGAL_GENERATION unless the sender owns the partition, has not registered after the generation of the
        commit, and the partition was not rewound after it.
        """
        if self.code or self.member is None:
            return self.code
        oldest = self.member.since
        if self.marks:
            oldest = max(oldest, self.marks.get(TopicPartition(topic, partition), 0))
        accepted = (topic, partition) in self.member.owned and oldest <= self.generation
        return KafkaErrorCode.NONE if accepted else KafkaErrorCode.ILLEGAL_GENERATION
