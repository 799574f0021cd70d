"""Members of groups at the level of the protocol: short functions that send the requests of consumers."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.extensions.create_group import CreateGroupRequest
from kafkalite.protocol.extensions.heartbeat_plus import HeartbeatPlusRequest
from kafkalite.protocol.extensions.register_consumer import RegisterConsumerRequest
from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest
from kafkalite.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.protocol.messages.heartbeat import HeartbeatRequest
from kafkalite.protocol.messages.join_group import JoinGroupRequest
from kafkalite.protocol.messages.leave_group import LeaveGroupRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.protocol.messages.sync_group import SyncGroupRequest
from kafkalite.protocol.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    write,
)

SESSION_MS = 10_000


def subscription(*topics: str, has: dict[str, list[int]] | None = None) -> bytes:
    """The metadata of a consumer that reads these topics, and what a cooperative one has while it joins."""
    entries = [
        ConsumerProtocolSubscription.TopicPartition(topic=each, partitions=at) for each, at in (has or {}).items()
    ]
    return write(ConsumerProtocolSubscription(topics=list(topics), owned_partitions=entries))


def assignment(topic: str, *partitions: int) -> bytes:
    """What a leader gives to a member."""
    entry = ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
    return write(ConsumerProtocolAssignment(assigned_partitions=[entry]))


def join(
    group: str,
    member_id: str = "",
    *,
    topics: tuple[str, ...] = ("orders",),
    has: dict[str, list[int]] | None = None,
    **more: Any,
) -> JoinGroupRequest:
    """A consumer with the assignor `range`; `has`: what it has while it joins, `more`: other fields."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription(*topics, has=has))
    fields: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "protocol_type": "consumer",
        "protocols": [protocol],
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **(fields | more))


def sync(group: str, member_id: str, generation: int, given: dict[str, bytes] | None = None, **more: Any) -> Any:
    """A member that asks for its part, or the leader that brings all."""
    assignments = [
        SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=part)
        for name, part in (given or {}).items()
    ]
    fields: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
    return SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member_id, assignments=assignments, **(fields | more)
    )


def heartbeat(group: str, member_id: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
    """The heartbeat of a member."""
    return HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation, group_instance_id=instance)


def leave(group: str, *members: str | tuple[str, str | None]) -> LeaveGroupRequest:
    """Members that leave: ids, or (id, instance id)."""
    identities = [
        LeaveGroupRequest.MemberIdentity(member_id=each)
        if isinstance(each, str)
        else LeaveGroupRequest.MemberIdentity(member_id=each[0], group_instance_id=each[1])
        for each in members
    ]
    only = members[0] if members and isinstance(members[0], str) else ""
    return LeaveGroupRequest(group_id=group, member_id=only, members=identities)


def commit(
    group: str,
    topic: str | bytes,
    offsets: dict[int, int],
    member_id: str = "",
    generation: int = -1,
    *,
    metadata: str | None = "",
    **more: Any,
) -> OffsetCommitRequest:
    """A commit of offsets by partition, of one topic, named or by its id."""
    entry = OffsetCommitRequest.OffsetCommitRequestTopic(partitions=[])
    if isinstance(topic, bytes):
        entry.topic_id = topic
    else:
        entry.name = topic
    for partition, offset in offsets.items():
        entry.partitions.append(
            OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=[entry], **more
    )


def codes(answer: Any) -> list[int]:
    """The error of every partition of an answer that has topics."""
    return [part.error_code for topic in answer.topics for part in topic.partitions]


def fetch_of(group: str, topic: str | bytes | None = None, *partitions: int, **more: Any) -> Any:
    """One group of an OffsetFetch of v8 and later; no topic = everything."""
    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = None
    if topic is not None:
        named: dict[str, Any] = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
        topics = [asked.OffsetFetchRequestTopics(partition_indexes=list(partitions), **named)]
    return asked(group_id=group, topics=topics, **more)


