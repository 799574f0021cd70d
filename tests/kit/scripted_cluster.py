"""The state of a scripted cluster: topics with their logs, leaders, and the sequences of idempotent producers.

It behaves as Kafka does where clients can see it: sequences are checked per producer id and epoch, the last five
batches of a producer are recognised as duplicates, and leader epochs rise when a leader moves.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.records import Batch, batches, set_base_offset, set_leader_epoch

NO_LEADER = -1
REMEMBERED_BATCHES = 5
SEQUENCE_MASK = 0x7FFFFFFF
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@dataclass(slots=True)
class StoredBatch:
    """An appended batch with its offsets and its largest timestamp (ms)."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    data: bytes


@dataclass(slots=True)
class ProducerState:
    """What a partition remembers of a producer id: its epoch and its last batches (first and last sequence, offset)."""

    epoch: int
    last: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class ScriptedPartition:
    """The log of a partition and its leader."""

    def __init__(self, leader: int, replicas: list[int]) -> None:
        self.leader = leader
        self.leader_epoch = 0
        self.replicas = replicas
        self.log: list[StoredBatch] = []
        self.log_start = 0
        self.end = 0
        self.epoch_starts: list[tuple[int, int]] = [(0, 0)]  # (leader epoch, its first offset)
        self.producers: dict[int, ProducerState] = {}
        self.duplicates = 0
        self.appended: list[Callable[[], object]] = []  # called once after the next append

    def append(self, records: bytes) -> tuple[int, int]:
        """Append a batch as the leader does; the error code and the base offset."""
        batch = Batch(records)
        batch.check_crc()
        if batch.size != len(records):
            return KafkaErrorCode.INVALID_RECORD, -1
        if batch.producer_id >= 0:
            code, known = self._check_sequence(batch)
            if code or known >= 0:
                self.duplicates += known >= 0
                return code, known
        base = self.end
        data = bytearray(records)
        set_base_offset(data, base)
        set_leader_epoch(data, self.leader_epoch)
        last = base + batch.last_offset_delta
        self.log.append(StoredBatch(base, last, self.leader_epoch, batch.max_timestamp, bytes(data)))
        self.end = last + 1
        if batch.producer_id >= 0:
            first = batch.base_sequence
            state = self.producers[batch.producer_id]
            state.last.append((first, (first + batch.last_offset_delta) & SEQUENCE_MASK, base))
        waiting, self.appended = self.appended, []
        for each in waiting:
            each()
        return KafkaErrorCode.NONE, base

    def _check_sequence(self, batch: Batch) -> tuple[int, int]:
        """The error code, and the offset of the batch if it is a duplicate (-1 = it is not)."""
        state = self.producers.get(batch.producer_id)
        first, last = batch.base_sequence, (batch.base_sequence + batch.last_offset_delta) & SEQUENCE_MASK
        if state is None:
            self.producers[batch.producer_id] = ProducerState(batch.producer_epoch)
            return KafkaErrorCode.NONE, -1
        if batch.producer_epoch < state.epoch:
            return KafkaErrorCode.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > state.epoch:
            if first != 0:
                return KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.producers[batch.producer_id] = ProducerState(batch.producer_epoch)
            return KafkaErrorCode.NONE, -1
        for known_first, known_last, base in state.last:
            if (known_first, known_last) == (first, last):
                return KafkaErrorCode.NONE, base
        if state.last and first != (state.last[-1][1] + 1) & SEQUENCE_MASK:
            return KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return KafkaErrorCode.NONE, -1

    def read(self, offset: int, bytes_max: int) -> bytes:
        """The batches from an offset on, at least one."""
        found = bytearray()
        for each in self.log:
            if each.last_offset >= offset:
                if found and len(found) + len(each.data) > bytes_max:
                    break  # a smaller one behind it would leave a gap
                found += each.data
        return bytes(found)

    def offset_for(self, timestamp: int) -> tuple[int, int]:
        """Offset and timestamp for a ListOffsets timestamp."""
        if timestamp == LATEST:
            return self.end, -1
        if timestamp == EARLIEST:
            return self.log_start, -1
        records = [record for each in self.log for batch in batches(each.data) for record in batch]
        if timestamp == MAX_TIMESTAMP:
            newest = max(records, key=lambda record: record.timestamp, default=None)
            return (-1, -1) if newest is None else (newest.offset, newest.timestamp)
        for record in records:
            if record.timestamp >= timestamp:
                return record.offset, record.timestamp
        return -1, -1

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch`, and its end offset; (-1, -1) = there is none."""
        found = -1
        for known, start in self.epoch_starts:
            if known > epoch:
                return found, start if found >= 0 else -1
            found = known
        return (found, self.end) if found >= 0 else (-1, -1)

    def new_epoch(self) -> None:
        """Begin a leader epoch at the end of the log."""
        self.leader_epoch += 1
        self.epoch_starts = [(epoch, start) for epoch, start in self.epoch_starts if start < self.end]
        self.epoch_starts.append((self.leader_epoch, self.end))

    def truncate(self, offset: int) -> None:
        """Remove the batches from an offset on and begin a leader epoch, as an unclean election does."""
        self.log = [each for each in self.log if each.last_offset < offset]
        self.end = self.log[-1].last_offset + 1 if self.log else self.log_start
        self.new_epoch()

    def values(self) -> list[bytes | None]:
        """The values of all records."""
        return [record.value for each in self.log for batch in batches(each.data) for record in batch]


@dataclass(slots=True)
class ScriptedTopic:
    """A topic: its id (16 bytes) and its partitions."""

    topic_id: bytes
    partitions: list[ScriptedPartition]


class ScriptedCluster:
    """Topics, leaders and coordinators of all nodes.

    Attributes:
        topics: by name.
        addresses: host and port by node; a stopped node is missing in Metadata if it is removed here.
        coordinators: node by key of FindCoordinator; `coordinator` is used for all other keys.
        auto_create: partitions of a topic that a Metadata request creates; 0 = topics are not created.
    """

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.cluster_id = "scripted"
        self.topics: dict[str, ScriptedTopic] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self.racks: dict[int, str] = {}
        self.controller = 1
        self.coordinator = 1
        self.coordinators: dict[str, int] = {}
        self.auto_create = 0
        self.next_producer_id = 1000
        self.producer_epochs: dict[int, int] = {}
        self.groups: dict[str, Any] = {}  # ScriptedGroup by name
        self.member_ids: set[str] = set()  # assigned to members that have not joined yet
        self.offsets: dict[tuple[str, str, int], tuple[int, int, str | None]] = {}  # (group, topic, partition)

    def create_topic(self, name: str, partitions: int = 1, *, leaders: list[int] | None = None) -> ScriptedTopic:
        """Create a topic; its leaders are all nodes in rotation unless given."""
        nodes = sorted(self.addresses) or [1]
        chosen = leaders or [nodes[index % len(nodes)] for index in range(partitions)]
        topic = ScriptedTopic(self.random.randbytes(16), [ScriptedPartition(each, list(nodes)) for each in chosen])
        self.topics[name] = topic
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic; creating it again gives it another id."""
        del self.topics[name]

    def add_partitions(self, name: str, count: int) -> None:
        """Let a topic grow to `count` partitions."""
        nodes = sorted(self.addresses)
        topic = self.topics[name]
        while len(topic.partitions) < count:
            topic.partitions.append(ScriptedPartition(nodes[len(topic.partitions) % len(nodes)], list(nodes)))

    def move_leader(self, name: str, partition: int, node: int) -> None:
        """Another node (NO_LEADER = none) leads a partition, in a new leader epoch."""
        moved = self.topics[name].partitions[partition]
        moved.leader = node
        moved.new_epoch()

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic id."""
        return next((name for name, topic in self.topics.items() if topic.topic_id == topic_id), None)

    def partition(self, name: str | None, index: int) -> ScriptedPartition | None:
        """A partition, None = unknown."""
        topic = None if name is None else self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    @property
    def duplicates(self) -> int:
        """Number of batches that were recognised as duplicates."""
        return sum(each.duplicates for topic in self.topics.values() for each in topic.partitions)
