"""Replica placement: every broker leads, replicas differ, loads balance."""

from collections import Counter

import pytest

from kafkalite.state.replica_assignment import assign_replicas


def test_one_broker_holds_everything() -> None:
    assert assign_replicas([7], 3, 1, first_index=0, shift=0) == [(7,), (7,), (7,)]


@pytest.mark.parametrize("brokers", [2, 3, 5])
@pytest.mark.parametrize("first_index", [0, 1])
@pytest.mark.parametrize("shift", [0, 4])
def test_replicas_of_a_partition_are_distinct_and_loads_balance(brokers: int, first_index: int, shift: int) -> None:
    factor = 2
    assigned = assign_replicas(range(brokers), brokers * 4, factor, first_index=first_index, shift=shift)
    assert all(len(set(replicas)) == factor for replicas in assigned)
    assert set(Counter(replicas[0] for replicas in assigned).values()) == {4}
    held = Counter(broker for replicas in assigned for broker in replicas)
    assert max(held.values()) - min(held.values()) <= brokers


def test_added_partitions_continue_the_broker_sequence() -> None:
    whole = assign_replicas([1, 2, 3], 6, 2, first_index=1, shift=0)
    later = assign_replicas([1, 2, 3], 3, 2, first_index=1, shift=1, first_partition=3)
    assert [replicas[0] for replicas in whole[3:]] == [replicas[0] for replicas in later]


@pytest.mark.parametrize("first_partition", [0, 4])
def test_leaders_of_single_replicas_are_those_of_replicated_partitions(first_partition: int) -> None:
    brokers = [9, 2, 5]
    single = assign_replicas(brokers, 7, 1, first_index=1, shift=2, first_partition=first_partition)
    replicated = assign_replicas(brokers, 7, 2, first_index=1, shift=2, first_partition=first_partition)
    assert single == [replicas[:1] for replicas in replicated]
