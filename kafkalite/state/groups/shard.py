"""The groups of one shard of `__consumer_offsets`, whole: classic, consumer and registered ones, and all offsets.

The machine that the runtime drives. It gives each record, timer and command to the part that it belongs to, and does
what concerns several parts: deleting groups, expiring offsets, and groups that exist by their offsets alone (simple
groups: Empty, without a protocol type). Pure, as its parts are.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ZERO_UUID
from kafkalite.state.effects import Effects, Now, TimerName, Token
from kafkalite.state.groups.classic.groups import ClassicGroups
from kafkalite.state.groups.classic.requests import Described, ListedGroup
from kafkalite.state.groups.classic.settings import CONSUMER_PROTOCOL, ClassicSettings
from kafkalite.state.groups.classic.states import ClassicState
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.counts import GroupCounts
from kafkalite.state.groups.member_memory import MemberMemory, ShardMemory
from kafkalite.state.groups.offsets.manager import CommitResult, OffsetManager, OffsetSettings, PartitionCommit
from kafkalite.state.groups.records import (
    CLASSIC,
    CONSUMER,
    REGISTERED,
    ClassicGroupMetadata,
    ConsumerGroupMetadata,
    GroupDefinition,
    GroupDeleted,
    GroupGeneration,
    GroupGenerationDeleted,
    OffsetCommitted,
    OffsetDeleted,
    OffsetsCommitted,
    RewindMark,
    RewindMarkDeleted,
    StaticClaim,
    StaticClaimDeleted,
    TransactionalOffset,
    TransactionEnded,
)
from kafkalite.state.groups.registered.core import RegisteredSettings
from kafkalite.state.groups.registered.groups import RegisteredGroups
from kafkalite.state.groups.registry import GroupRegistry

__all__ = ["GroupShard", "GroupsDeleted"]

OFFSET_RECORDS = (OffsetCommitted, OffsetDeleted, TransactionalOffset, TransactionEnded)
REGISTERED_RECORDS = (
    GroupDefinition,
    GroupGeneration,
    GroupGenerationDeleted,
    StaticClaim,
    StaticClaimDeleted,
    RewindMark,
    RewindMarkDeleted,
)


class GroupsDeleted(NamedTuple):
    """The answer to DeleteGroups: an error per group, in the order of the request."""

    errors: tuple[int, ...]


class GroupShard:
    """What may found a group, or is asked of groups of several kinds, goes to `kinds`, other requests of members to
    `classic` and `registered`, those for offsets to `offsets`; the rest is here.

    Arguments:
        classic, offsets: the broker's settings; those for classic groups bound sessions and size of registered ones.
        consumers: the consumer groups of the shard, still empty.
        counts: grow with what happens from `loaded` on.
        memory: of the members of all shards of the broker, with its limit.
    """

    def __init__(
        self,
        classic: ClassicSettings,
        offsets: OffsetSettings,
        consumers: ConsumerGroups,
        counts: GroupCounts | None = None,
        memory: MemberMemory | None = None,
    ) -> None:
        self.classic = ClassicGroups(classic, ShardMemory(memory))
        self.consumers = consumers
        consumers.memory = self.classic.memory
        bounds = RegisteredSettings(classic.session_min_ms, classic.session_max_ms, classic.members_max)
        self.registered = RegisteredGroups(bounds, consumers.topics, self)
        self.registry = GroupRegistry(self.classic, consumers, self.registered)
        self.offsets = OffsetManager(offsets, self.registry)
        self._counts = counts or GroupCounts()
        self._is_loaded = False

    def apply(self, record: object) -> None:
        """Take a record of the log, at replay and in life."""
        if type(record) is OffsetCommitted:  # nearly all are at replay
            self._counts.commits += self._is_loaded
            self.offsets.put(record)
            return
        if type(record) is OffsetsCommitted:  # nearly all are in life
            self._counts.commits += len(record.offsets)
            self.offsets.put_all(record)
            return
        if self._is_loaded:
            self._count(record)
        if isinstance(record, OFFSET_RECORDS):
            self.offsets.apply(record)
        elif isinstance(record, ClassicGroupMetadata) or (isinstance(record, GroupDeleted) and record.kind == CLASSIC):
            self.classic.apply(record)
        elif isinstance(record, REGISTERED_RECORDS) or (isinstance(record, GroupDeleted) and record.kind == REGISTERED):
            self.registered.apply(record)
        else:
            self.consumers.apply(record)

    def loaded(self, now: Now) -> Iterator[Effects]:
        """The log has been replayed: what follows, in shares that take well below a millisecond each."""
        self._is_loaded = True
        yield from self.classic.loaded(now)
        yield from self.consumers.loaded(now)
        yield from self.registered.loaded(now)

    def expired(self, name: TimerName, now: Now) -> Effects:
        """A timer has run out; its name begins with the kind of group."""
        if name[0] == REGISTERED:
            return self.registered.expired(name, now)
        return self.classic.expired(name, now) if name[0] == CLASSIC else self.consumers.expired(name, now)

    def ended(self) -> None:
        """The life of this machine is over."""
        self.classic.ended()

    def listed(self) -> Iterator[ListedGroup]:
        """All groups of the shard, in no order; commands may run between two of them."""
        yield from self.classic.listed()
        for name, group in list(self.consumers.groups.items()):
            yield ListedGroup(name, CONSUMER_PROTOCOL, group.state.value, CONSUMER)
        for name, registered in list(self.registered.groups.items()):
            yield ListedGroup(name, CONSUMER_PROTOCOL, registered.state.value, REGISTERED)
        for name in list(self.offsets.groups()):
            if name not in self.registry:
                yield ListedGroup(name, "", ClassicState.EMPTY.value)

    def describe(self, name: str) -> Described | None:
        """What DescribeGroups shows of a classic group; None when there is none (to clients: state Dead). A registered
        group is described by `registered`.
        """
        described = self.classic.describe(name)
        if described is None and name in self.offsets and name not in self.registry:
            return Described(ClassicState.EMPTY.value)
        return described

    def rewind(self, name: str, partitions: Sequence[PartitionCommit], token: Token, now: Now) -> Effects:
        """Set where a group goes on reading, also while it has members; answers `CommitsDone`.

        Owners of these partitions are fenced: they drop what they have as lost, join anew and read the new offset.
        What they commit of old is refused. All of it is one batch. Errors: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND.
        """
        effects = Effects()
        error = 0 if name else KafkaErrorCode.INVALID_GROUP_ID
        if not error and name not in self.registry and name not in self.offsets:
            error = KafkaErrorCode.GROUP_ID_NOT_FOUND
        if not error and partitions:
            effects.extend(self.registry.fence_owners(name, partitions, now))
            effects.records += self.offsets.rewind(name, partitions, now)
        effects.answer(token, CommitResult(error, () if error else (0,) * len(partitions)))
        return effects

    def delete_groups(self, names: Sequence[str], token: Token, now: Now) -> Effects:
        """Delete groups without members, with all their offsets; answers `GroupsDeleted`.

        The empty name is one, too: commits may stand under it. Errors per group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        effects = Effects()
        errors = []
        gone: set[str] = set()
        for name in names:
            error = KafkaErrorCode.GROUP_ID_NOT_FOUND if name in gone else self._delete_refusal(name)
            errors.append(int(error))
            if not error:
                gone.add(name)
                effects.records += self.offsets.delete_all(name)
                self._delete(name, effects, now)
        effects.answer(token, GroupsDeleted(tuple(errors)))
        return effects

    def names(self) -> list[str]:
        """Every group there is: what `sweep` goes over, some at a time."""
        return self.registry.names() + self.simple()

    def count(self) -> int:
        """How many groups there are, about: one with offsets counts twice."""
        return self.registry.count() + self.offsets.group_count()

    def simple(self) -> list[str]:
        """The groups that exist by their offsets alone."""
        return [name for name in self.offsets.groups() if name not in self.registry]

    def sweep(self, names: Sequence[str], now: Now) -> Effects:
        """Expire the offsets of these groups; an Empty group that has none left goes with them.

        A group of which an id was given out, but not yet used, stays: somebody is about to join. So does a registered
        one that was created.
        """
        effects = Effects()
        for name in names:
            tombstones, nothing_left = self.offsets.expire(name, now.wall_ms)
            effects.records += tombstones
            group = self.classic.get(name)
            awaited = group is not None and bool(group.members.reserved_ids)
            kept = awaited or self.registered.is_defined(name)
            if nothing_left and not kept and not self.registry.validate_delete(name):
                self._delete(name, effects, now)
        return effects

    def readers(self, topic: str) -> list[str]:
        """The groups that have to forget a topic when it is deleted: by offsets, or by what registered groups keep."""
        readers, others = self.offsets.readers(topic), self.registered.readers(topic)
        return list(dict.fromkeys(readers + others)) if others else readers

    def topics_deleted(self, group: str, topics: Sequence[str], at_most: int | None = None) -> Effects:
        """Forget topics that are gone, in one group; topics of the same names may have been created meanwhile.

        Arguments:
            at_most: how many offsets to delete; where there are more, another command goes on.
        """
        effects = Effects()
        for topic in topics:
            left = None if at_most is None else at_most - len(effects.records)
            if left == 0:
                break
            created = self.consumers.topics.by_name(topic)
            but = ZERO_UUID if created is None else created.topic_id
            effects.records += self.offsets.topic_deleted(group, topic, left, but)
        effects.records += self.registered.topics_deleted(group, topics)
        return effects

    def patterns_resolved(self, name: str, found: Mapping[str, Collection[str]], version: int, now: Now) -> Effects:
        """The answer to `ResolvePatterns`: names of topics by pattern, in the metadata of `version`."""
        if name in self.registered:
            return self.registered.patterns_resolved(name, found, now)
        return self.consumers.patterns_resolved(name, found, version, now)

    def patterns_failed(self, name: str) -> None:
        """The question could not be answered; it is asked again."""
        self.registered.patterns_failed(name)
        self.consumers.patterns_failed(name)

    def committed_offset(self, group: str, topic: str, partition: int) -> int:
        """`groups/registered/core.Committed`: the offset, -1 = nothing is committed."""
        return self.offsets.committed_offset(group, topic, partition)

    def delete_all(self, group: str) -> Sequence[object]:
        """`groups/registered/core.Committed`: tombstones for all offsets of a group."""
        return self.offsets.delete_all(group)

    def _count(self, record: object) -> None:
        """A record that is about to be applied."""
        if isinstance(record, TransactionalOffset):
            self._counts.commits += 1
        elif isinstance(record, ConsumerGroupMetadata):
            self._counts.rebalances += 1
        elif isinstance(record, GroupGeneration) and record.members:
            known = self.registered.groups.get(record.group)
            last = None if known is None else known.stored
            self._counts.rebalances += last is None or last.generation != record.generation
        elif isinstance(record, ClassicGroupMetadata) and record.members:
            group = self.classic.get(record.group)
            before = None if group is None else group.stored
            self._counts.rebalances += before is None or before.generation != record.generation

    def _delete_refusal(self, name: str) -> int:
        simple = name in self.offsets and name not in self.registry
        return KafkaErrorCode.NONE if simple else self.registry.validate_delete(name)

    def _delete(self, name: str, effects: Effects, now: Now) -> None:
        if name in self.registry:
            effects.extend(self.registry.delete(name, now))
        else:
            effects.records.append(GroupDeleted(name, CLASSIC))
