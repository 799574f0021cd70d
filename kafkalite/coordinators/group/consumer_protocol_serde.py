"""Decodes and encodes subscriptions and assignments of consumers in the classic protocol
(`state/groups/consumer_protocol`).

Members may send any bytes: malformed ones decode to None. Topics are in any order and may be repeated.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from kafkalite.errors import DecodeError
from kafkalite.model import TopicPartition
from kafkalite.protocol.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
    version_of,
    write,
)
from kafkalite.state.groups.consumer_protocol import ConsumerAssignment, Subscription

OLDEST = 0
Assigned = ConsumerProtocolAssignment.TopicPartition
Owned = ConsumerProtocolSubscription.TopicPartition


def topic_partitions(topics: Iterable[Assigned | Owned]) -> frozenset[TopicPartition]:
    """The partitions of these topics."""
    return frozenset(TopicPartition(each.topic, partition) for each in topics for partition in each.partitions)


class ConsumerProtocolSerde:
    """The embedded consumer protocol of the classic protocol."""

    def subscription(self, metadata: bytes) -> Subscription | None:
        """The subscription of a member, None if it is malformed."""
        try:
            read = read_subscription(metadata)
        except DecodeError:
            return None
        return Subscription(
            tuple(read.topics), topic_partitions(read.owned_partitions), read.rack_id or None, read.generation_id
        )

    def decode_assignment(self, assignment: bytes) -> ConsumerAssignment | None:
        """A member's assignment, None if it is malformed; empty bytes are no partitions."""
        try:
            read = read_assignment(assignment)
        except DecodeError:
            return None
        return ConsumerAssignment(topic_partitions(read.assigned_partitions), bool(read.user_data))

    def assignment(self, partitions: Mapping[str, Collection[int]], metadata: bytes) -> bytes:
        """The assignment for the member with this subscription, in its version; version 0 if it is malformed."""
        try:
            version = version_of(metadata)
        except DecodeError:
            version = OLDEST
        topics = [Assigned(topic=name, partitions=sorted(partitions[name])) for name in sorted(partitions)]
        return write(ConsumerProtocolAssignment(assigned_partitions=topics), version)

    def subscription_to(self, topics: Sequence[str]) -> bytes:
        """The subscription of a member that reads these topics, in the newest version."""
        return write(ConsumerProtocolSubscription(topics=list(topics)))
