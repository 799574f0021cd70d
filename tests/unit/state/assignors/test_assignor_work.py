"""The assignors in large groups: assignments equal those of the slow implementation, and the time is O(n log n)."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.state.groups.assignors import ASSIGNORS, MemberSpec
from tests.kit.work import calls_in
from tests.unit.state.assignors import previous
from tests.unit.state.assignors.test_assignors import History, Topics, many

PREVIOUS = {"uniform": previous.uniform, "sticky": previous.sticky}


@pytest.mark.parametrize("name", PREVIOUS)
@pytest.mark.parametrize("alike", [True, False])
@many
def test_assignment_equals_previous_implementation(name: str, alike: bool, topics: Topics, changes: list[Any]) -> None:
    history = History(ASSIGNORS[name], topics, alike=alike)
    for change in changes:
        history.change(*change)
        expected = PREVIOUS[name](history.members, history.topics)
        assert history.rebalance() == expected


def second_member_joins(topics: int) -> Callable[[], object]:
    """The assignment for a second member of a group whose first member owns one partition of each topic."""
    sizes = {number.to_bytes(16, "big"): 1 for number in range(topics)}
    everything = frozenset(sizes)
    owned = {topic_id: frozenset({0}) for topic_id in sizes}
    members = {"first": MemberSpec(everything, owned), "second": MemberSpec(everything)}
    return lambda: ASSIGNORS["uniform"](members, sizes)


def member_joins_mixed_group(members: int, topics: int) -> Callable[[], object]:
    """The assignment for a new member of a group with two different subscriptions."""
    sizes = {number.to_bytes(16, "big"): 1 for number in range(topics)}
    everything, half = frozenset(sizes), frozenset(list(sizes)[: topics // 2])
    group = {f"m{at}": MemberSpec(half if at % 2 else everything) for at in range(members)}
    owned = ASSIGNORS["sticky"](group, sizes)
    group = {name: spec._replace(target=owned[name]) for name, spec in group.items()}
    group["new"] = MemberSpec(everything)
    return lambda: ASSIGNORS["sticky"](group, sizes)


def test_uniform_time_is_not_quadratic_in_topics() -> None:
    few, many_topics = calls_in(second_member_joins(300)), calls_in(second_member_joins(3_000))
    assert many_topics < 15 * few


def test_sticky_time_is_below_members_times_topics() -> None:
    few, many_topics = calls_in(member_joins_mixed_group(500, 10)), calls_in(member_joins_mixed_group(500, 100))
    assert many_topics < 5 * few
