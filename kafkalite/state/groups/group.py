"""The interface of a group and of a group type: what offsets, housekeeping, descriptions and metrics need of any group.

A shard has groups of several types: classic, consumer, registered. `registry.GroupRegistry` finds a group by its name.
A new group type is a package with a class that implements `GroupType`, whose groups implement `Group`; one entry in
`GroupRegistry.types`; and the handlers of its own API keys. An error is a Kafka error code, 0 = none.
Source: Group.java of Apache Kafka's group coordinator.
"""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence, Sized
from enum import Enum
from typing import Any, NamedTuple, Protocol

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, TimerName, Token
from kafkalite.state.groups.classic.requests import Leave
from kafkalite.state.groups.records import CLASSIC, ClassicMemberRecord

NO_GENERATION = -1


class CommitValidation(Protocol):
    """The result of validating a commit: an error of the whole request, or an error for each partition."""

    @property
    def code(self) -> int:
        """The error of the whole request."""

    @property
    def uniform(self) -> bool:
        """Whether `of_partition` returns `code` for every partition."""

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> int:
        """The error of one partition. A group knows its owner by the id or by the name of the topic."""


class TopicIdPartition(NamedTuple):
    """A partition by id and name of its topic."""

    topic_id: bytes
    topic: str
    partition: int


class ListedGroup(NamedTuple):
    """A group in the response to ListGroups."""

    group: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC


class DescribedGroup(NamedTuple):
    """A group in the response to DescribeGroups. A classic group has a protocol, subscriptions and assignments only
    while it is Stable.
    """

    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[ClassicMemberRecord, ...] = ()


class MemberOverview(NamedTuple):
    """A member in the response to ListGroups+. `owned`: its partitions by topic name, both in order."""

    member_id: str
    owned: Mapping[str, Sequence[int]]


class GroupOverview(NamedTuple):
    """The subscription and the members of a group in the response to ListGroups+.

    Arguments:
        topics: the topics that the members read, in order.
        session_timeout_ms: the longest of the members, or that of the group; -1 = none.
    """

    topics: Sequence[str]
    session_timeout_ms: int
    members: Sequence[MemberOverview]


class Group(Protocol):
    """One group of any type. Inherit from it: what has a body may be left out.

    Attributes:
        members: the members.
    """

    __slots__ = ()

    members: Sized

    @property
    def state(self) -> Enum:
        """The state; its value is the name that Kafka's tools show."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type that ListGroups returns; None = no member has named one."""

    @property
    def generation_id(self) -> int:
        """The generation, or the group epoch of a consumer group; -1 = none."""

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self.members)

    @property
    def is_retained(self) -> bool:
        """Whether housekeeping keeps the group when it is Empty and has no offsets."""
        return False

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        member_epochs: bool = True,
    ) -> CommitValidation:
        """Whether the sender of a commit may commit.

        Arguments:
            member_id: "" = the sender is no member.
            group_instance_id: of a static member.
            generation: of the member, or its member epoch; -1 = none.
            transactional: the commit is part of a transaction (TxnOffsetCommit).
            member_epochs: the version of the request has member epochs (OffsetCommit v9).
        """

    def offsets_committed(self, member_id: str, now: Now) -> Effects:
        """A commit of a member was accepted; a group type may extend the session of the member."""
        return Effects()

    def validate_offset_fetch(self, member_id: str | None, generation: int) -> int:
        """Whether the sender of OffsetFetch may fetch; `generation` is the member epoch in a consumer group."""
        return KafkaErrorCode.NONE

    def validate_offset_delete(self) -> int:
        """Whether single offsets may be deleted: only if the broker knows which topics the members read."""
        return KafkaErrorCode.NONE

    def topics_read(self) -> Container[str]:
        """The topics that members read: their offsets do not expire and are not deleted."""

    def expire_since(self) -> int | None:
        """The wall time in ms from which the retention of offsets counts; -1 = from each commit, None = no offset
        expires now.
        """
        return -1

    def fence_owners(self, partitions: Collection[TopicIdPartition], now: Now) -> Effects:
        """Fence the owners of partitions whose offsets are rewound: they rejoin and read the new offsets."""

    def validate_delete(self) -> int:
        """NON_EMPTY_GROUP, or 0: the group may be deleted."""
        return KafkaErrorCode.NON_EMPTY_GROUP if self.members else KafkaErrorCode.NONE

    def delete(self, now: Now) -> Effects:
        """The tombstones of an empty group. The caller deletes its offsets."""

    def describe(self) -> DescribedGroup | None:
        """The group for DescribeGroups; None for a group type that DescribeGroups reports as Dead."""
        return None

    def overview(self) -> GroupOverview:
        """The group for ListGroups+."""


class GroupType(Protocol):
    """All groups of one type in a shard: a state machine of its own. Inherit from it: what has a body is optional.

    Attributes:
        name: the group type in ListGroups, in `GroupDeleted` records and as the first part of its timers' names.
        record_types: the classes of the records that `apply` takes, `GroupDeleted` excepted.
        groups: by name.
    """

    name: str
    record_types: Collection[type]
    groups: Mapping[str, Group]

    def apply(self, record: Any) -> None:
        """Apply a record of one of `record_types`, or a `GroupDeleted` of this type."""

    def starts_rebalance(self, record: object) -> bool:
        """Whether the record, which is not applied yet, begins a generation or a group epoch; for metrics."""

    def start_timers(self, now: Now) -> Iterator[Effects]:
        """The log was replayed: start timers, in steps that take well below a millisecond each."""

    def fire_timer(self, name: TimerName, now: Now) -> Effects:
        """A timer fired. The timer of a deleted group has no effects."""

    def leave(self, request: Leave, token: Token, now: Now) -> Effects:
        """LeaveGroup, which any group type serves; the result is a `Left`."""

    def ended(self) -> None:
        """The machine is dropped."""
        return

    def patterns_resolved(self, group: str, found: Mapping[str, Collection[str]], now: Now) -> Effects:
        """The result of `ResolvePatterns`: topic names by pattern."""
        return Effects()

    def patterns_failed(self, group: str) -> None:
        """`ResolvePatterns` failed; a later request asks again."""
        return

    def topics_changed(self, names: Collection[str]) -> Collection[str]:
        """Topics were created, deleted or extended; returns the groups for which `check_topics` must be called."""
        return ()

    def check_topics(self, names: Collection[str], groups: Collection[str], now: Now) -> Effects:
        """Groups check whether their assignment covers the changed topics.

        Arguments:
            names: of the topics.
            groups: those that `topics_changed` has returned, or some of them.
            now: the time.
        """
        return Effects()

    def groups_of_topic(self, topic: str) -> Collection[str]:
        """The groups that must forget a deleted topic."""
        return ()

    def topics_deleted(self, group: str, topics: Collection[str]) -> Sequence[object]:
        """The records by which a group forgets deleted topics."""
        return ()
