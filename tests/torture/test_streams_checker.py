"""The checker of streams finds each anomaly in a history made for it, and nothing in a good one."""

from __future__ import annotations

import pytest

from tests.kit.streams_checker import Event, StreamsHistory

Step = tuple[str, str, int]  # event, member, offset
GOOD: list[Step] = [
    ("assigned", "one", -1),
    ("begun", "one", 0),
    ("completed", "one", 0),
    ("begun", "one", 1),
    ("cancelled", "one", 1),
    ("committed", "one", 1),
    ("begun", "one", 1),
    ("completed", "one", 1),
    ("begun", "one", 2),
    ("died", "one", -1),
    ("assigned", "two", -1),
    ("begun", "two", 1),
    ("completed", "two", 1),
    ("begun", "two", 2),
    ("completed", "two", 2),
    ("committed", "", 3),
]


def names(steps: list[Step]) -> set[str]:
    history = StreamsHistory()
    for number, (name, member, offset) in enumerate(steps):
        history.apply(Event(number, name, member, 0, offset))
    return {anomaly.partition(":")[0] for anomaly in history.check({0: 3})}


def test_records_that_a_killed_member_has_not_committed_are_handled_again() -> None:
    assert names(GOOD) == set()


@pytest.mark.parametrize(
    ("index", "replacement", "anomalies"),
    [
        (2, [], {"order", "commit-incomplete", "skipped", "unread"}),
        (5, [("committed", "one", 2)], {"commit-incomplete", "read-committed"}),
        (6, [("begun", "one", 2)], {"order"}),
        (9, [("revoked", "one", -1)], {"abandoned"}),
        (9, [("lost", "one", -1)], set()),
        (10, [], {"not-owned"}),
        (11, [("begun", "two", 2)], {"order"}),
        (11, [("begun", "two", 0), ("completed", "two", 0), ("begun", "two", 1)], {"read-committed"}),
        (14, [], {"commit-incomplete", "unread"}),
    ],
)
def test_each_anomaly_is_found(index: int, replacement: list[Step], anomalies: set[str]) -> None:
    assert names([*GOOD[:index], *replacement, *GOOD[index + 1 :]]) == anomalies


def test_member_that_begins_above_the_completed_records_has_skipped_some() -> None:
    assert names([("assigned", "one", -1), ("begun", "one", 1), ("completed", "one", 1)]) == {"skipped", "unread"}
