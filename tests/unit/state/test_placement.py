"""Replica placement: the results of Kafka 3.9.2's AdminUtils, and the properties behind them."""

from collections import Counter

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.placement import PlacementError, alternate_racks, assign_replicas

SIX = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
PAIRS = {0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}
Racks = dict[int, str | None]


def without_racks(*brokers: int) -> Racks:
    return dict.fromkeys(brokers)


# Racks, partitions, replication factor, Kafka's fixedStartIndex (our first_index and shift), startPartitionId, and what
# Kafka returned. The first rows are the inputs of AdminRackAwareTest and AdminTest.
KAFKAS: list[tuple[Racks, int, int, int, int, list[list[int]]]] = [
    (SIX, 7, 3, 0, 0, [[0, 3, 1], [3, 1, 5], [1, 5, 4], [5, 4, 2], [4, 2, 0], [2, 0, 3], [0, 4, 2]]),
    (
        {broker: rack for broker, rack in SIX.items() if broker != 5},
        *(7, 3, 0, 0),
        [[0, 3, 1], [3, 1, 0], [1, 4, 0], [4, 2, 0], [2, 0, 3], [0, 2, 3], [3, 0, 1]],
    ),
    (PAIRS, 6, 3, 2, 0, [[3, 2, 0], [5, 4, 1], [2, 0, 3], [4, 1, 5], [0, 3, 2], [1, 5, 4]]),
    (
        PAIRS,
        *(13, 3, 0, 0),
        [[0, 1, 3], [1, 3, 5], [3, 5, 2], [5, 2, 4], [2, 4, 0], [4, 0, 1], [0, 2, 4], [1, 4, 0], [3, 0, 1], [5, 1, 3],
         [2, 3, 5], [4, 5, 2], [0, 3, 2]],
    ),
    (
        {0: "rack1", 1: "rack1", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"},
        *(12, 3, 1, 0),
        [[2, 5, 3], [3, 0, 2], [1, 2, 3], [4, 1, 2], [5, 4, 2], [0, 4, 2], [2, 1, 4], [3, 5, 2], [1, 2, 3], [4, 0, 2],
         [5, 2, 3], [0, 3, 2]],
    ),
    (
        {6 + broker: rack for broker, rack in PAIRS.items()},
        *(12, 2, 4, 12),
        [[8, 10], [10, 6], [6, 7], [7, 9], [9, 11], [11, 8], [8, 9], [10, 11], [6, 8], [7, 10], [9, 6], [11, 7]],
    ),
    (
        PAIRS | {5: "rack2"},
        *(6, 5, 3, 0),
        [[2, 3, 0, 1, 4], [4, 2, 0, 1, 3], [5, 4, 0, 1, 3], [0, 5, 3, 2, 4], [1, 0, 3, 2, 4], [3, 1, 0, 2, 4]],
    ),
    (dict.fromkeys(range(6), "r"), 6, 3, 2, 0, [[2, 5, 0], [3, 0, 1], [4, 1, 2], [5, 2, 3], [0, 3, 4], [1, 4, 5]]),
    (
        {0: "a", 1: "b", 2: "c", 3: "a", 4: "a"},
        *(6, 4, 2, 0),
        [[2, 0, 1, 3], [3, 1, 2, 4], [4, 2, 1, 3], [0, 1, 2, 3], [1, 4, 2, 3], [2, 4, 1, 3]],
    ),
    ({0: "a", 1: "b"}, 5, 1, 1, 3, [[0], [1], [0], [1], [0]]),
    (
        without_racks(0, 1, 2, 3, 4),
        *(10, 3, 0, 0),
        [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1], [0, 2, 3], [1, 3, 4], [2, 4, 0], [3, 0, 1], [4, 1, 2]],
    ),
    (
        without_racks(0, 1, 2, 3, 4),
        *(6, 5, 4, 3),
        [[2, 3, 4, 0, 1], [3, 4, 0, 1, 2], [4, 1, 2, 3, 0], [0, 2, 3, 4, 1], [1, 3, 4, 0, 2], [2, 4, 0, 1, 3]],
    ),
    (without_racks(7), 3, 1, 0, 0, [[7], [7], [7]]),
    (without_racks(5, 6), 4, 2, 1, 0, [[6, 5], [5, 6], [6, 5], [5, 6]]),
]  # fmt: skip


