"""Checks what the streams of a group have handled and committed, from the events of all members in order of time.

| anomaly | rule |
|---|---|
| not-owned | a member handled a record of a partition that it does not own |
| order | a record was handled out of order, or before the one before it was complete |
| skipped | an ownership began above a record that no member has completed |
| abandoned | a partition was revoked, not lost, while a handler had a record of it |
| read-committed | an ownership began below an offset that was committed before it |
| commit-incomplete | a committed offset is above a record that no member has completed |
| unread | no member has completed a record |

An ownership of a partition by a member lasts from its assignment to its revocation, its loss, or the member's death.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NOTHING = -1


class Event(NamedTuple):
    """Something that happened.

    Attributes:
        time_ns: by time.monotonic_ns, the same clock in all processes.
        name: of a method of `StreamsHistory`.
        member: that did it; "" = an outside reader of the committed offsets.
        partition: of the record, the ownership or the commit; NOTHING = of a death.
        offset: of the record or the commit; NOTHING = of an ownership or a death.
    """

    time_ns: int
    name: str
    member: str
    partition: int = NOTHING
    offset: int = NOTHING


class Ownership:
    """A partition that a member owns.

    Attributes:
        committed_before: the highest offset that had been committed.
        next: the offset that comes next, NOTHING before the first one.
        open: the offset that is being handled, NOTHING between two of them.
    """

    def __init__(self, committed_before: int) -> None:
        self.committed_before = committed_before
        self.next = NOTHING
        self.open = NOTHING


class StreamsHistory:
    """What the members of a group did in a topic whose partitions begin at offset 0 and have no gaps."""

    def __init__(self) -> None:
        self.anomalies: list[str] = []
        self.commits_count = 0
        self._ends: dict[int, int] = {}  # the offset after the completed records that follow offset 0 without a gap
        self._completed: dict[int, set[int]] = {}  # those above
        self._committed: dict[int, int] = {}
        self._owned: dict[tuple[str, int], Ownership] = {}

    def apply(self, event: Event) -> None:
        """Add the next event."""
        getattr(self, event.name)(event.member, event.partition, event.offset)

    def check(self, ends: Mapping[int, int]) -> list[str]:
        """All anomalies; `ends`: the log end offset of each partition, which the group has read to its end."""
        left = [f"unread: {each}:{self.end(each)}" for each, end in ends.items() if self.end(each) != end]
        return self.anomalies + left

    def end(self, partition: int) -> int:
        """The offset of the lowest record that is not completed."""
        return self._ends.get(partition, 0)

    def in_work(self, member: str) -> list[tuple[int, int]]:
        """The records that a member is handling: partition and offset."""
        owned = [(number, each.open) for (name, number), each in self._owned.items() if name == member]
        return [each for each in owned if each[1] != NOTHING]

    def partitions(self, member: str) -> set[int]:
        """The partitions that a member owns."""
        return {number for name, number in self._owned if name == member}

    def assigned(self, member: str, partition: int, _: int) -> None:
        """A member owns a partition from now on."""
        self._owned[member, partition] = Ownership(self._committed.get(partition, 0))

    def revoked(self, member: str, partition: int, _: int) -> None:
        """A member has released a partition."""
        owned = self._owned.pop((member, partition), None)
        if owned is not None and owned.open != NOTHING:
            self._add("abandoned", f"{member} had {partition}:{owned.open} in work")

    def lost(self, member: str, partition: int, _: int) -> None:
        """A member has lost a partition."""
        self._owned.pop((member, partition), None)

    def died(self, member: str, _: int, __: int) -> None:
        """A member was killed."""
        for partition in self.partitions(member):
            del self._owned[member, partition]

    def begun(self, member: str, partition: int, offset: int) -> None:
        """A handler has received a record."""
        owned = self._owned.get((member, partition))
        if owned is None:
            self._add("not-owned", f"{member} began {partition}:{offset}")
            return
        if owned.next == NOTHING:
            self._check_first(owned, member, partition, offset)
        elif offset != owned.next or owned.open != NOTHING:
            was = f"expected {owned.next}, in work {owned.open}"
            self._add("order", f"{member} began {partition}:{offset}, {was}")
        owned.next, owned.open = offset, offset

    def _check_first(self, owned: Ownership, member: str, partition: int, offset: int) -> None:
        where = f"{member} began at {partition}:{offset}"
        if offset > self.end(partition):
            self._add("skipped", f"{where}, completed until {self.end(partition)}")
        if offset < owned.committed_before:
            self._add("read-committed", f"{where}, committed was {owned.committed_before}")

    def cancelled(self, member: str, partition: int, offset: int) -> None:
        """A handler has ended without completing its record."""
        owned = self._owned.get((member, partition))
        if owned is not None and owned.open == offset:
            owned.open = NOTHING

    def completed(self, member: str, partition: int, offset: int) -> None:
        """A handler has completed a record; it counts also after the loss of the partition."""
        owned = self._owned.get((member, partition))
        if owned is not None:
            if owned.open != offset:
                self._add("order", f"{member} completed {partition}:{offset}, in work {owned.open}")
            owned.next, owned.open = offset + 1, NOTHING
        end = self.end(partition)
        above = self._completed.setdefault(partition, set())
        if offset >= end:
            above.add(offset)
        while end in above:
            above.remove(end)
            end += 1
        self._ends[partition] = end

    def committed(self, member: str, partition: int, offset: int) -> None:
        """An offset was committed before this event."""
        self.commits_count += 1
        if offset > self.end(partition):
            where = f"{member or 'the broker'} says {partition}:{offset}"
            self._add("commit-incomplete", f"{where}, completed until {self.end(partition)}")
        self._committed[partition] = max(offset, self._committed.get(partition, 0))

    def _add(self, name: str, text: str) -> None:
        self.anomalies.append(f"{name}: {text}")
