"""The arguments and results of the administration of groups.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition

CLASSIC, CONSUMER, REGISTERED = "classic", "consumer", "registered"
EMPTY, DEAD = "Empty", "Dead"


@dataclass(frozen=True, slots=True, order=True)
class GroupListing:
    """A group in a list.

    Attributes:
        group: its id.
        type: "classic", "consumer", "registered", "share" or "streams"; "" = the broker does not report it.
        state: such as "Stable" and "Empty".
        protocol_type: "consumer" for groups of consumers, such as "connect" for others.
        coordinator: broker id.
    """

    group: str
    type: str
    state: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    Attributes:
        member_id: of the member.
        instance_id: of a static member, else None.
        client_id, host: of its client.
        assignment: its partitions, sorted.
        target: the partitions that it has after the rebalance, sorted; of consumer groups, else as `assignment`.
        member_epoch: of consumer groups, else -1.
        topics, pattern: its subscription, of consumer groups.
        rack: None = it has none, or the type of the group has no racks.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    member_epoch: int = -1
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    Attributes:
        group: its id.
        type: "classic", "consumer" or "registered".
        state: such as "Stable" and "Empty".
        protocol_type: "consumer" for groups of consumers.
        assignor: the partition assignor, "" = none yet.
        coordinator: broker id.
        epoch: of the group, of consumer groups, else -1.
        assignment_epoch: of the assignment, of consumer groups, else -1.
        members: of the group.
        authorized_operations: operations that this client may use, None = not requested.
    """

    group: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    epoch: int
    assignment_epoch: int
    members: tuple[GroupMember, ...]
    authorized_operations: frozenset[int] | None = None

    @property
    def owners(self) -> dict[TopicPartition, GroupMember]:
        """The member that has each partition."""
        return {partition: member for member in self.members for partition in member.assignment}


class Committed(NamedTuple):
    """A committed offset.

    Attributes:
        offset: the next record to read.
        metadata: text that was committed with it.
        leader_epoch: of the last record before it, -1 = unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in a partition; None = unknown.

    Attributes:
        committed: the committed offset.
        log_start, log_end: the offsets of the log.
        lag: records from the committed offset to the end.
        age_s: of the first record after the committed offset, in seconds; 0 without lag, None also if not requested.
        member: its owner.
        error: why the offsets of the log are unknown, None = they are known.
        stable_end: the last stable offset, where readers of committed records stop; None also if not requested.
        is_pending: an open transaction has committed an offset of the partition; None also if not requested.
    """

    committed: Committed | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    age_s: float | None
    member: GroupMember | None
    error: KafkaError | None = None
    stable_end: int | None = None
    is_pending: bool | None = None

    @property
    def stable_lag(self) -> int | None:
        """Records from the committed offset to the last stable offset, which readers of committed records get."""
        if self.committed is None or self.stable_end is None:
            return None
        return max(self.stable_end - self.committed.offset, 0)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group and its lag.

    Attributes:
        group: the group.
        partitions: those with a committed offset or an owner, sorted.
    """

    group: GroupDescription
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def total(self) -> int:
        """The records of all partitions whose lag is known."""
        return sum(each.lag or 0 for each in self.partitions.values())


class RemovedMember(NamedTuple):
    """A member to remove: its member id, or the instance id of a static member."""

    member_id: str = ""
    instance_id: str | None = None
