"""The records of registered groups as stored keys and values: types from 10000. A part of `serde`."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kafkalite.coordinators.runtime.loader import RecordError
from kafkalite.model import TopicPartition
from kafkalite.protocol.stored import extension_records as stored
from kafkalite.protocol.stored.record_types import StoredKey, StoredValue
from kafkalite.state.groups import records as state
from kafkalite.state.groups.assignors import ASSIGNORS
from kafkalite.state.groups.records import REGISTERED, GroupDeleted

Encoded = tuple[StoredKey, StoredValue | None]

FirstTopic = stored.GroupDefinitionValue.FirstTopic
ClaimedTopic = stored.StaticClaimValue.ClaimedTopic
Member = stored.GroupGenerationValue.Member
OwnedTopic = Member.OwnedTopic


# to bytes


def _encode_definition(record: state.GroupDefinition) -> Encoded:
    first = None
    if record.first_topics is not None:
        first = [FirstTopic(name=name, partitions_count=count) for name, count in record.first_topics]
    value = stored.GroupDefinitionValue(
        session_timeout_ms=record.session_timeout_ms,
        topics=None if record.pattern is not None else list(record.topics),
        topic_pattern=record.pattern,
        assignor=record.assignor,
        ephemeral=record.ephemeral,
        first_topics=first,
    )
    return stored.GroupDefinitionKey(group_id=record.group), value


def _encode_generation(record: state.GroupGeneration) -> Encoded:
    members = [
        Member(
            consumer_id=member.consumer_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topics=list(member.topics),
            since=member.since,
            epoch=member.epoch,
            owned_partitions=[
                OwnedTopic(name=name, partitions=numbers) for name, numbers in _by_topic(member.owned).items()
            ],
            process_ids=list(member.process_ids),
        )
        for member in record.members
    ]
    value = stored.GroupGenerationValue(
        generation_id=record.generation, state_timestamp=record.state_timestamp_ms, members=members
    )
    return stored.GroupGenerationKey(group_id=record.group), value


def _encode_claim(record: state.StaticClaim) -> Encoded:
    topics = [
        ClaimedTopic(name=name, partitions=numbers) for name, numbers in _by_topic(record.topic_partitions).items()
    ]
    return _claim_key(record), stored.StaticClaimValue(topics=topics)


def _claim_key(record: state.StaticClaim | state.StaticClaimDeleted) -> StoredKey:
    return stored.StaticClaimKey(group_id=record.group, consumer_id=record.consumer_id)


def _encode_mark(record: state.RewindMark) -> Encoded:
    return _mark_key(record), stored.RewindMarkValue(generation_id=record.generation)


def _mark_key(record: state.RewindMark | state.RewindMarkDeleted) -> StoredKey:
    return stored.RewindMarkKey(group_id=record.group, topic=record.topic, partition=record.partition)


def _by_topic(topic_partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, number in sorted(topic_partitions):
        topics.setdefault(name, []).append(number)
    return topics


# from bytes


def _definition(key: Any, value: Any) -> state.GroupDefinition:
    if value.assignor not in ASSIGNORS:
        raise RecordError(f"group {key.group_id!r} has the unknown assignor {value.assignor!r}")
    first = value.first_topics
    return state.GroupDefinition(
        key.group_id,
        value.session_timeout_ms,
        tuple(value.topics or ()),
        value.topic_pattern,
        value.assignor,
        value.ephemeral,
        None if first is None else tuple((each.name, each.partitions_count) for each in first),
    )


def _generation(key: Any, value: Any) -> state.GroupGeneration:
    members = tuple(_member(each) for each in value.members)
    if len({member.consumer_id for member in members}) < len(members):
        raise RecordError(f"group {key.group_id!r} has a duplicate member")
    return state.GroupGeneration(key.group_id, value.generation_id, value.state_timestamp, members)


def _member(value: Any) -> state.RegisteredMember:
    owned = frozenset(
        TopicPartition(topic.name, number) for topic in value.owned_partitions for number in topic.partitions
    )
    return state.RegisteredMember(
        value.consumer_id,
        value.client_id,
        value.client_host,
        value.session_timeout_ms,
        value.rebalance_timeout_ms,
        tuple(value.topics),
        value.since,
        value.epoch,
        owned,
        tuple(value.process_ids),
    )


def _claim(key: Any, value: Any) -> state.StaticClaim:
    topic_partitions: Collection[TopicPartition] = [
        TopicPartition(topic.name, number) for topic in value.topics for number in topic.partitions
    ]
    return state.StaticClaim(key.group_id, key.consumer_id, frozenset(topic_partitions))


ENCODERS: dict[type, Callable[[Any], Encoded]] = {
    state.GroupDefinition: _encode_definition,
    state.GroupGeneration: _encode_generation,
    state.GroupGenerationDeleted: lambda record: (stored.GroupGenerationKey(group_id=record.group), None),
    state.StaticClaim: _encode_claim,
    state.StaticClaimDeleted: lambda record: (_claim_key(record), None),
    state.RewindMark: _encode_mark,
    state.RewindMarkDeleted: lambda record: (_mark_key(record), None),
}
DECODERS: dict[type, Callable[[Any, Any], object]] = {
    stored.GroupDefinitionKey: _definition,
    stored.GroupGenerationKey: _generation,
    stored.StaticClaimKey: _claim,
    stored.RewindMarkKey: lambda key, value: state.RewindMark(
        key.group_id, key.topic, key.partition, value.generation_id
    ),
}
TOMBSTONES: dict[type, Callable[[Any], object]] = {
    stored.GroupDefinitionKey: lambda key: GroupDeleted(key.group_id, REGISTERED),
    stored.GroupGenerationKey: lambda key: state.GroupGenerationDeleted(key.group_id),
    stored.StaticClaimKey: lambda key: state.StaticClaimDeleted(key.group_id, key.consumer_id),
    stored.RewindMarkKey: lambda key: state.RewindMarkDeleted(key.group_id, key.topic, key.partition),
}
