"""The assignors against the examples and the code of Kafka 0.8.2 to 1.1."""

import random
from collections.abc import Sequence

import pytest
from kafkalite_sdk.zk.java_strings import hash_code
from kafkalite_sdk.zk.membership.assignors import PARTITION_TEXTS, assign_range, assign_round_robin

from kafkalite.coordination.znodes.consumers import StreamId
from kafkalite.model import TopicPartition


def streams(*texts: str) -> list[StreamId]:
    return [StreamId(text.rpartition("-")[0], int(text.rpartition("-")[2])) for text in texts]


def test_range_is_the_example_of_java() -> None:
    """From the documentation of RangeAssignor in PartitionAssignor.scala."""
    assignment = assign_range({"t": streams("C2-1", "C1-0", "C2-0", "C1-1")}, {"t": range(5)})
    owners = {partition.partition: str(stream) for partition, stream in assignment.items()}
    assert owners == {0: "C1-0", 1: "C1-0", 2: "C1-1", 3: "C2-0", 4: "C2-1"}


def test_streams_are_in_text_order_and_partitions_in_numeric_order() -> None:
    ids = streams(*(f"c-{number}" for number in range(11)))
    owners = assign_range({"t": ids}, {"t": [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]})
    assert [str(owners[TopicPartition("t", number)]) for number in (0, 1, 2, 10)] == ["c-0", "c-1", "c-10", "c-9"]


def test_range_without_partitions_or_streams() -> None:
    assert assign_range({"a": streams("c-0"), "b": []}, {"b": range(3)}) == {}


@pytest.mark.parametrize(("release", "text"), [("0.10", "[t,3]"), ("1.1", "t-3")])
def test_texts_of_partitions(release: str, text: str) -> None:
    assert PARTITION_TEXTS[release](TopicPartition("t", 3)) == text


def test_round_robin_follows_the_hashes() -> None:
    ids = streams("a-0", "a-1", "b-0")
    assignment = assign_round_robin({"t": ids}, {"t": range(7)}, "1.1")
    ordered = sorted(range(7), key=lambda number: hash_code(f"t-{number}"))
    assert [assignment[TopicPartition("t", number)] for number in ordered] == [*ids, *ids, ids[0]]


def test_releases_order_partitions_differently() -> None:
    """Negative hashes are lower in Java, too: `[orders,0]` and `orders-0` have different signs."""
    both = [
        assign_round_robin(
            {"orders": streams("a-0", "b-0"), "t": streams("a-0")}, {"orders": range(12), "t": [0]}, each
        )
        for each in PARTITION_TEXTS
    ]
    assert both[0] != both[1]


def java_round_robin(
    readers: dict[str, Sequence[StreamId]], partitions: dict[str, Sequence[int]], release: str
) -> dict[TopicPartition, StreamId]:
    """RoundRobinAssignor.assign, with its circular iterator and `dropWhile`."""
    ids = sorted({each for those in readers.values() for each in those}, key=str)

    def circular():  # type: ignore[no-untyped-def]
        while True:
            yield from ids

    iterator = circular()
    every = [TopicPartition(topic, number) for topic in readers for number in partitions[topic]]
    assignment = {}
    for partition in sorted(every, key=lambda each: (hash_code(PARTITION_TEXTS[release](each)), each)):
        assignment[partition] = next(each for each in iterator if each in readers[partition.topic])
    return assignment


def test_round_robin_of_different_subscriptions_is_that_of_java() -> None:
    chance = random.Random(1)
    for _ in range(100):
        topics = chance.sample("abcdef", 4)
        everyone = [StreamId(f"c{number}", stream) for number in range(4) for stream in range(3)]
        readers: dict[str, Sequence[StreamId]] = {
            each: chance.sample(everyone, chance.randint(1, 12)) for each in topics
        }
        partitions: dict[str, Sequence[int]] = {each: range(chance.randint(0, 9)) for each in topics}
        for release in PARTITION_TEXTS:
            expected = java_round_robin(readers, partitions, release)
            assert assign_round_robin(readers, partitions, release) == expected
