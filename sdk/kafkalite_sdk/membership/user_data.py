"""User data in the subscriptions of Java's sticky assignors: `sticky` has its previous partitions and their generation,
`cooperative-sticky` the generation of the owned partitions that the subscription lists.

Pure. Sources: StickyAssignor.java and CooperativeStickyAssignor.java of Apache Kafka 4.3; rdkafka_sticky_assignor.c of
librdkafka.
"""

import struct
from collections.abc import Iterable

from kafkalite.errors import DecodeError
from kafkalite.model import TopicPartition
from kafkalite.protocol.stored.consumer_protocol import ConsumerProtocolAssignment, read_assignment, write

NO_GENERATION = -1
GENERATION = struct.Struct(">i")
VERSION_SIZE = 2
NO_USER_DATA = GENERATION.pack(-1)  # the length of null

Previous = tuple[frozenset[TopicPartition], int]
NOTHING: Previous = (frozenset(), NO_GENERATION)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by topic, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def generation_data(generation: int) -> bytes:
    """The user data of `cooperative-sticky`."""
    return GENERATION.pack(generation)


def generation_in(data: bytes) -> int:
    """The generation in user data of `cooperative-sticky`, -1 = there is none."""
    return int(GENERATION.unpack_from(data)[0]) if len(data) >= GENERATION.size else NO_GENERATION


def previous_assignment_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """The user data of `sticky`: topics with their partitions as in an assignment, then the generation."""
    assigned = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
    assignment = write(ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None), 0)
    return assignment[VERSION_SIZE : -len(NO_USER_DATA)] + GENERATION.pack(generation)


def previous_assignment(data: bytes) -> Previous:
    """The partitions and the generation in user data of `sticky`. Clients before Kafka 2.3 write no generation;
    malformed data has no partitions, as in Java.
    """
    if len(data) >= GENERATION.size and (partitions := _partitions(data[: -GENERATION.size])) is not None:
        return partitions, generation_in(data[-GENERATION.size :])
    return (_partitions(data) or NOTHING[0], NO_GENERATION) if data else NOTHING


def _partitions(topics: bytes) -> frozenset[TopicPartition] | None:
    """The partitions of topics in the layout of an assignment; None unless they are all of the bytes."""
    assignment = bytes(VERSION_SIZE) + topics + NO_USER_DATA
    try:
        read = read_assignment(assignment)
    except DecodeError:
        return None
    if read.user_data is not None or write(read, 0) != assignment:
        return None
    return frozenset(
        TopicPartition(each.topic, number) for each in read.assigned_partitions for number in each.partitions
    )
