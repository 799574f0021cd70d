"""The broker's settings for registered groups, and the committed offsets that they read."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kafkalite.state.groups.consumer_protocol import UNREADABLE, ConsumerProtocol

NOT_DEFINED = -1
"""The session timeout in the definition of a group that a registration has created."""

PATTERN_INTERVAL_MS = 1_000
"""The least time between two resolutions of a pattern, however many topics are created."""


@dataclass(frozen=True, slots=True)
class RegisteredSettings:
    """The broker's settings.

    Arguments:
        session_min_ms: lower bound of session timeouts.
        session_max_ms: upper bound of session timeouts.
        members_max: most members of a group.
        consumer_protocol: writes subscriptions and assignments for DescribeGroups.
    """

    session_min_ms: int = 6_000
    session_max_ms: int = 1_800_000
    members_max: int = 2**31 - 1
    consumer_protocol: ConsumerProtocol = UNREADABLE


class CommittedOffsets(Protocol):
    """The committed offsets of the shard."""

    def committed_offset(self, group: str, topic: str, partition: int) -> int:
        """The committed offset of a partition, -1 = none."""

    def delete_all(self, group: str) -> Iterable[object]:
        """Tombstones for all offsets of a group."""
