"""The values that assignors of aiokafka receive and return: subscriptions and assignments of the members of a group."""

from collections.abc import Sequence
from typing import NamedTuple

from kafkalite.model import TopicPartition


class ConsumerProtocolMemberMetadata(NamedTuple):
    """The subscription of a member.

    Attributes:
        version: of the subscription.
        subscription: topics.
        user_data: of the assignor.
    """

    version: int
    subscription: list[str]
    user_data: bytes


class ConsumerProtocolMemberAssignment(NamedTuple):
    """The assignment of a member.

    Attributes:
        version: of the assignment; the engine writes that of the member's subscription.
        assignment: topics, each with its partitions.
        user_data: of the assignor.
    """

    version: int
    assignment: Sequence[tuple[str, Sequence[int]]]
    user_data: bytes

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions one by one."""
        return [TopicPartition(topic, number) for topic, numbers in self.assignment for number in numbers]
