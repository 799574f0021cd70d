"""The group checker finds each anomaly in a history made for it, and nothing in a good one."""

from __future__ import annotations

from tests.kit.checker import History, check
from tests.kit.group_checker import GroupHistory

P = ("t", 0)


def good() -> GroupHistory:
    """Four values; one member reads and commits two, another one the rest."""
    history = History()
    for number in range(4):
        history.sent("a", P, [number])
        history.acknowledged([number], number)
    history.reading("full", [P])
    for number in range(4):
        history.read("full", P, number, number)
    group = GroupHistory("g", history)
    group.assigned("one", [P])
    group.read("one", P, 0, 0)
    group.read("one", P, 1, 1)
    group.committing({P: 2})
    group.committed({P: 2})
    group.revoked("one", [P])
    return group


def names(group: GroupHistory) -> set[str]:
    return {anomaly.name for anomaly in [*group.check(), *check(group.history, "full")]}


def rest(group: GroupHistory, first: int, end: int = 4) -> GroupHistory:
    group.assigned("two", [P])
    for number in range(first, end):
        group.read("two", P, number, number)
    return group


def test_next_owner_continues_at_the_commit() -> None:
    assert names(rest(good(), 2)) == set()


def test_records_after_the_last_commit_are_read_again() -> None:
    group = good()
    group.assigned("two", [P])
    group.read("two", P, 2, 2)
    group.revoked("two", [P])
    assert names(rest(group, 2)) == set()


def test_commit_without_a_response_may_have_been_applied() -> None:
    group = good()
    group.assigned("two", [P])
    group.read("two", P, 2, 2)
    group.committing({P: 3})
    group.revoked("two", [P])
    assert names(rest(group, 3)) == set()
    assert names(rest(good(), 2)) == set()


def test_committed_record_is_read_again() -> None:
    assert names(rest(good(), 1)) == {"read-committed"}


def test_start_above_every_commit() -> None:
    assert names(rest(good(), 3)) == {"start-skip", "group-unseen"}


def test_record_that_no_member_read() -> None:
    assert names(rest(good(), 2, 3)) == {"group-unseen"}


def test_read_of_a_revoked_partition() -> None:
    group = rest(good(), 2)
    group.read("one", P, 2, 2)
    assert names(group) == {"not-owned"}


def test_owner_that_skips_a_record() -> None:
    group = rest(good(), 2, 3)
    group.revoked("two", [P])
    group.assigned("three", [P])
    group.read("three", P, 2, 2)
    group.history.sent("a", P, [9])
    group.history.acknowledged([9], 4)
    group.history.read("full", P, 4, 9)
    group.read("three", P, 4, 9)
    assert names(group) == {"poll-skip", "group-unseen"}
