"""The embedded consumer protocol: subscriptions and assignments that consumers exchange through the classic protocol.

A classic group is converted, and a classic member is served by a consumer group, only if its subscription can be
decoded. The bytes are decoded and encoded outside (`coordinators/group/consumer_protocol_serde`).
Source: ConsumerProtocol.java of Apache Kafka (the "embedded consumer protocol").
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkalite.model import TopicPartition


class Subscription(NamedTuple):
    """The subscription of a member in JoinGroup.

    Arguments:
        owned: the partitions that it keeps during the rebalance; an eager member has none.
        generation: in which they were assigned, -1 = unknown.
    """

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    rack_id: str | None = None
    generation: int = -1


class ConsumerAssignment(NamedTuple):
    """The assignment of a member by its leader. `has_user_data`: it contains data of the assignor."""

    topic_partitions: frozenset[TopicPartition]
    has_user_data: bool = False


class ConsumerProtocol(Protocol):
    """Decodes and encodes subscriptions and assignments."""

    def subscription(self, metadata: bytes) -> Subscription | None:
        """A member's subscription, None if it is malformed."""

    def decode_assignment(self, assignment: bytes) -> ConsumerAssignment | None:
        """A member's assignment, None if it is malformed; empty bytes are no partitions."""

    def assignment(self, partitions: Mapping[str, Collection[int]], metadata: bytes) -> bytes:
        """The assignment for the member with this subscription, in the version of the subscription."""

    def subscription_to(self, topics: Sequence[str]) -> bytes:
        """The subscription of a member that reads these topics, in the newest version."""


class NoConsumerProtocol:
    """Decodes nothing: no group is converted, and no classic member is served by a consumer group."""

    def subscription(self, metadata: bytes) -> Subscription | None:
        return None

    def decode_assignment(self, assignment: bytes) -> ConsumerAssignment | None:
        return None

    def assignment(self, partitions: Mapping[str, Collection[int]], metadata: bytes) -> bytes:
        raise NotImplementedError("members with malformed subscriptions are rejected at join")

    def subscription_to(self, topics: Sequence[str]) -> bytes:
        raise NotImplementedError("subscriptions are not written")


UNREADABLE = NoConsumerProtocol()
