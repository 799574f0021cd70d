"""The committed offsets of the groups of a shard: commits, fetches and deletes them; `expiration` says what expires.

Pure; groups validate requests (`groups/group.Group`). Invariants:
1. Offsets change in `apply` alone, in replay and in normal operation.
2. An offset committed in a transaction is pending until the marker; only a fetch with `require_stable` shows that. Of
   two commits the later one in the log is valid, also if its transaction ends first.
3. A group with offsets and without members exists: it is Empty and has no protocol type.
4. Memory: one tuple per offset; names and topic ids are shared (at most 400 bytes per offset, measured by a test).
Source: OffsetMetadataManager.java of Apache Kafka, KIP-211, KIP-447.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import NamedTuple, Protocol

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.group import CommitValidation, Group
from kafkalite.state.groups.groups_by_topic import NO_TOPICS
from kafkalite.state.groups.offsets.expiration import expired_offsets
from kafkalite.state.groups.offsets.pending import PendingOffsets
from kafkalite.state.groups.offsets.store import OffsetStore, StoredOffset
from kafkalite.state.groups.records import (
    OffsetCommitted,
    OffsetDeleted,
    OffsetsCommitted,
    PackedOffsets,
    TransactionalOffset,
    TransactionEnded,
)

OffsetRecord = OffsetCommitted | OffsetsCommitted | OffsetDeleted | TransactionalOffset | TransactionEnded
NO_OFFSET = -1
INT64_MAX = 2**63 - 1
FEW = 256  # partitions: results of larger commits are not cached
NO_PARTITIONS: Mapping[int, StoredOffset] = {}
# Without the Python frame of `OffsetCommitted(...)`: this is done for every partition of every commit.
_commit: Callable[[tuple[str, str, int, int, int, str, int, int, bytes]], OffsetCommitted] = partial(
    tuple.__new__, OffsetCommitted
)
_packed: Callable[[tuple[str, PackedOffsets, int]], OffsetsCommitted] = partial(tuple.__new__, OffsetsCommitted)


@dataclass(frozen=True, slots=True)
class OffsetSettings:
    """`offsets.retention.minutes` in ms, and `offset.metadata.max.bytes`."""

    retention_ms: int = 7 * 24 * 3_600_000
    metadata_max: int = 4_096


class GroupLookup(Protocol):
    """The groups of the shard by name."""

    def get(self, name: str, /) -> Group | None:
        """The group, None = there is none."""


class NoGroupValidation(NamedTuple):
    """The validation of a commit to a group that does not exist: the same for all partitions."""

    code: int

    @property
    def uniform(self) -> bool:
        return True

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> int:
        return self.code


SIMPLE_COMMIT = NoGroupValidation(KafkaErrorCode.NONE)
NO_SUCH_GROUP = NoGroupValidation(KafkaErrorCode.GROUP_ID_NOT_FOUND)


class PartitionCommit(NamedTuple):
    """One partition of a commit; `metadata` None is stored as "", a topic id of zeros is not known."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: bytes = ZERO_UUID


class Commit(NamedTuple):
    """An OffsetCommit or TxnOffsetCommit request.

    Arguments:
        generation: of the member (classic) or its epoch (KIP-848), -1 = the sender is no member.
        retention_ms: how long to keep the offsets (requests up to version 4), -1 = the setting of the broker.
        producer_id: -1 = not in a transaction.
        packed: replaces `partitions` in a commit without a retention time and outside of transactions.
        member_epochs: the version of the request has member epochs (OffsetCommit v9).
    """

    group: str
    partitions: Sequence[PartitionCommit] = ()
    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    retention_ms: int = -1
    producer_id: int = -1
    packed: PackedOffsets | None = None
    member_epochs: bool = True


class CommitResult(NamedTuple):
    """The answer to a commit: an error for all, or one per partition in the order of the request."""

    error: int = 0
    errors: tuple[int, ...] = ()


