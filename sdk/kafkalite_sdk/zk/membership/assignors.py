"""The assignments of Kafka 0.8.2 to 1.1: each consumer computes them from the registrations and the topics.

Deviation: partitions with equal hashes are ordered by topic and number; their order is not defined in Java.
Kafka 0.8.2 refuses round robin unless all consumers read the same topics with as many streams; later releases do not,
and nor does this one.

Source: PartitionAssignor.scala and TopicCount.scala of Apache Kafka 0.8.2.2, 0.10.2.2 and 1.1.1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from kafkalite.coordination.znodes.consumers import StreamId
from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.java_strings import hash_code, utf16_order

RANGE = "range"
ROUND_ROBIN = "roundrobin"
STRATEGIES = (RANGE, ROUND_ROBIN)
Streams: TypeAlias = Mapping[str, Sequence[StreamId]]
Numbers: TypeAlias = Mapping[str, Sequence[int]]
Assignment: TypeAlias = dict[TopicPartition, StreamId]

# TopicAndPartition.toString by release, from 0.8.2 to 0.10.2 and in 1.0 and 1.1: all consumers of a group must agree.
PARTITION_TEXTS: Mapping[str, Callable[[TopicPartition], str]] = {
    "0.10": lambda partition: f"[{partition.topic},{partition.partition}]",
    "1.1": lambda partition: f"{partition.topic}-{partition.partition}",
}


def assign_range(streams: Streams, partitions: Numbers) -> Assignment:
    """Assign ranges of each topic's partitions to its streams, in text order; the first ones get one partition more.

    Arguments:
        streams: those that read each topic.
        partitions: numbers of the partitions of each topic; one without is not assigned.
    """
    return {
        TopicPartition(topic, partition): stream
        for topic, readers in streams.items()
        for partition, stream in _ranges(_in_order(readers), sorted(partitions.get(topic, ())))
    }


def assign_round_robin(streams: Streams, partitions: Numbers, release: str = "1.1") -> Assignment:
    """Assign the partitions of all topics in turn to all streams, in text order; a stream takes only its topics.

    Arguments:
        streams: those that read each topic, of all topics of the group.
        partitions: numbers of the partitions of each topic.
        release: a key of PARTITION_TEXTS; the order of the partitions is that of the hashes of their texts.
    """
    readers = {topic: frozenset(ids) for topic, ids in streams.items()}
    ordered = _in_order({stream for ids in readers.values() for stream in ids})
    assignment: Assignment = {}
    at = 0
    for partition in _by_hash(streams, partitions, PARTITION_TEXTS[release]):
        while ordered[at % len(ordered)] not in readers[partition.topic]:
            at += 1
        assignment[partition] = ordered[at % len(ordered)]
        at += 1
    return assignment


def _in_order(streams: Iterable[StreamId]) -> list[StreamId]:
    return sorted(streams, key=lambda stream: utf16_order(str(stream)))


def _ranges(streams: Sequence[StreamId], partitions: Sequence[int]) -> Iterable[tuple[int, StreamId]]:
    if not streams:
        return
    size, more = divmod(len(partitions), len(streams))
    start = 0
    for at, stream in enumerate(streams):
        end = start + size + (at < more)
        for partition in partitions[start:end]:
            yield partition, stream
        start = end


def _by_hash(streams: Streams, partitions: Numbers, text: Callable[[TopicPartition], str]) -> list[TopicPartition]:
    all_partitions = [
        TopicPartition(topic, partition)
        for topic, ids in streams.items()
        if ids
        for partition in partitions.get(topic, ())
    ]
    return sorted(all_partitions, key=lambda partition: (hash_code(text(partition)), partition))
