"""The broker's settings for classic groups."""

from collections.abc import Callable
from dataclasses import dataclass

from kafkalite.model import TopicPartition

CONSUMER_PROTOCOL = "consumer"  # the protocol type whose subscriptions the broker can read


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """Bounds and delays (ms, members), and functions that read a consumer's metadata.

    Arguments:
        session_min_ms: lower bound of session timeouts.
        session_max_ms: upper bound of session timeouts.
        initial_delay_ms: how long the first rebalance of an empty group waits for further members.
        members_max: most members of a group.
        new_member_join_ms: how long the join of a new member may be delayed; it cannot send heartbeats yet.
        topics_of: topics of a subscription, None if it cannot be read.
        partitions_of: topics and partitions of an assignment, None if it cannot be read.
        held_of: the partitions that a subscription names as owned, None if it cannot be read.
    """

    session_min_ms: int = 6_000
    session_max_ms: int = 1_800_000
    initial_delay_ms: int = 3_000
    members_max: int = 2**31 - 1
    new_member_join_ms: int = 300_000
    topics_of: Callable[[bytes], frozenset[str] | None] = lambda _: None
    partitions_of: Callable[[bytes], frozenset[TopicPartition] | None] = lambda _: None
    held_of: Callable[[bytes], frozenset[TopicPartition] | None] = lambda _: frozenset()
