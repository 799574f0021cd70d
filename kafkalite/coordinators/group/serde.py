"""Converts the records of groups and offsets to the keys and values of `__consumer_offsets`, as Kafka 4.3 writes them.

Sets are written in order, so that the same state has the same bytes. A record that decodes to impossible contents (an
unknown state, lists of different lengths) raises RecordError.
Source: GroupCoordinatorRecordHelpers.java, GroupCoordinatorRecordSerde.java of Apache Kafka.
"""

from collections.abc import Callable
from typing import Any

from kafkalite._speedups.groups.offset_commit_record import append_commits, read_commit
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.group.serde_consumer import DECODERS as CONSUMER_DECODERS
from kafkalite.coordinators.group.serde_consumer import ENCODERS as CONSUMER_ENCODERS
from kafkalite.coordinators.group.serde_consumer import TOMBSTONES as CONSUMER_TOMBSTONES
from kafkalite.coordinators.group.serde_registered import DECODERS as REGISTERED_DECODERS
from kafkalite.coordinators.group.serde_registered import ENCODERS as REGISTERED_ENCODERS
from kafkalite.coordinators.group.serde_registered import TOMBSTONES as REGISTERED_TOMBSTONES
from kafkalite.protocol.stored.group_records import ConsumerGroupMetadataKey as ConsumerGroupKey
from kafkalite.protocol.stored.group_records import (
    GroupDefinitionKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
    read_key,
    read_value,
    write,
)
from kafkalite.protocol.stored.record_types import StoredKey, StoredValue
from kafkalite.records import Builder
from kafkalite.state.groups.records import (
    CLASSIC,
    CONSUMER,
    REGISTERED,
    ClassicGroupMetadata,
    ClassicMemberRecord,
    GroupDeleted,
    OffsetCommitted,
    OffsetDeleted,
    OffsetsCommitted,
    TransactionalOffset,
    TransactionEnded,
    commits_of,
)

__all__ = ["GroupRecordSerde"]

NO_PRODUCER = -1
StoredMember = GroupMetadataValue.MemberMetadata


class GroupRecordSerde:
    """The serde (`partition_writer.RecordSerde`) of groups and their offsets."""

    unordered = frozenset(cls.type_id.to_bytes(2, "big") for cls in (LegacyOffsetCommitKey, OffsetCommitKey))

    def compression(self, config: BrokerConfig) -> int:
        """The codec id of batches: `offsets.topic.compression.codec`."""
        return config.offsets_topic_compression_codec

    def producer(self, record: object) -> int:
        """The producer id of the transaction of a record, -1 = none."""
        return record.producer_id if isinstance(record, TransactionalOffset) else NO_PRODUCER

    def append_plain(self, builder: Builder, records: list[object], at: int, timestamp: int) -> int:
        """Append committed offsets from index `at` on; returns the index of the first other record."""
        return append_commits(builder, records, at, timestamp, OffsetCommitted, OffsetsCommitted)

    def several(self, record: object) -> list[object] | None:
        """A packed commit is one record for each partition; all others are one record."""
        return list(commits_of(record)) if isinstance(record, OffsetsCommitted) else None

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        """The key and the value of a record. Raises: EncodeError, TypeError for a class that is not stored."""
        encoder = ENCODERS.get(type(record))
        if encoder is None:
            raise TypeError(f"{type(record).__name__} is not a record of __consumer_offsets")
        return write(*encoder(record))

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        """The record; None for an unknown type. Raises: DecodeError, RecordError."""
        if value is not None:
            commit = read_commit(key, value, OffsetCommitted)
            if commit is not None:
                return commit
        type_id, known = read_key(key)
        if known is None:
            return None
        if value is None:
            tombstone = TOMBSTONES.get(type(known))
            return None if tombstone is None else tombstone(known)
        decoder = DECODERS.get(type(known))
        return None if decoder is None else decoder(known, read_value(type_id, value))

    def in_transaction(self, producer_id: int, record: object) -> object:
        """A commit is pending until the marker; other records are never part of a transaction."""
        return TransactionalOffset(producer_id, record) if isinstance(record, OffsetCommitted) else record

    def ended(self, producer_id: int, *, committed: bool) -> object:
        """The record for the marker of a transaction."""
        return TransactionEnded(producer_id, committed)


def _encode_offset(record: OffsetCommitted) -> tuple[StoredKey, StoredValue]:
    value = OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp_ms,
        expire_timestamp=record.expire_timestamp_ms,
        topic_id=record.topic_id,
    )
    return OffsetCommitKey(group=record.group, topic=record.topic, partition=record.partition), value


def _encode_offset_deleted(record: OffsetDeleted) -> tuple[StoredKey, None]:
    return OffsetCommitKey(group=record.group, topic=record.topic, partition=record.partition), None


def _encode_classic(record: ClassicGroupMetadata) -> tuple[StoredKey, StoredValue]:
    value = GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        current_state_timestamp=record.state_timestamp_ms,
        members=[
            StoredMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in record.members
        ],
    )
    return GroupMetadataKey(group=record.group), value


def _encode_group_deleted(record: GroupDeleted) -> tuple[StoredKey, None]:
    return GROUP_KEYS[record.group_type](record.group), None


def _offset(key: Any, value: Any) -> OffsetCommitted:
    return OffsetCommitted(
        key.group,
        key.topic,
        key.partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _classic(key: Any, value: Any) -> ClassicGroupMetadata:
    members = tuple(
        ClassicMemberRecord(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            # version 0 did not store it (GroupMetadataManager.scala, readGroupMessageValue)
            member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            member.session_timeout,
            bytes(member.subscription),
            bytes(member.assignment),
        )
        for member in value.members
    )
    return ClassicGroupMetadata(
        key.group,
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        members,
    )


def _offset_deleted(key: Any) -> OffsetDeleted:
    return OffsetDeleted(key.group, key.topic, key.partition)


GROUP_KEYS: dict[str, Callable[[str], StoredKey]] = {
    CLASSIC: lambda name: GroupMetadataKey(group=name),
    CONSUMER: lambda name: ConsumerGroupKey(group_id=name),
    REGISTERED: lambda name: GroupDefinitionKey(group_id=name),
}
ENCODERS: dict[type, Callable[[Any], tuple[StoredKey, StoredValue | None]]] = {
    OffsetCommitted: _encode_offset,
    OffsetDeleted: _encode_offset_deleted,
    TransactionalOffset: lambda record: _encode_offset(record.committed),
    ClassicGroupMetadata: _encode_classic,
    GroupDeleted: _encode_group_deleted,
    **CONSUMER_ENCODERS,
    **REGISTERED_ENCODERS,
}
DECODERS: dict[type, Callable[[Any, Any], object]] = {
    LegacyOffsetCommitKey: _offset,
    OffsetCommitKey: _offset,
    GroupMetadataKey: _classic,
    **CONSUMER_DECODERS,
    **REGISTERED_DECODERS,
}
TOMBSTONES: dict[type, Callable[[Any], object]] = {
    LegacyOffsetCommitKey: _offset_deleted,
    OffsetCommitKey: _offset_deleted,
    GroupMetadataKey: lambda key: GroupDeleted(key.group, CLASSIC),
    ConsumerGroupKey: lambda key: GroupDeleted(key.group_id, CONSUMER),
    **CONSUMER_TOMBSTONES,
    **REGISTERED_TOMBSTONES,
}
