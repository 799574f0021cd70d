"""Filters of Spark bound the offsets to read: those that are exact are not applied again."""

from datetime import UTC, datetime
from typing import Any

from kafkalite_sdk import TopicPartition
from pyspark_kafkalite.filters import Bounds


def bounds(*filters: tuple[str, str, Any]) -> tuple[Bounds, list[bool]]:
    found = Bounds()
    return found, [found.apply(name, (column,), value) for name, column, value in filters]


def test_offsets_are_exact() -> None:
    found, exact = bounds(("GreaterThan", "offset", 4), ("LessThanOrEqual", "offset", 9), ("IsNotNull", "offset", None))
    assert exact == [True, True, True] and found.clip(0, 100) == (5, 10)
    assert bounds(("EqualTo", "offset", 7))[0].clip(0, 100) == (7, 8)
    assert bounds(("GreaterThanOrEqual", "offset", 7), ("LessThan", "offset", 3))[0].clip(0, 100) == (7, 7)


def test_partitions_and_topics_are_exact() -> None:
    found, exact = bounds(("In", "partition", (1, 2)), ("EqualTo", "partition", 2), ("In", "topic", ("a", "b")))
    assert exact == [True, True, True]
    names = [TopicPartition(topic, index) for topic in ("a", "c") for index in (1, 2)]
    assert [each for each in names if found.selects(each)] == [TopicPartition("a", 2)]


def test_time_is_a_bound_and_not_exact() -> None:
    """Records behind the first one of a time may be older."""
    when = datetime(2025, 1, 1, tzinfo=UTC)
    found, exact = bounds(("GreaterThanOrEqual", "timestamp", when), ("LessThan", "timestamp", when))
    assert exact == [False, False] and found.since_ms == 1735689600000


def test_other_filters_are_left_to_spark() -> None:
    found, exact = bounds(("EqualTo", "value", b"x"), ("LessThan", "partition", 3), ("Not", "topic", None))
    assert exact == [False, False, False] and found == Bounds()
    assert not found.apply("EqualTo", ("headers", "key"), "x")