def fetch(group: str, topic: str | None = None, *partitions: int, **more: Any) -> OffsetFetchRequest:
    """An OffsetFetch of one group that fits all versions up to 9."""
    topics = None
    if topic is not None:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
    return OffsetFetchRequest(group_id=group, topics=topics, groups=[fetch_of(group, topic, *partitions)], **more)


def offsets_of(answer: Any) -> dict[tuple[Any, int], int]:
    """Committed offsets by topic (name, or id where there is no name) and partition, of an answer of one group."""
    topics = answer.groups[0].topics if answer.groups else answer.topics
    return {
        (topic.name or topic.topic_id, part.partition_index): part.committed_offset
        for topic in topics
        for part in topic.partitions
    }


def fast_heartbeat(group: str, member_id: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of a consumer group's member."""
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)


def beat_join(group: str, member_id: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member that reads these topics."""
    fields: dict[str, Any] = {
        "rebalance_timeout_ms": SESSION_MS,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
    }
    return fast_heartbeat(group, member_id, 0, **(fields | more))


def given(answer: Any) -> dict[bytes, list[int]] | None:
    """The assignment in the answer to a heartbeat, by topic id."""
    if answer.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


def owned(partitions: dict[bytes, list[int]]) -> list[Any]:
    """The partitions that a member reports as its own."""
    entry = ConsumerGroupHeartbeatRequest.TopicPartitions
    return [entry(topic_id=topic_id, partitions=parts) for topic_id, parts in partitions.items()]


def rewind(group: str, topic: str, offsets: dict[int, int]) -> RewindConsumerRequest:
    """A rewind of one topic to offsets by partition."""
    entry = RewindConsumerRequest.RewoundTopic
    partitions = [
        entry.RewoundPartition(partition_index=at, offset=offset, timestamp=-1) for at, offset in offsets.items()
    ]
    return RewindConsumerRequest(group_id=group, topics=[entry(name=topic, partitions=partitions)])


# kafkalite's own


def create(group: str, *topics: str, **more: Any) -> CreateGroupRequest:
    """A definition of a group that reads these topics."""
    fields: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "assignor": "range", "topics": list(topics) or None}
    return CreateGroupRequest(group_id=group, **(fields | more))


def register(
    group: str, consumer_id: str, *topics: str, claims: dict[str, list[int]] | None = None, **more: Any
) -> RegisterConsumerRequest:
    """A registration for the next generation; no topics = those of the definition."""
    claimed = RegisterConsumerRequest.ClaimedTopic
    fields: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS}
    return RegisterConsumerRequest(
        group_id=group,
        consumer_id=consumer_id,
        topics=list(topics),
        claimed_partitions=[claimed(name=name, partitions=partitions) for name, partitions in (claims or {}).items()],
        **(fields | more),
    )


def beat_plus(group: str, consumer_id: str, generation: int, session_timeout_ms: int = 0) -> HeartbeatPlusRequest:
    """The heartbeat of a registered consumer."""
    return HeartbeatPlusRequest(
        group_id=group, consumer_id=consumer_id, generation_id=generation, session_timeout_ms=session_timeout_ms
    )


def starts(answer: Any) -> dict[tuple[str, int], int]:
    """What the answer to a registration gives: start offsets by topic and partition."""
    return {
        (topic.name, part.partition_index): part.start_offset
        for topic in answer.partitions
        for part in topic.partitions
    }


def rewind_to(group: str, *topic_partitions: tuple[str, int, int, int]) -> RewindConsumerRequest:
    """A group to (topic, partition, offset, timestamp), each topic by itself."""
    entry = RewindConsumerRequest.RewoundTopic
    topics = [
        entry(name=name, partitions=[entry.RewoundPartition(partition_index=index, offset=offset, timestamp=timestamp)])
        for name, index, offset, timestamp in topic_partitions
    ]
    return RewindConsumerRequest(group_id=group, topics=topics)


def rewound(answer: Any) -> list[tuple[int, int]]:
    """Offset and error of every partition."""
    return [(part.offset, part.error_code) for topic in answer.topics for part in topic.partitions]
