"""Copies the offsets of a group from ZooKeeper to the broker, or back.

1. The larger offset is never lowered without the caller's choice: consumers with dual commit use the larger one, as
   Kafka's do, so a target ahead of its source is a conflict.
2. Nothing is written while a reason to refuse is known. What can be known of registered consumers: their registration
   does not say where they commit. A consumer commits to ZooKeeper alone if it has written the offset of a partition in
   ZooKeeper since it owns the partition, and the broker, which is read afterwards, has a smaller one or none: with dual
   commit the broker is first. Members of a broker's group of the same name commit to the broker alone. Nothing else is
   known, so the caller has to confirm that registered consumers commit to both.
3. A copy is idempotent: what is equal is not written again, so an interrupted one is repeated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.znodes import consumers
from kafkalite.errors import GroupIdNotFoundError, KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite_sdk.admin import Admin, Committed
from kafkalite_sdk.zk.group_changes import GroupOffsets, RegisteredConsumersError, set_offsets
from kafkalite_sdk.zk.groups import ZooKeeperGroup, ZooKeeperGroups
from kafkalite_sdk.zk.offsets.offsets_topic import has_offsets_topic

NAMED_MAX = 5  # partitions of one reason


class Storage(StrEnum):
    """Where offsets are stored."""

    ZOOKEEPER = "zookeeper"
    BROKER = "broker"


class Step(StrEnum):
    """What a migration does with a partition.

    COPY: the offset of the source is written to the target. EQUAL: both have the same. AHEAD: the target has a larger
    offset. NO_SOURCE: only the target has an offset, which is kept.
    """

    COPY = "copy"
    EQUAL = "equal"
    AHEAD = "ahead"
    NO_SOURCE = "no source"


class Confirmed(NamedTuple):
    """What the operator confirms.

    Attributes:
        commit_to_both: all registered consumers use dual commit.
        if_ahead: "keep" or "overwrite" offsets of the target that are larger than those of the source; "" = refuse.
    """

    commit_to_both: bool = False
    if_ahead: str = ""


class PartitionOffsets(NamedTuple):
    """The offsets of one partition, None = none, and its owner in ZooKeeper, "" = none."""

    zookeeper: int | None
    broker: int | None
    owner: str

    @property
    def difference(self) -> int | None:
        """The broker's offset minus that of ZooKeeper."""
        return None if self.zookeeper is None or self.broker is None else self.broker - self.zookeeper


@dataclass(frozen=True)
class MigrationPlan:
    """Both storages of a group, as they were read, ZooKeeper first.

    Attributes:
        group: as the tree has it.
        to: the target.
        committed: the broker's offsets.
        members: member ids of the broker's group.
    """

    group: ZooKeeperGroup
    to: Storage
    committed: Mapping[TopicPartition, Committed]
    members: tuple[str, ...]

    @property
    def partitions(self) -> dict[TopicPartition, PartitionOffsets]:
        """Both offsets of all partitions with an offset or an owner, in order."""
        group = self.group
        return {each: self._offsets(each) for each in sorted({*group.offsets, *self.committed, *group.owners})}

    def _offsets(self, partition: TopicPartition) -> PartitionOffsets:
        stored, committed = self.group.offsets.get(partition), self.committed.get(partition)
        owner = self.group.owners.get(partition)
        return PartitionOffsets(
            None if stored is None else stored.offset,
            None if committed is None else committed.offset,
            "" if owner is None else str(owner.stream),
        )

    def source_and_target(self, offsets: PartitionOffsets) -> tuple[int | None, int | None]:
        """The offset of the source, and that of the target."""
        both = (offsets.zookeeper, offsets.broker)
        return both if self.to is Storage.BROKER else (both[1], both[0])

    def step(self, offsets: PartitionOffsets) -> Step:
        """What is done with a partition."""
        source, target = self.source_and_target(offsets)
        if source is None:
            return Step.NO_SOURCE
        if target is None or target < source:
            return Step.COPY
        return Step.EQUAL if target == source else Step.AHEAD

    def copies(self, confirmed: Confirmed) -> dict[TopicPartition, int]:
        """The offsets that are written to the target.

        A larger offset of a partition with an owner is kept: its consumer has committed it meanwhile.
        """
        found = {}
        for partition, offsets in self.partitions.items():
            source, _ = self.source_and_target(offsets)
            step = self.step(offsets)
            lowered = step is Step.AHEAD and confirmed.if_ahead == "overwrite" and not offsets.owner
            if source is not None and (step is Step.COPY or lowered):
                found[partition] = source
        return found

    def refusals(self, confirmed: Confirmed) -> list[str]:
        """The reasons why nothing is copied, each with the next step; none = it is possible."""
        return [*self._source_problems(), *self._consumers(confirmed), *self._conflicts(confirmed)]

    def _source_problems(self) -> Iterator[str]:
        if self.to is Storage.BROKER:
            for path, reason in self.group.problems.items():
                if path.startswith(consumers.offsets_path(self.group.group)):
                    yield f"{path}: {reason}; set it with `kafkalite group reset --zookeeper`, or delete the node"

    def _consumers(self, confirmed: Confirmed) -> Iterator[str]:
        if self.members:
            yield (
                f"the broker's group has {len(self.members)} member(s), which commit to the broker alone: "
                f"{first_of(self.members)}; stop them first"
            )
        alone = self.zookeeper_alone()
        if alone:
            shown = first_of([f"{each} ({self.group.owners[each].stream})" for each in alone])
            yield (
                f"registered consumers commit to ZooKeeper alone: {shown}; restart them with offsets.storage=kafka and "
                "dual.commit.enabled=true, or stop them"
            )
        elif self.group.consumers and not confirmed.commit_to_both:
            yield (
                f"{len(self.group.consumers)} consumer(s) are registered, and ZooKeeper does not say where they "
                f"commit: {first_of([*self.group.consumers])}; stop them, or confirm that each has "
                "offsets.storage=kafka and dual.commit.enabled=true: --consumers-commit-to-both"
            )

    def _conflicts(self, confirmed: Confirmed) -> Iterator[str]:
        ahead = [
            f"{partition} ({' > '.join(str(each) for each in reversed(self.source_and_target(offsets)))})"
            for partition, offsets in self.partitions.items()
            if self.step(offsets) is Step.AHEAD and not (offsets.owner and confirmed.commit_to_both)
        ]
        if ahead and not confirmed.if_ahead:
            yield (
                f"{self.to} has larger offsets of {len(ahead)} partition(s): {first_of(ahead)}; keep them, as "
                "consumers with dual commit do (--if-ahead keep), or use those of the source (--if-ahead overwrite)"
            )

    def zookeeper_alone(self) -> list[TopicPartition]:
        """The partitions whose owners are known to commit to ZooKeeper alone, in a migration to the broker."""
        if self.to is not Storage.BROKER:
            return []
        return [partition for partition, offsets in self.partitions.items() if self._is_alone(partition, offsets)]

    def _is_alone(self, partition: TopicPartition, offsets: PartitionOffsets) -> bool:
        owner, stored = self.group.owners.get(partition), self.group.offsets.get(partition)
        if owner is None or stored is None or owner.stream.consumer_id not in self.group.consumers:
            return False
        return stored.mzxid > owner.czxid and (offsets.broker is None or offsets.broker < stored.offset)


