"""The partitions of a transaction are a set, whatever the order in which they were added."""

from random import Random

import pytest

from kafkalite.model import TopicPartition
from kafkalite.state.transactions.partitions import NO_PARTITIONS, TransactionPartitions

SEEDS = range(50)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_unions_are_those_of_frozensets(seed: int) -> None:
    dice = Random(seed)
    found, expected = NO_PARTITIONS, frozenset[TopicPartition]()
    for _ in range(dice.randrange(1, 6)):
        added = frozenset(TopicPartition(dice.choice("abc"), dice.randrange(9)) for _ in range(dice.randrange(9)))
        before = found
        found, expected = found | added, expected | added
        assert found == expected and expected == found and hash(found) == hash(expected)
        assert len(found) == len(expected) and set(found) == expected and bool(found) is bool(expected)
        assert (added <= found, found <= added) == (True, expected <= added)
        asked = TopicPartition(dice.choice("abcd"), dice.randrange(10))
        assert (asked in found) is (asked in expected)
        assert (frozenset([asked]) <= found) is (asked in expected)
        assert set(before) <= expected, "the earlier set has not changed"


def test_set_of_nothing_is_equal_to_no_partitions() -> None:
    assert TransactionPartitions.of([]) == NO_PARTITIONS == frozenset() and not NO_PARTITIONS
    assert TransactionPartitions.of([TopicPartition("a", 1)]) != NO_PARTITIONS


def test_other_objects_are_no_members() -> None:
    partitions = TransactionPartitions.of([TopicPartition("a", 1)])
    assert ("a", 1) in partitions and "a" not in partitions and ("a", 1, 2) not in partitions and None not in partitions


def test_operators_of_sets_return_partitions() -> None:
    partitions = TransactionPartitions.of([TopicPartition("a", 1), TopicPartition("b", 2)])
    left = partitions - {TopicPartition("a", 1)}
    assert isinstance(left, TransactionPartitions) and left.by_topic == {"b": frozenset({2})}