class TopicFetch(NamedTuple):
    """The partitions of a topic whose offsets are fetched."""

    topic: str
    partitions: Sequence[int]
    topic_id: bytes = ZERO_UUID


class FetchedOffset(NamedTuple):
    """The committed offset of a partition; offset -1 = none."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: int = 0
    topic_id: bytes = ZERO_UUID


class OffsetDeleteResult(NamedTuple):
    """The answer to OffsetDelete: an error for all, or one per partition in the order of the request."""

    error: int = 0
    errors: tuple[int, ...] = ()


class OffsetManager:
    """The committed offsets of one shard.

    Arguments:
        settings: limits and retention.
        groups: the groups of the shard.
    """

    def __init__(self, settings: OffsetSettings, groups: GroupLookup) -> None:
        self.settings = settings
        self._groups = groups
        self._store = OffsetStore()
        self._pending = PendingOffsets()

    def __contains__(self, group: str) -> bool:
        return group in self._store or bool(self._pending.partitions(group))

    def __len__(self) -> int:
        """The number of committed offsets."""
        return len(self._store)

    def group_count(self) -> int:
        """The number of groups with committed offsets."""
        return self._store.group_count()

    def groups(self) -> Iterator[str]:
        """The groups that have committed offsets."""
        return iter(self._store)

    # requests

    def commit(self, request: Commit, token: Token, now: Now) -> Effects:
        """Commit offsets; the result is a `CommitResult`. The records of a request are one batch.

        Errors: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, those of `Group.validate_offset_commit`; per partition
        OFFSET_METADATA_TOO_LARGE.
        """
        effects = Effects()
        group = self._groups.get(request.group)
        if group is None:
            check: CommitValidation = SIMPLE_COMMIT if request.generation < 0 else NO_SUCH_GROUP
        else:
            check = group.validate_offset_commit(
                request.member_id,
                request.group_instance_id,
                request.generation,
                transactional=request.producer_id >= 0,
                member_epochs=request.member_epochs,
            )
        if (check.code or request.producer_id >= 0) and (error := self._commit_refusal(request, check.code)):
            effects.answer(token, CommitResult(error))
            return effects
        if group is not None and request.producer_id < 0 and request.member_id:
            effects.extend(group.offsets_committed(request.member_id, now))
        packed = request.packed
        if packed is not None:
            plain = len(packed) > 0 and packed.metadata_longest <= self.settings.metadata_max
            if plain and (check.uniform or _all_accepted(packed, check)):
                effects.records.append(_packed((request.group, packed, now.wall_ms)))
                effects.answer(token, _accepted(len(packed)))
                return effects
            request = request._replace(partitions=packed.partitions(PartitionCommit))
        errors = tuple(self._records_of(request, check, now, effects.records))
        effects.answer(token, CommitResult(errors=errors))
        return effects

    def _records_of(self, request: Commit, check: CommitValidation, now: Now, records: list[object]) -> Iterator[int]:
        """Yield the error of each partition; a partition without an error becomes a record."""
        group, wall_ms, metadata_max, validate = (
            request.group,
            now.wall_ms,
            self.settings.metadata_max,
            check.of_partition,
        )
        expires_ms = -1 if request.retention_ms == -1 else min(wall_ms + request.retention_ms, INT64_MAX)
        for topic, partition, offset, epoch, metadata, topic_id in request.partitions:
            if metadata is not None and len(metadata) > metadata_max:
                yield int(KafkaErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            error = validate(topic_id, partition, topic)
            if not error:
                commit = _commit(
                    (group, topic, partition, offset, epoch, metadata or "", wall_ms, expires_ms, topic_id)
                )
                records.append(commit if request.producer_id < 0 else TransactionalOffset(request.producer_id, commit))
            yield int(error)

    def rewind(self, group: str, partitions: Sequence[PartitionCommit], now: Now) -> list[OffsetCommitted]:
        """The records that set offsets, also while members read; pending offsets of the partitions become void."""
        return [
            OffsetCommitted(
                group, part.topic, part.partition, part.offset, part.leader_epoch, "", now.wall_ms, -1, part.topic_id
            )
            for part in partitions
        ]

    def validate_fetch(self, group: str, member_id: str | None, member_epoch: int) -> int:
        """Whether the sender of OffsetFetch may fetch the offsets of a group."""
        found = self._groups.get(group)
        return KafkaErrorCode.NONE if found is None else found.validate_offset_fetch(member_id, member_epoch)

    def fetch(self, group: str, wanted: Sequence[TopicFetch] | None, *, require_stable: bool) -> list[FetchedOffset]:
        """The committed offsets of a group; an unknown group has none.

        Arguments:
            group: its name.
            wanted: None = all offsets of the group.
            require_stable: return UNSTABLE_OFFSET_COMMIT where a transaction may still change the offset.
        """
        if wanted is None:
            wanted = self.committed_partitions(group)
        unstable = self._pending.partitions(group) if require_stable else frozenset()
        found = []
        for topic, partitions, topic_id in wanted:
            stored = self._store.of_group(group).get(topic, {})
            for partition in partitions:
                if unstable and (topic, partition) in unstable:
                    error = KafkaErrorCode.UNSTABLE_OFFSET_COMMIT
                    found.append(FetchedOffset(topic, partition, error=error, topic_id=topic_id))
                else:
                    found.append(_found(topic, partition, stored.get(partition), topic_id))
        return found

    def committed_partitions(self, group: str) -> list[TopicFetch]:
        """All partitions with a committed offset of the group."""
        return [TopicFetch(topic, list(parts)) for topic, parts in self._store.of_group(group).items()]

    def committed_offset(self, group: str, topic: str, partition: int) -> int:
        """The committed offset of one partition, -1 = none."""
        stored = self._store.of_group(group).get(topic, {}).get(partition)
        return NO_OFFSET if stored is None else stored.offset

    def delete(self, group: str, partitions: Sequence[TopicPartition], token: Token) -> Effects:
        """Delete offsets of topics that no member reads; the result is an `OffsetDeleteResult`, with
        GROUP_SUBSCRIBED_TO_TOPIC for each partition of a topic that is read.
        """
        effects = Effects()
        found = self._groups.get(group)
        if found is not None:
            error = found.validate_offset_delete()
        else:
            error = KafkaErrorCode.NONE if group in self else KafkaErrorCode.GROUP_ID_NOT_FOUND
        if error:
            effects.answer(token, OffsetDeleteResult(error))
            return effects
        errors = []
        read = NO_TOPICS if found is None else found.topics_read()
        for topic, partition in partitions:
            in_use = topic in read
            errors.append(int(KafkaErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if in_use else 0)
            if not in_use and self._knows(group, topic, partition):
                effects.records.append(OffsetDeleted(group, topic, partition))
        effects.answer(token, OffsetDeleteResult(errors=tuple(errors)))
        return effects

    # deletion and expiration

    def delete_all(self, group: str) -> list[OffsetDeleted]:
        """The tombstones of all offsets of a group that is deleted, including pending ones."""
        known = {(topic, partition) for topic, parts in self._store.of_group(group).items() for partition in parts}
        known |= self._pending.partitions(group)
        return [OffsetDeleted(group, topic, partition) for topic, partition in sorted(known)]

    def readers(self, topic: str) -> list[str]:
        """The groups with offsets of a topic, including pending ones."""
        if not self._pending:
            return list(self._store.readers(topic))
        pending = (group for group, name, _ in self._pending if name == topic)
        return list(dict.fromkeys([*self._store.readers(topic), *pending]))

    def topic_deleted(
        self, group: str, topic: str, at_most: int | None = None, but: bytes = ZERO_UUID
    ) -> list[OffsetDeleted]:
        """The tombstones of the offsets of a deleted topic in a group.

        Arguments:
            group, topic: their names.
            at_most: the largest number of tombstones, None = no limit.
            but: the id of a topic that was created with the same name since; its offsets are kept.
        """
        stored = self._store.of_group(group).get(topic, NO_PARTITIONS)
        known = (index for index, one in stored.items() if but == ZERO_UUID or one.topic_id != but)
        found = set(islice(known, at_most))
        if but == ZERO_UUID:
            found |= {index for name, index in self._pending.partitions(group) if name == topic}
        return [OffsetDeleted(group, topic, index) for index in sorted(found)]

    def count(self, group: str) -> int:
        """The number of committed offsets of a group."""
        return sum(map(len, self._store.of_group(group).values()))

    def expire(self, group: str, wall_ms: int) -> tuple[list[OffsetDeleted], bool]:
        """Expire the offsets of a group (`expiration`).

        Returns: the tombstones, and whether no offset is left, so that an Empty group may be deleted too.
        """
        stored, pending = self._store.of_group(group), self._pending.partitions(group)
        found = self._groups.get(group)
        gone = expired_offsets(group, found, stored, pending, wall_ms, self.settings.retention_ms)
        return gone, len(gone) == self.count(group) and group not in self._pending

    def apply(self, record: OffsetRecord) -> None:
        """Apply a record (invariant 1)."""
        match record:
            case OffsetCommitted():
                self.put(record)
            case OffsetsCommitted():
                self.put_all(record)
            case OffsetDeleted(group, topic, partition):
                self._store.remove(group, topic, partition)
                self._pending.forget((group, topic, partition))
            case TransactionalOffset(producer_id, committed):
                self._pending.add(producer_id, committed)
            case TransactionEnded(producer_id, was_committed):
                for committed in self._pending.end(producer_id, materialise=was_committed):
                    self._store.put(committed)

    def put(self, record: OffsetCommitted) -> None:
        """`apply` for nearly all records of a replay."""
        self._store.put(record)
        if self._pending:
            self._pending.supersede((record.group, record.topic, record.partition))

    def put_all(self, record: OffsetsCommitted) -> None:
        """`apply` for nearly all commits in normal operation."""
        self._store.put_all(record)
        if self._pending:
            for of in record.offsets.partitions(PartitionCommit):
                self._pending.supersede((record.group, of.topic, of.partition))

    def _commit_refusal(self, request: Commit, error: int) -> int:
        if request.producer_id >= 0 and not request.group:
            return KafkaErrorCode.INVALID_GROUP_ID  # as in older Kafka, only other commits may use the empty name
        if error == KafkaErrorCode.GROUP_ID_NOT_FOUND and request.group in self:
            return KafkaErrorCode.UNKNOWN_MEMBER_ID  # invariant 3: the group exists, the member does not
        return error

    def _knows(self, group: str, topic: str, partition: int) -> bool:
        stored = partition in self._store.of_group(group).get(topic, ())
        return stored or (topic, partition) in self._pending.partitions(group)


def _all_accepted(packed: PackedOffsets, check: CommitValidation) -> bool:
    """Whether all of these partitions are accepted."""
    validate = check.of_partition
    return not any(validate(of.topic_id, of.partition, of.topic) for of in packed.partitions(PartitionCommit))


def _accepted(count: int) -> CommitResult:
    """The result of a commit of `count` partitions without an error."""
    return _cached_accepted(count) if count <= FEW else CommitResult(errors=(0,) * count)


@lru_cache(maxsize=FEW)
def _cached_accepted(count: int) -> CommitResult:
    return CommitResult(errors=(0,) * count)


def _found(topic: str, partition: int, stored: StoredOffset | None, topic_id: bytes) -> FetchedOffset:
    if stored is None or _of_another_topic(stored.topic_id, topic_id):
        return FetchedOffset(topic, partition, topic_id=topic_id)
    known_id = topic_id if stored.topic_id == ZERO_UUID else stored.topic_id
    return FetchedOffset(topic, partition, stored.offset, stored.leader_epoch, stored.metadata, 0, known_id)


def _of_another_topic(stored: bytes, wanted: bytes) -> bool:
    return ZERO_UUID not in (stored, wanted) and stored != wanted