@pytest.mark.parametrize(("racks", "partitions", "factor", "start", "first", "expected"), KAFKAS)
def test_assignments_are_those_of_kafka(
    racks: Racks, partitions: int, factor: int, start: int, first: int, expected: list[list[int]]
) -> None:
    assigned = assign_replicas(racks, partitions, factor, first_index=start, shift=start, first_partition=first)
    assert assigned == [tuple(replicas) for replicas in expected]


def test_racks_alternate() -> None:
    assert alternate_racks(SIX) == [0, 3, 1, 5, 4, 2]
    assert alternate_racks({broker: SIX[broker] for broker in range(5)}) == [0, 3, 1, 4, 2]
    assert alternate_racks(without_racks(9, 2, 5)) == [2, 5, 9]


@pytest.mark.parametrize(
    ("racks", "partitions", "factor", "code"),
    [
        ({0: "a", 1: None}, 3, 1, KafkaErrorCode.UNKNOWN_SERVER_ERROR),
        (without_racks(0, 1), 0, 1, KafkaErrorCode.INVALID_PARTITIONS),
        (without_racks(0, 1), 1, 0, KafkaErrorCode.INVALID_REPLICATION_FACTOR),
        (without_racks(0, 1), 1, 3, KafkaErrorCode.INVALID_REPLICATION_FACTOR),
        ({0: "a", 1: "b"}, -2, 3, KafkaErrorCode.INVALID_PARTITIONS),
    ],
)
def test_refused_placement(racks: Racks, partitions: int, factor: int, code: int) -> None:
    """Kafka has the same errors in the same order."""
    with pytest.raises(PlacementError) as raised:
        assign_replicas(racks, partitions, factor, first_index=0, shift=0)
    assert raised.value.code == code


@pytest.mark.parametrize("brokers", [2, 3, 5])
@pytest.mark.parametrize("first_index", [0, 1])
@pytest.mark.parametrize("shift", [0, 4])
def test_replicas_of_a_partition_are_distinct_and_loads_balance(brokers: int, first_index: int, shift: int) -> None:
    factor, racks = 2, without_racks(*range(brokers))
    assigned = assign_replicas(racks, brokers * 4, factor, first_index=first_index, shift=shift)
    assert all(len(set(replicas)) == factor for replicas in assigned)
    assert set(Counter(replicas[0] for replicas in assigned).values()) == {4}
    held = Counter(broker for replicas in assigned for broker in replicas)
    assert max(held.values()) - min(held.values()) <= brokers


def test_added_partitions_continue_the_broker_sequence() -> None:
    whole = assign_replicas(without_racks(1, 2, 3), 6, 2, first_index=1, shift=0)
    later = assign_replicas(without_racks(1, 2, 3), 3, 2, first_index=1, shift=1, first_partition=3)
    assert [replicas[0] for replicas in whole[3:]] == [replicas[0] for replicas in later]


@pytest.mark.parametrize("first_partition", [0, 4])
@pytest.mark.parametrize("racks", [without_racks(9, 2, 5), {9: "a", 2: "b", 5: "a"}])
def test_leaders_of_single_replicas_are_those_of_replicated_partitions(racks: Racks, first_partition: int) -> None:
    single = assign_replicas(racks, 7, 1, first_index=1, shift=2, first_partition=first_partition)
    replicated = assign_replicas(racks, 7, 2, first_index=1, shift=2, first_partition=first_partition)
    assert single == [replicas[:1] for replicas in replicated]
