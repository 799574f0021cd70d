"""The state machine of one shard of `__consumer_offsets`: its groups of all types and their offsets.

The coordinator runtime drives it. It passes each record and timer to its group type, or to the offsets, and does what
concerns several parts: it deletes groups, expires offsets, and knows the groups that exist by their offsets alone
(simple groups: Empty, without a protocol type).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ZERO_UUID
from kafkalite.state.effects import Effects, Now, TimerName, Token
from kafkalite.state.groups.classic.groups import ClassicGroups
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.counts import GroupCounts
from kafkalite.state.groups.group import DescribedGroup, GroupType, ListedGroup, TopicIdPartition
from kafkalite.state.groups.member_memory import MachineMemory, MemberMemory
from kafkalite.state.groups.offsets.manager import CommitResult, OffsetManager, OffsetSettings, PartitionCommit
from kafkalite.state.groups.records import (
    CLASSIC,
    GroupDeleted,
    OffsetCommitted,
    OffsetsCommitted,
    TransactionalOffset,
)
from kafkalite.state.groups.registered.groups import RegisteredGroups
from kafkalite.state.groups.registered.settings import RegisteredSettings
from kafkalite.state.groups.registry import GroupRegistry

SIMPLE_GROUP = DescribedGroup("Empty")
"""A group that exists by its offsets alone."""


class GroupsDeleted(NamedTuple):
    """The result of DeleteGroups: an error per group, in the order of the request."""

    errors: tuple[int, ...]


class GroupMachine:
    """All groups of a shard.

    Arguments:
        classic, offsets: the broker's settings; those of classic groups bound sessions and size of registered groups.
        consumers: the consumer groups of the shard, still empty.
        counts: counts what happens after `start_timers`.
        memory: of the members of all shards of the broker, with its limit.

    Attributes:
        registry: finds groups by name; serves requests that create or convert groups.
        classic, consumers, registered: the groups of each type; they serve the other requests of members.
        offsets: serves the requests for offsets.
    """

    def __init__(
        self,
        classic: ClassicSettings,
        offsets: OffsetSettings,
        consumers: ConsumerGroups,
        counts: GroupCounts | None = None,
        memory: MemberMemory | None = None,
    ) -> None:
        self.classic = ClassicGroups(classic, MachineMemory(memory))
        self.consumers = consumers
        consumers.steps.memory = self.classic.memory
        registered = RegisteredSettings(
            classic.session_min_ms, classic.session_max_ms, classic.members_max, consumers.steps.embedded
        )
        self.registered = RegisteredGroups(registered, consumers.steps.topics, self)
        self.registry = GroupRegistry(self.classic, consumers, self.registered)
        self.offsets = OffsetManager(offsets, self.registry)
        self._counts = counts or GroupCounts()
        self._is_loaded = False
        types = self.registry.types.values()
        self._type_of: dict[type, GroupType] = {record: each for each in types for record in each.record_types}

    def apply(self, record: Any) -> None:
        """Apply a record, in replay and in normal operation."""
        record_type = type(record)
        if record_type is OffsetCommitted:  # nearly all records of a replay
            self._counts.commits += self._is_loaded
            self.offsets.put(record)
            return
        if record_type is OffsetsCommitted:  # nearly all records of normal operation
            self._counts.commits += len(record.offsets)
            self.offsets.put_all(record)
            return
        group_type = self._type_of.get(record_type)
        if group_type is None and record_type is GroupDeleted:
            group_type = self.registry.types[record.group_type]
        if group_type is None:
            self._counts.commits += self._is_loaded and record_type is TransactionalOffset
            self.offsets.apply(record)
            return
        if self._is_loaded and group_type.starts_rebalance(record):
            self._counts.rebalances += 1
        group_type.apply(record)

    def start_timers(self, now: Now) -> Iterator[Effects]:
        """The log was replayed: start timers, in steps that take well below a millisecond each."""
        self._is_loaded = True
        for group_type in self.registry.types.values():
            yield from group_type.start_timers(now)

    def fire_timer(self, name: TimerName, now: Now) -> Effects:
        """A timer fired; its name begins with the group type."""
        return self.registry.types[name[0]].fire_timer(name, now)

    def ended(self) -> None:
        """Release what the machine holds: it is dropped."""
        for group_type in self.registry.types.values():
            group_type.ended()

    def list_groups(self) -> Iterator[ListedGroup]:
        """All groups of the shard, in no order; commands may run between two of them."""
        for group_type in self.registry.types.values():
            for name, group in list(group_type.groups.items()):
                yield ListedGroup(name, group.protocol_type or "", group.state.value, group_type.name)
        for name in list(self.offsets.groups()):
            if name not in self.registry:
                yield ListedGroup(name, "", SIMPLE_GROUP.state)

    def describe(self, name: str) -> DescribedGroup | None:
        """A group for DescribeGroups; None = there is no such group, or its type is shown by another request."""
        group = self.registry.get(name)
        if group is not None:
            return group.describe()
        return SIMPLE_GROUP if name in self.offsets else None

    def rewind(self, name: str, partitions: Sequence[PartitionCommit], token: Token, now: Now) -> Effects:
        """Set the offsets of a group, also while it has members; the result is a `CommitResult`.

        Owners of these partitions are fenced: they drop their partitions as lost, rejoin and read the new offsets.
        Their earlier commits are rejected. All records are one batch. Errors: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND.
        """
        effects = Effects()
        error = 0 if name else KafkaErrorCode.INVALID_GROUP_ID
        if not error and name not in self.registry and name not in self.offsets:
            error = KafkaErrorCode.GROUP_ID_NOT_FOUND
        if not error and partitions:
            group = self.registry.get(name)
            if group is not None:
                fenced = [TopicIdPartition(each.topic_id, each.topic, each.partition) for each in partitions]
                effects.extend(group.fence_owners(fenced, now))
            effects.records += self.offsets.rewind(name, partitions, now)
        effects.answer(token, CommitResult(error, () if error else (0,) * len(partitions)))
        return effects

    def delete_groups(self, names: Sequence[str], token: Token, now: Now) -> Effects:
        """Delete groups without members, with all their offsets; the result is `GroupsDeleted`.

        The empty name is valid: commits may use it. Errors per group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        effects = Effects()
        errors = []
        gone: set[str] = set()
        for name in names:
            error = KafkaErrorCode.GROUP_ID_NOT_FOUND if name in gone else self._validate_delete(name)
            errors.append(int(error))
            if not error:
                gone.add(name)
                effects.records += self.offsets.delete_all(name)
                self._delete(name, effects, now)
        effects.answer(token, GroupsDeleted(tuple(errors)))
        return effects

    def __contains__(self, name: str) -> bool:
        """Whether there is a group with this name, or offsets without one."""
        return name in self.registry or name in self.offsets

    def names(self) -> list[str]:
        """The names of all groups, for `expire_offsets`."""
        return self.registry.names() + self.simple()

    def count(self) -> int:
        """The approximate number of groups: one with offsets counts twice."""
        return self.registry.count() + self.offsets.group_count()

    def simple(self) -> list[str]:
        """The groups that exist by their offsets alone."""
        return [name for name in self.offsets.groups() if name not in self.registry]

    def expire_offsets(self, names: Sequence[str], now: Now) -> Effects:
        """Expire the offsets of these groups; an Empty group without offsets is deleted.

        Retained groups stay: a classic group with a reserved member id, and a registered group that was created.
        """
        effects = Effects()
        for name in names:
            group = self.registry.get(name)
            tombstones, nothing_left = self.offsets.expire(name, now.wall_ms)
            effects.records += tombstones
            if group is not None and nothing_left and not group.is_retained and not group.validate_delete():
                effects.extend(group.delete(now))
        return effects

    def readers(self, topic: str) -> list[str]:
        """The groups with offsets or other data of a topic, which are deleted with it."""
        readers = dict.fromkeys(self.offsets.readers(topic))
        for group_type in self.registry.types.values():
            readers.update(dict.fromkeys(group_type.groups_of_topic(topic)))
        return list(readers)

    def topics_deleted(self, group: str, topics: Sequence[str], at_most: int | None = None) -> Effects:
        """Delete the data of deleted topics in one group; topics of the same names may have been created since.

        Arguments:
            at_most: the largest number of offsets to delete; another command deletes the rest.
        """
        effects = Effects()
        for topic in topics:
            left = None if at_most is None else at_most - len(effects.records)
            if left == 0:
                break
            created = self.consumers.steps.topics.by_name(topic)
            but = ZERO_UUID if created is None else created.topic_id
            effects.records += self.offsets.topic_deleted(group, topic, left, but)
        for group_type in self.registry.types.values():
            effects.records += group_type.topics_deleted(group, topics)
        return effects

    def patterns_resolved(self, name: str, found: Mapping[str, Collection[str]], now: Now) -> Effects:
        """The result of `ResolvePatterns`: names of topics by pattern, in the metadata of `version`."""
        group_type = self.registry.type_of(name)
        return Effects() if group_type is None else group_type.patterns_resolved(name, found, now)

    def patterns_failed(self, name: str) -> None:
        """`ResolvePatterns` failed; a later request asks again."""
        for group_type in self.registry.types.values():
            group_type.patterns_failed(name)

    def committed_offset(self, group: str, topic: str, partition: int) -> int:
        """`groups/registered/settings.CommittedOffsets`: the committed offset of a partition, -1 = none."""
        return self.offsets.committed_offset(group, topic, partition)

    def delete_all(self, group: str) -> Sequence[object]:
        """`groups/registered/settings.CommittedOffsets`: tombstones for all offsets of a group."""
        return self.offsets.delete_all(group)

    def _validate_delete(self, name: str) -> int:
        group = self.registry.get(name)
        if group is not None:
            return group.validate_delete()
        return KafkaErrorCode.NONE if name in self.offsets else KafkaErrorCode.GROUP_ID_NOT_FOUND

    def _delete(self, name: str, effects: Effects, now: Now) -> None:
        group = self.registry.get(name)
        if group is None:
            effects.records.append(GroupDeleted(name, CLASSIC))
        else:
            effects.extend(group.delete(now))
