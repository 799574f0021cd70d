"""Partitions and positions as users write them: `orders`, `orders:0,2`; earliest, latest, an offset, a time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kafkalite.cli.failure import fail
from kafkalite.cli.leaders import EARLIEST, LATEST, Leaders
from kafkalite.model import TopicPartition

OFFSET_MAX = 2**63 - 1
DIGITS_MAX = 19  # of a number of 64 bits; Python refuses to read texts of thousands of digits
TO_HELP = "earliest, latest, an offset, a time (2013-07-01, 2013-07-01T12:00:00Z; UTC if not said) or @MILLISECONDS."

_PARTITION = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True)
class To:
    """Where to go: an offset, or else what ListOffsets is asked for (a time in ms, EARLIEST, LATEST)."""

    offset: int | None
    timestamp: int = LATEST

    async def found(self, leaders: Leaders, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that is meant in each partition: the log end where nothing is so late, never outside the log."""
        first = await leaders.offsets(dict.fromkeys(places, EARLIEST))
        last = await leaders.offsets(dict.fromkeys(places, LATEST))
        if self.offset is not None:
            return {place: min(max(self.offset, first[place]), last[place]) for place in places}
        found = await leaders.offsets(dict.fromkeys(places, self.timestamp))
        return {place: last[place] if found[place] < 0 else found[place] for place in places}


def parse_to(text: str) -> To:
    """What --to says; ends the command when it says nothing that is known."""
    if text.lower() in ("earliest", "latest"):
        return To(None, EARLIEST if text.lower() == "earliest" else LATEST)
    number = text.removeprefix("@")
    if number.isascii() and number.isdecimal():
        if len(number.lstrip("0")) > DIGITS_MAX or int(number) > OFFSET_MAX:
            fail(f"{text!r} is larger than any offset or time")
        return To(None, int(number)) if text.startswith("@") else To(int(number))
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{text!r} is no place to go to; write {TO_HELP.removesuffix('.')}")
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    if (milliseconds := int(when.timestamp() * 1000)) < 0:
        fail(f"{text!r} is before 1970, where records have no time")
    return To(None, milliseconds)


def parse_topics(texts: Sequence[str]) -> dict[str, list[int] | None]:
    """Topics with the partitions that are meant, None for all: `t` or `t:0,2`; ends the command for anything else."""
    wanted: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        chosen = [int(each) for each in numbers.split(",") if _PARTITION.fullmatch(each)]
        if not topic or (colon and len(chosen) != len(numbers.split(","))):
            fail(f"{text!r} names no partitions; write TOPIC, TOPIC:0 or TOPIC:0,2")
        before = wanted.get(topic, [])
        wanted[topic] = sorted({*before, *chosen}) if colon and before is not None else None
    return wanted


async def chosen_places(leaders: Leaders, wanted: Mapping[str, list[int] | None]) -> list[TopicPartition]:
    """The partitions that are meant; ends the command for a topic or a partition that is not there."""
    places = []
    for topic, numbers in wanted.items():
        total = await leaders.partitions(topic)
        for number in range(total) if numbers is None else numbers:
            if number >= total:
                fail(f"{topic} has partitions 0 to {total - 1}, not {number}")
            places.append(TopicPartition(topic, number))
    return sorted(places)
