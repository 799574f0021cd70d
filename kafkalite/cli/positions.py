"""Partitions and positions in the notation of users: `orders`, `orders:0,2`; start, latest, an offset, a time.

Positions are those of kafka-consumer-groups (earliest, latest, an offset, a time) and of rpk (start, end, @timestamp,
+N, -N).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalite_sdk import Admin

from kafkalite.cli.client_options import POSITIONS, SHOWN_MAX, fail_for
from kafkalite.cli.failure import PartitionSubject, fail
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition

OFFSET_MAX = 2**63 - 1
EARLIEST, LATEST = -2, -1
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"  # isolation levels
DIGITS_MAX = 19  # of a number of 64 bits; Python refuses to read texts of thousands of digits
TO_HELP = f"{POSITIONS}."
NAMED = {"start": EARLIEST, "earliest": EARLIEST, "end": LATEST, "latest": LATEST}

_SHIFT = re.compile(r"[+-][0-9]+", re.ASCII)
_PARTITION = re.compile(r"[0-9]{1,10}", re.ASCII)


class Position(NamedTuple):
    """A position in a log.

    Attributes:
        offset: the offset, None for a position that the broker looks up.
        timestamp: of a ListOffsets request: ms since 1970, EARLIEST or LATEST.
        shift: number of offsets added to the one that the broker returns.
    """

    offset: int | None
    timestamp: int = LATEST
    shift: int = 0

    async def found(self, admin: Admin, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of this position in each partition, limited to the log; the log end if no record is so late."""
        first = await offsets(admin, topic_partitions, EARLIEST)
        last = await offsets(admin, topic_partitions, LATEST)
        if self.offset is not None:
            found = dict.fromkeys(topic_partitions, self.offset)
        else:
            found = await offsets(admin, topic_partitions, self.timestamp)
            found = {
                topic_partition: last[topic_partition]
                if found[topic_partition] < 0
                else found[topic_partition] + self.shift
                for topic_partition in topic_partitions
            }
        return {
            topic_partition: min(max(found[topic_partition], first[topic_partition]), last[topic_partition])
            for topic_partition in topic_partitions
        }


async def offsets(
    admin: Admin, topic_partitions: Sequence[TopicPartition], timestamp: int, isolation: str = COMMITTED
) -> dict[TopicPartition, int]:
    """The first offset at or after a time (in ms, or EARLIEST or LATEST) of each partition, -1 = none is so late."""
    outcomes = await admin.partitions.offsets(dict.fromkeys(topic_partitions, timestamp), isolation_level=isolation)
    fail_for({PartitionSubject.of(topic_partition): error for topic_partition, error in outcomes.errors.items()})
    return {topic_partition: each.offset for topic_partition, each in outcomes.items()}


def require_in_logs(offset: int, ends: Mapping[TopicPartition, int]) -> None:
    """End the command if logs end before an offset: with a digit too many, all their records would be deleted."""
    short = [f"{each} ends at {end}" for each, end in ends.items() if end < offset]
    if short:
        more = f" and {len(short) - SHOWN_MAX} more" if len(short) > SHOWN_MAX else ""
        fail(f"{offset}: {', '.join(short[:SHOWN_MAX])}{more}; nothing was deleted, `--before end` deletes all records")


def parse_to(text: str) -> Position:
    """The position that --to names; ends the command if the text is not a position."""
    if text.lower() in NAMED:
        return Position(None, NAMED[text.lower()])
    if _SHIFT.fullmatch(text):
        shift = parse_number(text, text[1:])
        return Position(None, EARLIEST, shift) if text.startswith("+") else Position(None, LATEST, -shift)
    digits = text.removeprefix("@")
    if digits.isascii() and digits.isdecimal():
        number = parse_number(text, digits)
        return Position(None, number) if text.startswith("@") else Position(number)
    from datetime import UTC, datetime  # most commands name no time

    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{text!r} is not a valid position; write {TO_HELP.removesuffix('.')}")
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    if (milliseconds := int(when.timestamp() * 1000)) < 0:
        fail(f"{text!r} is before 1970, the earliest timestamp of a record")
    return Position(None, milliseconds)


def parse_number(text: str, digits: str) -> int:
    """The number in the digits of `text`; ends the command if it does not fit into 64 bits."""
    if len(digits.lstrip("0")) > DIGITS_MAX or int(digits) > OFFSET_MAX:
        fail(f"{text!r} is larger than any offset or time")
    return int(digits)


def parse_topics(texts: Sequence[str]) -> dict[str, list[int] | None]:
    """Topics with the selected partitions, None for all: `t` or `t:0,2`; ends the command for anything else."""
    wanted: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        chosen = [int(each) for each in numbers.split(",") if _PARTITION.fullmatch(each)]
        if not topic or (colon and len(chosen) != len(numbers.split(","))):
            fail(f"{text!r} does not name partitions; write TOPIC, TOPIC:0 or TOPIC:0,2")
        before = wanted.get(topic, [])
        wanted[topic] = sorted({*before, *chosen}) if colon and before is not None else None
    return wanted


async def chosen_partitions(admin: Admin, wanted: Mapping[str, list[int] | None]) -> list[TopicPartition]:
    """The selected partitions; ends the command if a topic or a partition does not exist."""
    described = await admin.topics.describe(*wanted)
    fail_for(described.errors)
    topic_partitions = []
    for topic, numbers in wanted.items():
        total = len(described[topic].partitions)
        for number in range(total) if numbers is None else numbers:
            if number >= total:
                fail(f"{topic} has partitions 0 to {total - 1}, not {number}")
            topic_partitions.append(TopicPartition(topic, number))
    return sorted(topic_partitions)


async def existing(admin: Admin, topic_partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Those of these partitions that exist."""
    described = await admin.topics.describe(*sorted({each.topic for each in topic_partitions}))
    missing = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fail_for({topic: error for topic, error in described.errors.items() if error.code != missing})
    sizes = {topic: len(each.partitions) for topic, each in described.results.items()}
    return {each for each in topic_partitions if each.partition < sizes.get(each.topic, 0)}
