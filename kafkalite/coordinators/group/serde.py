"""Converts the records of groups and offsets to the keys and values of `__consumer_offsets`, as Kafka 4.3 writes them.

Sets are written in order, so that the same state has the same bytes. A record that decodes to impossible contents (an
unknown state, lists of different lengths) raises RecordError.
Source: GroupCoordinatorRecordHelpers.java, GroupCoordinatorRecordSerde.java of Apache Kafka.
"""

from collections.abc import Callable
from typing import Any

from kafkalite._speedups.groups.offset_commit_record import append_commits, read_commit
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.group import serde_consumer, serde_registered
from kafkalite.protocol.stored import group_records as stored
from kafkalite.protocol.stored.consumer_group_records import ConsumerGroupMetadataKey
from kafkalite.protocol.stored.extension_records import GroupDefinitionKey
from kafkalite.protocol.stored.record_types import StoredKey, StoredValue, write
from kafkalite.records import Builder
from kafkalite.records.control import TransactionMarker
from kafkalite.state.groups import records as state

NO_PRODUCER = -1
StoredMember = stored.GroupMetadataValue.MemberMetadata


class GroupRecordSerde:
    """The serde (`partition_writer.RecordSerde`) of groups and their offsets."""

    unordered = frozenset(
        cls.type_id.to_bytes(2, "big") for cls in (stored.LegacyOffsetCommitKey, stored.OffsetCommitKey)
    )

    skips_unreadable = True

    def compression(self, config: BrokerConfig) -> int:
        """The codec id of batches: `offsets.topic.compression.codec`."""
        return config.offsets_topic_compression_codec

    def producer(self, record: object) -> int:
        """The producer id of the transaction of a record, -1 = none."""
        return record.producer_id if isinstance(record, state.TransactionalOffset) else NO_PRODUCER

    def marker(self, record: object) -> TransactionMarker | None:
        """The marker of a transaction that has pending offsets here; None for all other records."""
        if not isinstance(record, state.TransactionEnded):
            return None
        producer_id, committed, producer_epoch, coordinator_epoch, version = record
        return TransactionMarker(producer_id, producer_epoch, committed, coordinator_epoch, version)

    def append_plain(self, builder: Builder, records: list[object], at: int, timestamp: int) -> int:
        """Append committed offsets from index `at` on; returns the index of the first other record."""
        return append_commits(builder, records, at, timestamp, state.OffsetCommitted, state.OffsetsCommitted)

    def several(self, record: object) -> list[object] | None:
        """A packed commit is one record for each partition; all others are one record."""
        return list(state.commits_of(record)) if isinstance(record, state.OffsetsCommitted) else None

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        """The key and the value of a record. Raises: EncodeError, TypeError for a class that is not stored."""
        encoder = ENCODERS.get(type(record))
        if encoder is None:
            raise TypeError(f"{type(record).__name__} is not a record of __consumer_offsets")
        return write(*encoder(record))

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        """The record; None for an unknown type. Raises: DecodeError, RecordError."""
        if value is not None:
            commit = read_commit(key, value, state.OffsetCommitted)
            if commit is not None:
                return commit
        type_id, known = stored.read_key(key)
        if known is None:
            return None
        if value is None:
            tombstone = TOMBSTONES.get(type(known))
            return None if tombstone is None else tombstone(known)
        decoder = DECODERS.get(type(known))
        return None if decoder is None else decoder(known, stored.read_value(type_id, value))

    def in_transaction(self, producer_id: int, record: object) -> object:
        """A commit is pending until the marker; other records are never part of a transaction."""
        return state.TransactionalOffset(producer_id, record) if isinstance(record, state.OffsetCommitted) else record

    def end_transaction(self, producer_id: int, *, committed: bool) -> object:
        """The record for the marker of a transaction."""
        return state.TransactionEnded(producer_id, committed)


def _encode_offset(record: state.OffsetCommitted) -> tuple[StoredKey, StoredValue]:
    value = stored.OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp_ms,
        expire_timestamp=record.expire_timestamp_ms,
        topic_id=record.topic_id,
    )
    return stored.OffsetCommitKey(group=record.group, topic=record.topic, partition=record.partition), value


def _encode_offset_deleted(record: state.OffsetDeleted) -> tuple[StoredKey, None]:
    return stored.OffsetCommitKey(group=record.group, topic=record.topic, partition=record.partition), None


def _encode_classic(record: state.ClassicGroupMetadata) -> tuple[StoredKey, StoredValue]:
    value = stored.GroupMetadataValue(
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
    return stored.GroupMetadataKey(group=record.group), value


def _encode_group_deleted(record: state.GroupDeleted) -> tuple[StoredKey, None]:
    return GROUP_KEYS[record.group_type](record.group), None


def _offset(key: Any, value: Any) -> state.OffsetCommitted:
    return state.OffsetCommitted(
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


def _classic(key: Any, value: Any) -> state.ClassicGroupMetadata:
    members = tuple(
        state.ClassicMemberRecord(
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
    return state.ClassicGroupMetadata(
        key.group,
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        members,
    )


def _offset_deleted(key: Any) -> state.OffsetDeleted:
    return state.OffsetDeleted(key.group, key.topic, key.partition)


GROUP_KEYS: dict[str, Callable[[str], StoredKey]] = {
    state.CLASSIC: lambda name: stored.GroupMetadataKey(group=name),
    state.CONSUMER: lambda name: ConsumerGroupMetadataKey(group_id=name),
    state.REGISTERED: lambda name: GroupDefinitionKey(group_id=name),
}
ENCODERS: dict[type, Callable[[Any], tuple[StoredKey, StoredValue | None]]] = {
    state.OffsetCommitted: _encode_offset,
    state.OffsetDeleted: _encode_offset_deleted,
    state.TransactionalOffset: lambda record: _encode_offset(record.committed),
    state.ClassicGroupMetadata: _encode_classic,
    state.GroupDeleted: _encode_group_deleted,
    **serde_consumer.ENCODERS,
    **serde_registered.ENCODERS,
}
DECODERS: dict[type, Callable[[Any, Any], object]] = {
    stored.LegacyOffsetCommitKey: _offset,
    stored.OffsetCommitKey: _offset,
    stored.GroupMetadataKey: _classic,
    **serde_consumer.DECODERS,
    **serde_registered.DECODERS,
}
TOMBSTONES: dict[type, Callable[[Any], object]] = {
    stored.LegacyOffsetCommitKey: _offset_deleted,
    stored.OffsetCommitKey: _offset_deleted,
    stored.GroupMetadataKey: lambda key: state.GroupDeleted(key.group, state.CLASSIC),
    ConsumerGroupMetadataKey: lambda key: state.GroupDeleted(key.group_id, state.CONSUMER),
    **serde_consumer.TOMBSTONES,
    **serde_registered.TOMBSTONES,
}
