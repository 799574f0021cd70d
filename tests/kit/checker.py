"""Did the log keep its word? A history of sends, answers and reads, and the rules that judge it.

The rules are those of Jepsen's Kafka workload that apply to sends without transactions and to readers that assign
themselves their partitions. Every value is a number that is sent once, so a value names its send.

| anomaly | rule |
|---|---|
| lost-write | an acknowledged value is missing, though a full reading saw a later offset |
| unseen | an acknowledged value is missing at the end of a full reading |
| lost-read | a reader saw a value that a later full reading does not have |
| inconsistent-offsets | one offset held two values, by answers or by reads |
| duplicate | one value lies at two offsets |
| nonmonotonic-send | a later send of one producer lies below an earlier one of the same partition |
| nonmonotonic-poll | a reader's offsets repeat or go back |
| poll-skip | a reader jumped over an offset that holds a value |
| torn-batch | a full reading has a part of a batch |
| refused-read | a value that was rejected without a retry was read |
| unsent | what was read was never sent to this partition, or was changed |
| unresolved | the awaitable of a send has no outcome |
| resolved-again | the awaitable of a send has two outcomes |

The last two apply to producers whose sends return awaitables (`awaited`). `group_checker` adds rules for groups.

A send whose answer never came may be in the log or not. Offsets may be sparse. On a compacted partition a value may be
missing once the same key has a later one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Partition = tuple[str, int]
Reading = dict[Partition, list[tuple[int, int]]]  # (offset, number) in the order in which they were read
UNKNOWN, ACKNOWLEDGED, REFUSED = range(3)
DAMAGED = -1  # the number of a value that does not read


class ViolationError(AssertionError):
    """A promise was broken: no second run excuses it, see `tests/fix_failures.py`."""


class Anomaly(NamedTuple):
    """A rule that was broken, where, and by what."""

    name: str
    partition: Partition
    text: str


class Send:
    """One value on its way: its batch is the number of the batch's first value."""

    __slots__ = ("answered_s", "batch", "key", "offset", "outcome", "outcomes", "partition", "producer")

    def __init__(self, producer: str, partition: Partition, batch: int, key: int | None) -> None:
        self.producer = producer
        self.partition = partition
        self.batch = batch
        self.key = key
        self.outcome = UNKNOWN
        self.outcomes = 0  # of its awaitable
        self.offset = -1
        self.answered_s = 0.0  # by time.monotonic()


class History:
    """What happened to the partitions of a test. `compacted`: the topics on which older values of a key may go.

    While it is `deaf`, answers and readings are not noted: a machine without power sends no response.
    """

    def __init__(self, compacted: Iterable[str] = ()) -> None:
        self.compacted = frozenset(compacted)
        self.deaf = False
        self.awaited: set[str] = set()  # producers whose sends return awaitables
        self.sends: dict[int, Send] = {}
        self.reads: dict[str, Reading] = {}
        self.acknowledged_count = 0

    def sent(self, producer: str, partition: Partition, numbers: Sequence[int], keys: Sequence[int] = ()) -> None:
        """A batch leaves: its values in their order. `keys` of a compacted topic, one for each value."""
        for position, number in enumerate(numbers):
            assert number not in self.sends, f"{number} is sent twice: a value must name its send"
            key = keys[position] if keys else None
            self.sends[number] = Send(producer, partition, numbers[0], key)

    def acknowledged(self, numbers: Sequence[int], base_offset: int | None) -> None:
        """The broker acknowledged the batch at `base_offset`.

        None: the offset is not known. librdkafka reports a batch as delivered without an offset when the response was
        an error, such as NOT_ENOUGH_REPLICAS for a repeated batch, and a later batch of its sequence is acknowledged.
        """
        if self.deaf:
            return
        now = time.monotonic()
        for position, number in enumerate(numbers):
            self.sends[number].outcome = ACKNOWLEDGED
            self.sends[number].offset = -1 if base_offset is None else base_offset + position
            self.sends[number].answered_s = now
        self.acknowledged_count += len(numbers)

    def refused(self, numbers: Sequence[int]) -> None:
        """The broker rejected the batch: it must never be in the log."""
        if self.deaf:
            return
        for number in numbers:
            self.sends[number].outcome = REFUSED

    def resolved(self, number: int) -> None:
        """The awaitable of a send has an outcome."""
        self.sends[number].outcomes += 1

    def reading(self, reader: str, partitions: Iterable[Partition]) -> None:
        """A reader begins on these partitions; also one that then finds nothing."""
        for partition in partitions:
            self.reads.setdefault(reader, {}).setdefault(partition, [])

    def read(self, reader: str, partition: Partition, offset: int, number: int) -> None:
        """A reader got a value (`DAMAGED` when it makes no sense)."""
        if self.deaf:
            return
        self.reads.setdefault(reader, {}).setdefault(partition, []).append((offset, number))

    def highest_acknowledged(self, partition: Partition) -> int:
        """The highest acknowledged offset of a partition, -1 if there is none."""
        return max((send.offset for send in self.sends.values() if send.partition == partition), default=-1)


def check(history: History, full: str) -> list[Anomaly]:
    """Everything that is wrong with a history; empty when the log kept its word.

    Arguments:
        history: sends, answers, reads.
        full: the reader that read every partition from its beginning to its end, after all the others.
    """
    found = [*_answers_and_reads(history), *_polls(history), *_sends(history), *_missing(history, full)]
    return [*found, *_outcomes(history)]


