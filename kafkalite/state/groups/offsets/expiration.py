"""Decides which committed offsets of a group expire (`offsets.retention.minutes`, KIP-211).

1. In a group with members, only offsets of topics that no member reads expire.
2. The retention counts from the time at which the group became Empty, in a group without a protocol from each commit
   (`Group.expire_since`). A commit with a retention time (OffsetCommit up to version 4) expires at its own time.
3. An offset that an open transaction may still change does not expire.

Source: OffsetMetadataManager.cleanupExpiredOffsets, OffsetExpirationConditionImpl of Apache Kafka.
"""

from collections.abc import Collection, Mapping

from kafkalite.model import TopicPartition
from kafkalite.state.groups.group import Group
from kafkalite.state.groups.groups_by_topic import NO_TOPICS
from kafkalite.state.groups.offsets.store import StoredOffset
from kafkalite.state.groups.records import OffsetDeleted


def expired_offsets(
    name: str,
    group: Group | None,
    stored: Mapping[str, Mapping[int, StoredOffset]],
    pending: Collection[TopicPartition],
    wall_ms: int,
    retention_ms: int,
) -> list[OffsetDeleted]:
    """Return the tombstones of the offsets that have expired.

    Arguments:
        name: of the group.
        group: its state; None = it has offsets only.
        stored: its committed offsets, by topic and partition.
        pending: the partitions with offsets of open transactions.
        wall_ms: the current wall time.
        retention_ms: for how long offsets are kept.
    """
    since_ms = -1 if group is None else group.expire_since()
    if since_ms is None:
        return []
    read = NO_TOPICS if group is None else group.topics_read()
    return [
        OffsetDeleted(name, topic, partition)
        for topic, partitions in stored.items()
        if topic not in read
        for partition, one in partitions.items()
        if (topic, partition) not in pending and _is_expired(one, since_ms, wall_ms, retention_ms)
    ]


def _is_expired(stored: StoredOffset, since_ms: int, wall_ms: int, retention_ms: int) -> bool:
    if stored.expire_timestamp_ms != -1:
        return wall_ms >= stored.expire_timestamp_ms
    counted_from = stored.commit_timestamp_ms if since_ms == -1 else since_ms
    return wall_ms - counted_from >= retention_ms
