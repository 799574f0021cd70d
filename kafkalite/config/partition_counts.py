"""Reads `topic.partition.count.map`: how many partitions single topics get when they are created automatically.

Source: `topic.partition.count.map` of Kafka 0.7 (KafkaConfig.scala), which later versions do not have.
"""

from kafkalite.config.keys import ConfigError
from kafkalite.model import PARTITIONS_PER_REQUEST_MAX, TOPIC_NAME

NAME = "topic.partition.count.map"


def parse_partition_counts(text: str) -> dict[str, int]:
    """Return the number of partitions by topic of TOPIC:COUNT, comma-separated.

    Raises ConfigError: a member is no such pair, has no valid name of a topic, a number that no request may create, or
    the topic of another member.
    """
    counts: dict[str, int] = {}
    for member in filter(None, (part.strip() for part in text.split(","))):
        topic, _colon, digits = member.rpartition(":")
        if TOPIC_NAME.fullmatch(topic) is None or (count := _count(digits)) is None:
            raise _wrong(
                member,
                f"expected TOPIC:COUNT with the name of a topic and a number from 1 to {PARTITIONS_PER_REQUEST_MAX}",
            )
        if topic in counts:
            raise _wrong(member, f"the topic {topic} has a number already, expected each topic once")
        counts[topic] = count
    return counts


def _count(digits: str) -> int | None:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    return int(digits) if 1 <= int(digits) <= PARTITIONS_PER_REQUEST_MAX else None


def _wrong(member: str, reason: str) -> ConfigError:
    return ConfigError(NAME, f"Invalid value {member!r} for configuration {NAME}: {reason}")
