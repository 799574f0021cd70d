"""Turns filters that Spark pushes down into bounds of the offsets to read.

Pure, without PySpark: a filter is the name of its class, its column and its value.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kafkalite.model import TopicPartition


@dataclass(slots=True)
class Bounds:
    """What a batch reads of the partitions that it has planned.

    Attributes:
        first, end: offsets; `end` is not read. None = unlimited.
        partitions, topics: only these; None = all.
        since_ms: records before the first one with this time or later are left out. None = unlimited.
    """

    first: int = 0
    end: int | None = None
    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    since_ms: int | None = None

    def apply(self, name: str, column: tuple[str, ...], value: Any) -> bool:
        """Apply a filter; return whether it is applied exactly, so that Spark need not apply it.

        Arguments:
            name: of PySpark's class.
            column: path of the column.
            value: of the filter, None for filters without one.
        """
        (top,) = column[:1]
        if len(column) != 1:
            return False
        if top == "partition":
            return self._partition(name, value)
        if top == "topic":
            return self._topic(name, value)
        if top == "offset":
            return self._offset(name, value)
        if (
            top == "timestamp"
            and name in ("GreaterThan", "GreaterThanOrEqual", "EqualTo")
            and isinstance(value, datetime)
        ):
            since_ms = int(value.timestamp() * 1000)
            self.since_ms = max(self.since_ms or 0, since_ms)
        return False  # also for times: the records behind the first one may be older

    def _partition(self, name: str, value: Any) -> bool:
        values = _equal(name, value)
        if values is None:
            return False
        found = frozenset(values)
        self.partitions = found if self.partitions is None else self.partitions & found
        return True

    def _topic(self, name: str, value: Any) -> bool:
        values = _equal(name, value)
        if values is None:
            return False
        found = frozenset(values)
        self.topics = found if self.topics is None else self.topics & found
        return True

    def _offset(self, name: str, value: Any) -> bool:
        if name == "IsNotNull":
            return True
        firsts = {"GreaterThanOrEqual": 0, "EqualTo": 0, "GreaterThan": 1}
        ends = {"LessThan": 0, "LessThanOrEqual": 1, "EqualTo": 1}
        if name in firsts:
            self.first = max(self.first, value + firsts[name])
        if name in ends:
            end = value + ends[name]
            self.end = end if self.end is None else min(self.end, end)
        return name in firsts or name in ends

    def selects(self, name: TopicPartition) -> bool:
        """Return whether anything of a partition is read."""
        return (self.topics is None or name.topic in self.topics) and (
            self.partitions is None or name.partition in self.partitions
        )

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of a range that is read; it may be empty."""
        low = max(start, self.first)
        high = end if self.end is None else min(end, self.end)
        return low, max(low, high)


def _equal(name: str, value: Any) -> Iterable[Any] | None:
    """The values that a filter accepts; None = it is no list of values."""
    if name == "EqualTo":
        return (value,)
    return value if name == "In" else None
