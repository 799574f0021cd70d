"""What consumers tell each other through the classic protocol, as far as the broker must understand it.

A classic group is converted, and a classic member is served by a consumer group, only where its subscription can be
read. The bytes are read and written outside (`coordinators/group/settings`): the machines know no layouts.
Source: ConsumerProtocol.java of Apache Kafka (the "embedded consumer protocol").
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkalite.model import TopicPartition

__all__ = ["UNREADABLE", "ConsumerAssignment", "ConsumerProtocol", "Subscription"]


class Subscription(NamedTuple):
    """What a member said when it joined.

    Arguments:
        owned: the partitions that it keeps through the rebalance; an eager member has none.
        generation: in which it was assigned them, -1 = it does not say.
    """

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    rack_id: str | None = None
    generation: int = -1


class ConsumerAssignment(NamedTuple):
    """What a leader gave to a member. `has_user_data`: its assignor told the member more than partitions."""

    topic_partitions: frozenset[TopicPartition]
    has_user_data: bool = False


class ConsumerProtocol(Protocol):
    """How subscriptions and assignments are read and written."""

    def subscription(self, metadata: bytes) -> Subscription | None:
        """A member's subscription, None where it cannot be read."""

    def assigned(self, assignment: bytes) -> ConsumerAssignment | None:
        """A member's assignment, None where it cannot be read; no bytes are no partitions."""

    def assignment(self, partitions: Mapping[str, Collection[int]], metadata: bytes) -> bytes:
        """The assignment for the member with this subscription, in the version that it speaks."""

    def subscription_to(self, topics: Sequence[str]) -> bytes:
        """The subscription of a member that reads these topics, in the newest version."""


class NoConsumerProtocol:
    """Nothing can be read: no group is converted, and no classic member is served by a consumer group."""

    def subscription(self, metadata: bytes) -> Subscription | None:
        return None

    def assigned(self, assignment: bytes) -> ConsumerAssignment | None:
        return None

    def assignment(self, partitions: Mapping[str, Collection[int]], metadata: bytes) -> bytes:
        raise NotImplementedError("members with malformed subscriptions are rejected at join")

    def subscription_to(self, topics: Sequence[str]) -> bytes:
        raise NotImplementedError("subscriptions are not written")


UNREADABLE = NoConsumerProtocol()