def _outcomes(history: History) -> Iterator[Anomaly]:
    """Awaitables without exactly one outcome."""
    for number, send in history.sends.items():
        if send.producer in history.awaited and send.outcomes != 1:
            name = "resolved-again" if send.outcomes else "unresolved"
            yield Anomaly(name, send.partition, f"{number} of {send.producer} has {send.outcomes} outcomes")


def _answers_and_reads(history: History) -> Iterator[Anomaly]:
    """What one offset held, and where one value lay."""
    for partition, held in _held(history).items():
        topic_partitions: defaultdict[int, set[int]] = defaultdict(set)
        for offset, numbers in sorted(held.items()):
            if len(numbers) > 1:
                yield Anomaly("inconsistent-offsets", partition, f"offset {offset} held {sorted(numbers)}")
            for number in numbers:
                topic_partitions[number].add(offset)
        for number, offsets in topic_partitions.items():
            yield from _value(history, partition, number, sorted(offsets))


def _value(history: History, partition: Partition, number: int, offsets: list[int]) -> Iterator[Anomaly]:
    send = history.sends.get(number)
    if send is None or send.partition != partition:
        what = "a damaged value" if number == DAMAGED else f"{number}"
        yield Anomaly("unsent", partition, f"{what} at {offsets}")
        return
    if len(offsets) > 1:
        yield Anomaly("duplicate", partition, f"{number} of {send.producer} lies at {offsets}")
    if send.outcome == REFUSED:
        yield Anomaly("refused-read", partition, f"{number} of {send.producer} was refused and lies at {offsets}")


def _held(history: History) -> dict[Partition, dict[int, set[int]]]:
    """Partition -> offset -> the values that answers and reads put there."""
    held: defaultdict[Partition, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for number, send in history.sends.items():
        if send.offset >= 0:
            held[send.partition][send.offset].add(number)
    for partitions in history.reads.values():
        for partition, found in partitions.items():
            for offset, number in found:
                held[partition][offset].add(number)
    return {partition: dict(offsets) for partition, offsets in held.items()}


def _polls(history: History) -> Iterator[Anomaly]:
    """The order in which each reader saw a partition, and what it passed over."""
    known = {partition: sorted(held) for partition, held in _held(history).items()}
    for reader, partitions in history.reads.items():
        for partition, found in partitions.items():
            last = -1
            for offset, _ in found:
                if offset <= last:
                    yield Anomaly("nonmonotonic-poll", partition, f"{reader} read {offset} after {last}")
                last = offset
            if found and partition[0] not in history.compacted:
                seen = {offset for offset, _ in found}
                first, last = min(seen), max(seen)
                passed = [each for each in known[partition] if first < each < last and each not in seen]
                if passed:
                    text = f"{reader} passed over {len(passed)} offsets, the first is {passed[0]}"
                    yield Anomaly("poll-skip", partition, text)


def _sends(history: History) -> Iterator[Anomaly]:
    """The order of each producer's values in each partition, wherever their place is known."""
    position = _topic_partitions(history)
    last: dict[tuple[str, Partition], tuple[int, int]] = {}
    for number, send in history.sends.items():
        offset = send.offset if send.offset >= 0 else position.get(number, -1)
        if offset < 0:
            continue
        before = last.get((send.producer, send.partition))
        if before is not None and offset < before[0]:
            text = f"{number} of {send.producer} lies at {offset}, the earlier {before[1]} at {before[0]}"
            yield Anomaly("nonmonotonic-send", send.partition, text)
        last[send.producer, send.partition] = (offset, number)


def _topic_partitions(history: History) -> dict[int, int]:
    """Every value that anybody read, and where."""
    readings = [found for partitions in history.reads.values() for found in partitions.values()]
    return {number: offset for found in readings for offset, number in found}


def _missing(history: History, full: str) -> Iterator[Anomaly]:
    """What the full reading does not have."""
    reading = history.reads[full]
    seen = {number for found in reading.values() for _, number in found}
    ends = {partition: max((offset for offset, _ in found), default=-1) for partition, found in reading.items()}
    latest = _latest_of_keys(history, reading)
    read_before = set(_topic_partitions(history))
    batches: defaultdict[int, list[bool]] = defaultdict(list)
    for number, send in history.sends.items():
        if send.partition not in reading:
            continue
        there = number in seen
        superseded = send.key is not None and latest.get((send.partition, send.key), -1) > send.offset >= 0
        if send.partition[0] not in history.compacted:
            batches[send.batch].append(there)
        if there or superseded:
            continue
        if send.outcome == ACKNOWLEDGED:
            name = "lost-write" if ends[send.partition] > send.offset else "unseen"
            text = f"{number} of {send.producer}, acknowledged at {send.offset}; read up to {ends[send.partition]}"
            yield Anomaly(name, send.partition, text)
        elif number in read_before and send.partition[0] not in history.compacted:
            yield Anomaly("lost-read", send.partition, f"{number} of {send.producer} was read before")
    for batch, there in batches.items():
        if any(there) and not all(there):
            send = history.sends[batch]
            text = f"{sum(there)} of {len(there)} values of batch {batch} of {send.producer}"
            yield Anomaly("torn-batch", send.partition, text)


def _latest_of_keys(history: History, reading: Reading) -> dict[tuple[Partition, int], int]:
    """(partition, key) -> the highest offset at which the full reading has the key, on compacted topics."""
    latest: dict[tuple[Partition, int], int] = {}
    for partition, found in reading.items():
        for offset, number in found:
            send = history.sends.get(number)
            if partition[0] in history.compacted and send is not None and send.key is not None:
                latest[partition, send.key] = max(offset, latest.get((partition, send.key), -1))
    return latest