class Migrated(NamedTuple):
    """The result of a copy.

    Attributes:
        copied: offsets that the target has now.
        missing: partitions that do not exist any more; their offsets are in the source alone.
        differing: partitions whose offset in the target is another one when it is read back, or smaller than that of
            ZooKeeper: a repetition copies them.
    """

    copied: Mapping[TopicPartition, int]
    missing: tuple[TopicPartition, ...] = ()
    differing: tuple[TopicPartition, ...] = ()


class Migration:
    """Migrates one group.

    Arguments:
        groups: of the tree.
        admin: of the cluster whose brokers are registered in the same tree.
        group: its id.
        to: the target.

    Methods raise CoordinationError, TimeoutError, KafkaError, ValueError: the tree cannot have such a group.
    """

    def __init__(self, groups: ZooKeeperGroups, admin: Admin, group: str, to: Storage) -> None:
        self._groups = groups
        self._admin = admin
        self._group = group
        self._to = to

    async def plan(self) -> MigrationPlan:
        """Read both storages."""
        try:
            found = await self._groups.read(self._group)
        except NoNodeError:
            found = ZooKeeperGroup(self._group, {}, {}, {}, {}, (), {})
        if not await has_offsets_topic(self._groups, self._admin):
            return MigrationPlan(found, self._to, {}, ())
        outcomes = await self._admin.group_offsets.list(self._group)
        return MigrationPlan(found, self._to, outcomes[self._group], await self._members())

    async def copy(self, plan: MigrationPlan, confirmed: Confirmed) -> Migrated:
        """Write the offsets of the source to the target, and read them back.

        Arguments:
            plan: without a reason to refuse.
            confirmed: by the operator.

        Raises GroupChangedError, RegisteredConsumersError: consumers came meanwhile.
        """
        copies = plan.copies(confirmed)
        missing: tuple[TopicPartition, ...] = ()
        if self._to is Storage.BROKER:
            missing = await self._commit(copies)
        elif copies:
            wanted = GroupOffsets(self._group, copies, plan.group.offset_versions)
            await set_offsets(self._groups, [wanted], registered=confirmed.commit_to_both)
        copied = {each: offset for each, offset in copies.items() if each not in missing}
        return Migrated(copied, missing, await self._differing(copied, confirmed))

    async def _commit(self, copies: Mapping[TopicPartition, int]) -> tuple[TopicPartition, ...]:
        """Commit to the broker; returns the partitions that do not exist."""
        if not copies:
            return ()
        outcomes = await self._admin.group_offsets.alter(self._group, copies)
        unknown = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for error in outcomes.errors.values():
            if error.code != unknown:
                raise error
        return tuple(outcomes.errors)

    async def _differing(
        self, copied: Mapping[TopicPartition, int], confirmed: Confirmed
    ) -> tuple[TopicPartition, ...]:
        """Read both storages again; registered consumers may have committed larger offsets since.

        A commit to the broker has no condition, so it may have replaced a larger offset that a consumer has committed
        meanwhile: then ZooKeeper has the larger one, unless the consumer is between its two commits.
        """
        if not copied:
            return ()
        plan = await self.plan()
        if plan.group.consumers and not confirmed.commit_to_both:
            raise RegisteredConsumersError(self._group)
        found = plan.partitions
        return tuple(each for each, offset in copied.items() if self._differs(plan, found.get(each), offset, confirmed))

    def _differs(self, plan: MigrationPlan, found: PartitionOffsets | None, copied: int, confirmed: Confirmed) -> bool:
        if found is None:
            return True
        source, target = plan.source_and_target(found)
        if target is None or target < copied:
            return True
        replaced = self._to is Storage.BROKER and source is not None and source > target
        return replaced or (target > copied and not confirmed.commit_to_both)

    async def _members(self) -> tuple[str, ...]:
        try:
            described = (await self._admin.groups.describe(self._group))[self._group]
        except GroupIdNotFoundError:
            return ()
        return tuple(each.member_id for each in described.members)


def first_of(texts: list[str] | tuple[str, ...]) -> str:
    """The first texts, and the number of the others."""
    more = len(texts) - NAMED_MAX
    return ", ".join(texts[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
