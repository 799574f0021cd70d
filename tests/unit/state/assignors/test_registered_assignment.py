"""Assignment with claimed partitions: with every assignor all others have one owner, and sticky ones stay sticky."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.state.groups.assignors import ASSIGNORS
from kafkalite.state.groups.registered.assignment import assign

TOPICS = ["a", "b", "ü"]
SIZES = st.fixed_dictionaries({}, optional={name: st.integers(0, 6) for name in TOPICS})
WANTED = st.dictionaries(st.sampled_from("vwxyz"), st.sets(st.sampled_from(TOPICS)), max_size=5)
PARTITIONS = st.sets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7)), max_size=6)


@given(st.sampled_from(sorted(ASSIGNORS)), WANTED, SIZES, PARTITIONS, PARTITIONS)
def test_unclaimed_partitions_have_one_subscribed_owner(assignor, wanted, sizes, claimed, held) -> None:  # type: ignore[no-untyped-def]
    owned = dict.fromkeys(wanted, held)
    dealt = assign(assignor, wanted, owned, sizes, claimed)
    assert dealt.keys() == wanted.keys()
    topic_partitions = [topic_partition for mine in dealt.values() for topic_partition in mine]
    assert len(topic_partitions) == len(set(topic_partitions))
    readable = {name for topics in wanted.values() for name in topics}
    assert (
        set(topic_partitions) == {(t, n) for t, size in sizes.items() if t in readable for n in range(size)} - claimed
    )
    assert all(topic in wanted[member] for member, mine in dealt.items() for topic, _ in mine)


@pytest.mark.parametrize("assignor", ["sticky", "uniform"])
def test_registered_assignment_moves_no_partition_without_need(assignor: str) -> None:
    """Although a claim renumbers the free partitions."""
    wanted = {name: {"a"} for name in "xy"}
    before = {"x": [("a", 0), ("a", 2), ("a", 4)], "y": [("a", 1), ("a", 3), ("a", 5)]}
    after = assign(assignor, wanted, before, {"a": 6}, {("a", 2), ("a", 3)})
    assert after == {"x": [("a", 0), ("a", 4)], "y": [("a", 1), ("a", 5)]}
