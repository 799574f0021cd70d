"""Which stream owns which partition by Kafka's rules: written for tests, beside the assignors of the SDK.

PartitionAssignor.scala of Kafka 1.1.1. The tests compare it with Java's answers, and groups of both languages with it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping

TopicPartition = tuple[str, int]
INTERNAL_TOPICS = {"__consumer_offsets", "__transaction_state"}


def hash_code(text: str) -> int:
    """`String.hashCode` of Java: a signed number of 32 bits over UTF-16 code units."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def streams_by_topic(consumers: Mapping[str, str], topics: Mapping[str, int]) -> dict[str, list[str]]:
    """The stream ids of each topic that a consumer subscribes to, in text order.

    Arguments:
        consumers: the text of the registration of each consumer, by its id.
        topics: number of partitions of each topic in ZooKeeper.
    """
    found: dict[str, list[str]] = {}
    for consumer, text in consumers.items():
        for topic, count in _counts(json.loads(text), topics).items():
            found.setdefault(topic, []).extend(f"{consumer}-{number}" for number in range(count))
    return {topic: sorted(streams) for topic, streams in found.items()}


def _counts(registration: Mapping[str, object], topics: Mapping[str, int]) -> dict[str, int]:
    subscription = registration["subscription"]
    assert isinstance(subscription, dict)
    if registration["pattern"] == "static":
        return subscription
    ((pattern, count),) = subscription.items()
    wanted = registration["pattern"] == "white_list"
    return {
        topic: count
        for topic in topics
        if topic not in INTERNAL_TOPICS and (re.fullmatch(pattern, topic) is not None) is wanted
    }


def range_owners(consumers: Mapping[str, str], topics: Mapping[str, int]) -> dict[TopicPartition, str]:
    """The owner of each partition by the range assignor."""
    owners = {}
    for topic, streams in streams_by_topic(consumers, topics).items():
        each, more = divmod(topics.get(topic, 0), len(streams))
        counts = [each + (number < more) for number in range(len(streams))]
        order = itertools.chain.from_iterable([stream] * count for stream, count in zip(streams, counts, strict=True))
        owners |= {(topic, partition): stream for partition, stream in enumerate(order)}
    return owners


def round_robin_owners(
    consumers: Mapping[str, str], topics: Mapping[str, int], text: str = "{}-{}"
) -> dict[TopicPartition, str]:
    """The owner of each partition by the round-robin assignor.

    Arguments:
        consumers, topics: see `streams_by_topic`.
        text: of a partition, whose hash code orders it: `[{},{}]` up to 0.10.2.
    """
    by_topic = streams_by_topic(consumers, topics)
    partitions = [(topic, partition) for topic in by_topic for partition in range(topics.get(topic, 0))]
    streams = itertools.cycle(sorted({stream for each in by_topic.values() for stream in each}))
    owners = {}
    for topic, partition in sorted(partitions, key=lambda each: (hash_code(text.format(*each)), each)):
        owners[topic, partition] = next(stream for stream in streams if stream in by_topic[topic])
    return owners
