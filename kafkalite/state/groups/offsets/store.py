"""Stores committed offsets in memory: group -> topic -> partition -> one tuple.

Many groups read the same topics, and a commit has many partitions: tuples share equal names, topic ids and times.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from sys import intern
from typing import NamedTuple

from kafkalite.model import ZERO_UUID
from kafkalite.state.groups.groups_by_topic import GroupsByTopic
from kafkalite.state.groups.records import OffsetCommitted, OffsetsCommitted


class StoredOffset(NamedTuple):
    """A committed offset without group and partition. Times are wall time in ms."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes


# Without the Python frame of `StoredOffset(...)`: a start stores millions.
_stored: Callable[[tuple[int, int, str, int, int, bytes]], StoredOffset] = partial(tuple.__new__, StoredOffset)
_Topics = dict[str, dict[int, StoredOffset]]
_NOTHING: Mapping[str, Mapping[int, StoredOffset]] = {}


class OffsetStore:
    """All committed offsets of a shard."""

    def __init__(self) -> None:
        self._groups: dict[str, _Topics] = {}
        self._topic_ids: dict[str, bytes] = {}  # the last id of each topic, so that offsets share one object
        self._readers = GroupsByTopic()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def group_count(self) -> int:
        """How many groups have committed offsets."""
        return len(self._groups)

    def of_group(self, group: str) -> Mapping[str, Mapping[int, StoredOffset]]:
        """The committed offsets of a group, by topic and partition."""
        return self._groups.get(group, _NOTHING)

    def readers(self, topic: str) -> Set[str]:
        """The groups that have committed offsets of a topic."""
        return self._readers.of(topic)

    def put(self, record: OffsetCommitted) -> None:
        """Store the commit of a partition."""
        group, topic, partition, offset, epoch, metadata, committed_ms, expire_ms, topic_id = record
        if self._topic_ids.get(topic) is not topic_id:
            topic_id = self._shared_id(topic, topic_id)
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[intern(group)] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[intern(topic)] = {}
            self._readers.add(topic, intern(group))
        self._count += partition not in partitions
        partitions[partition] = _stored((offset, epoch, metadata, committed_ms, expire_ms, topic_id))

    def put_all(self, record: OffsetsCommitted) -> None:
        """Store all commits of a request."""
        group, offsets, committed_ms = record
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[intern(group)] = {}
        for at, (topic, topic_id) in enumerate(offsets.located_topics()):
            if self._topic_ids.get(topic) is not topic_id:
                topic_id = self._shared_id(topic, topic_id)
            partitions = topics.get(topic, {})
            before = len(partitions)
            offsets.put_into(partitions, at, StoredOffset, committed_ms, topic_id)
            if not before and partitions:  # a request may have a topic without partitions
                topics[intern(topic)] = partitions
                self._readers.add(topic, intern(group))
            elif not before and topic not in self._readers:
                self._topic_ids.pop(topic, None)
            self._count += len(partitions) - before

    def remove(self, group: str, topic: str, partition: int) -> None:
        """Delete a commit, if there is one."""
        topics = self._groups.get(group)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None or partitions.pop(partition, None) is None:
            return
        self._count -= 1
        if not partitions:
            del topics[topic]
            self._readers.remove(topic, group)
            if topic not in self._readers:
                self._topic_ids.pop(topic, None)
        if not topics:
            del self._groups[group]

    def _shared_id(self, topic: str, topic_id: bytes) -> bytes:
        if topic_id == ZERO_UUID:
            return ZERO_UUID
        known = self._topic_ids.get(topic)
        if known != topic_id:
            known = self._topic_ids[intern(topic)] = topic_id
        return known
