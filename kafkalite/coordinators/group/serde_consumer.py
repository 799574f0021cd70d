"""The records of consumer groups (KIP-848) as stored keys and values: types 3 to 8 and 16. A part of `serde`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalite.coordinators.runtime.loader import RecordError
from kafkalite.protocol.stored import consumer_group_records as stored
from kafkalite.protocol.stored.record_types import StoredKey, StoredValue
from kafkalite.state.groups import records as state
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.records import ConsumerGroupTombstone, PartitionEpochs

STATES = frozenset(int(each) for each in MemberState)
Encoded = tuple[StoredKey, StoredValue | None]

StoredClassic = stored.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
TargetPartitions = stored.ConsumerGroupTargetAssignmentMemberValue.TopicPartition
OwnedPartitions = stored.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


# to bytes


def _encode_group(record: state.ConsumerGroupMetadata) -> Encoded:
    value = stored.ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
    return stored.ConsumerGroupMetadataKey(group_id=record.group), value


def _encode_member(record: state.ConsumerGroupMemberMetadata) -> Encoded:
    classic = None
    if record.classic is not None:
        protocols = [
            StoredClassic.ClassicProtocol(name=name, metadata=metadata) for name, metadata in record.classic.protocols
        ]
        classic = StoredClassic(session_timeout_ms=record.classic.session_timeout_ms, supported_protocols=protocols)
    value = stored.ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=list(record.subscribed_topic_names),
        subscribed_topic_regex=record.subscribed_topic_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
        classic_member_metadata=classic,
    )
    return stored.ConsumerGroupMemberMetadataKey(group_id=record.group, member_id=record.member_id), value


def _encode_target_epoch(record: state.ConsumerGroupTargetAssignmentMetadata) -> Encoded:
    value = stored.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.assignment_epoch, assignment_timestamp=record.assignment_timestamp_ms
    )
    return stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=record.group), value


def _encode_target(record: state.ConsumerGroupTargetAssignmentMember) -> Encoded:
    partitions = [
        TargetPartitions(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in sorted(record.partitions.items())
    ]
    value = stored.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions)
    return stored.ConsumerGroupTargetAssignmentMemberKey(group_id=record.group, member_id=record.member_id), value


def _encode_current(record: state.ConsumerGroupCurrentMemberAssignment) -> Encoded:
    value = stored.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=record.member_epoch,
        previous_member_epoch=record.previous_member_epoch,
        state=record.state,
        assigned_partitions=_owned(record.assigned),
        partitions_pending_revocation=_owned(record.pending_revocation),
    )
    return stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=record.group, member_id=record.member_id), value


def _owned(epochs: PartitionEpochs) -> list[OwnedPartitions]:
    return [
        OwnedPartitions(
            topic_id=topic_id,
            partitions=(partitions := sorted(of_topic)),
            assignment_epochs=list(map(of_topic.__getitem__, partitions)),
        )
        for topic_id, of_topic in sorted(epochs.items())
    ]


def _encode_pattern(record: state.ConsumerGroupRegularExpression) -> Encoded:
    value = stored.ConsumerGroupRegularExpressionValue(
        topics=list(record.topics), version=record.version, timestamp=record.timestamp_ms
    )
    return stored.ConsumerGroupRegularExpressionKey(group_id=record.group, regular_expression=record.pattern), value


KEYS: dict[type, tuple[type[Any], str]] = {
    state.ConsumerGroupPartitionMetadata: (stored.ConsumerGroupPartitionMetadataKey, ""),
    state.ConsumerGroupMemberMetadata: (stored.ConsumerGroupMemberMetadataKey, "member_id"),
    state.ConsumerGroupTargetAssignmentMetadata: (stored.ConsumerGroupTargetAssignmentMetadataKey, ""),
    state.ConsumerGroupTargetAssignmentMember: (stored.ConsumerGroupTargetAssignmentMemberKey, "member_id"),
    state.ConsumerGroupCurrentMemberAssignment: (stored.ConsumerGroupCurrentMemberAssignmentKey, "member_id"),
    state.ConsumerGroupRegularExpression: (stored.ConsumerGroupRegularExpressionKey, "regular_expression"),
}
"""By record: the class of its key, and the field of that key besides the group; "" = there is none."""


def _encode_tombstone(record: ConsumerGroupTombstone) -> Encoded:
    key_class, field = KEYS[record.of]
    return key_class(group_id=record.group, **({field: record.key} if field else {})), None


ENCODERS: dict[type, Callable[[Any], Encoded]] = {
    state.ConsumerGroupMetadata: _encode_group,
    state.ConsumerGroupMemberMetadata: _encode_member,
    state.ConsumerGroupTargetAssignmentMetadata: _encode_target_epoch,
    state.ConsumerGroupTargetAssignmentMember: _encode_target,
    state.ConsumerGroupCurrentMemberAssignment: _encode_current,
    state.ConsumerGroupRegularExpression: _encode_pattern,
    ConsumerGroupTombstone: _encode_tombstone,
}


# from bytes


def _group(key: Any, value: Any) -> object:
    return state.ConsumerGroupMetadata(key.group_id, value.epoch, value.metadata_hash)


def _partition_metadata(key: Any, value: Any) -> object:
    return state.ConsumerGroupPartitionMetadata(key.group_id)


def _member(key: Any, value: Any) -> object:
    classic = value.classic_member_metadata
    if classic is not None:
        protocols = tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols)
        classic = state.ClassicMemberMetadata(classic.session_timeout_ms, protocols)
    return state.ConsumerGroupMemberMetadata(
        key.group_id,
        key.member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        tuple(dict.fromkeys(value.subscribed_topic_names)),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        classic,
    )


def _target_epoch(key: Any, value: Any) -> object:
    return state.ConsumerGroupTargetAssignmentMetadata(key.group_id, value.assignment_epoch, value.assignment_timestamp)


def _target(key: Any, value: Any) -> object:
    partitions = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
    return state.ConsumerGroupTargetAssignmentMember(key.group_id, key.member_id, partitions)


def _current(key: Any, value: Any) -> object:
    if value.state not in STATES:
        raise RecordError(f"a member has the unknown state {value.state}")
    return state.ConsumerGroupCurrentMemberAssignment(
        key.group_id,
        key.member_id,
        value.member_epoch,
        value.previous_member_epoch,
        value.state,
        _epochs(value.assigned_partitions, value.member_epoch),
        _epochs(value.partitions_pending_revocation, value.member_epoch),
    )


def _epochs(owned: list[Any], member_epoch: int) -> PartitionEpochs:
    """Records of Kafka before 4.3 have no epochs of partitions; the member epoch is used instead (KIP-1251)."""
    found = {}
    for each in owned:
        epochs = each.assignment_epochs or [member_epoch] * len(each.partitions)
        if len(epochs) != len(each.partitions):
            raise RecordError(f"{len(each.partitions)} partitions have {len(epochs)} epochs")
        found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


def _pattern(key: Any, value: Any) -> object:
    return state.ConsumerGroupRegularExpression(
        key.group_id, key.regular_expression, tuple(value.topics), value.version, value.timestamp
    )


DECODERS: dict[type, Callable[[Any, Any], object]] = {
    stored.ConsumerGroupMetadataKey: _group,
    stored.ConsumerGroupPartitionMetadataKey: _partition_metadata,
    stored.ConsumerGroupMemberMetadataKey: _member,
    stored.ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    stored.ConsumerGroupTargetAssignmentMemberKey: _target,
    stored.ConsumerGroupCurrentMemberAssignmentKey: _current,
    stored.ConsumerGroupRegularExpressionKey: _pattern,
}


def _tombstone(of: type, field: str, key: Any) -> ConsumerGroupTombstone:
    return ConsumerGroupTombstone(key.group_id, of, getattr(key, field) if field else "")


TOMBSTONES: dict[type, Callable[[Any], object]] = {
    key_class: partial(_tombstone, of, field) for of, (key_class, field) in KEYS.items()
}
