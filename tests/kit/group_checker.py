"""Checks what a group of consumers has read and committed; an extension of the rules of `checker`.

Every ownership of a partition by a member, from its assignment to its revocation, is a reader of the `History`, so the
rules for readers (order, no offset passed over, values as sent) apply to it. The rules of the group itself:

| anomaly | rule |
|---|---|
| read-committed | an ownership began below an offset that was committed before it |
| start-skip | an ownership began above every offset that a member has tried to commit |
| not-owned | a member read a partition that it does not own |
| group-unseen | no member read an acknowledged value |

A commit whose response is lost may have been applied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from tests.kit.checker import ACKNOWLEDGED, Anomaly, History, Partition


class Ownership:
    """A partition that a member owns; `committed_before`: the highest offset that had been committed."""

    def __init__(self, reader: str, committed_before: int) -> None:
        self.reader = reader
        self.committed_before = committed_before
        self.first = -1  # the first offset that was read


class GroupHistory:
    """What the members of a group did. `begins`: the offset where the group starts without a commit.

    Arguments:
        name: of the group; the names of its readers begin with it.
        history: of the partitions.
    """

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.ownerships_count = 0
        self.commits = 0  # that were acknowledged
        self._owned: dict[tuple[str, Partition], Ownership] = {}
        self._attempted: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._read: set[int] = set()
        self._anomalies: list[Anomaly] = []
        self._numbers = itertools.count()

    def assigned(self, member: str, partitions: Iterable[Partition]) -> None:
        """A member owns these partitions from now on."""
        for partition in partitions:
            reader = f"{self.name} {member} #{next(self._numbers)}"
            self._owned[member, partition] = Ownership(reader, self._committed.get(partition, 0))
            self.ownerships_count += 1

    def revoked(self, member: str, partitions: Iterable[Partition]) -> None:
        """A member no longer owns these partitions, whether revoked or lost."""
        for partition in partitions:
            self._owned.pop((member, partition), None)

    def read(self, member: str, partition: Partition, offset: int, number: int) -> None:
        """A member got a value."""
        owned = self._owned.get((member, partition))
        if owned is None:
            self._anomalies.append(Anomaly("not-owned", partition, f"{member} read {offset}"))
            return
        if owned.first < 0:
            owned.first = offset
            self._begin(owned, partition)
        self._read.add(number)
        self.history.read(owned.reader, partition, offset, number)

    def _begin(self, owned: Ownership, partition: Partition) -> None:
        where = f"{owned.reader} began at {owned.first}"
        if owned.first < owned.committed_before:
            text = f"{where}, committed was {owned.committed_before}"
            self._anomalies.append(Anomaly("read-committed", partition, text))
        if owned.first > self._attempted.get(partition, 0):
            text = f"{where}, the highest commit was {self._attempted.get(partition, 0)}"
            self._anomalies.append(Anomaly("start-skip", partition, text))

    def committing(self, offsets: Mapping[Partition, int]) -> None:
        """A commit leaves."""
        for partition, offset in offsets.items():
            self._attempted[partition] = max(offset, self._attempted.get(partition, 0))

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has acknowledged the commit."""
        self.commits += 1
        for partition, offset in offsets.items():
            self._committed[partition] = max(offset, self._committed.get(partition, 0))

    def unread(self) -> Iterator[int]:
        """Acknowledged values that no member has read."""
        for number, send in self.history.sends.items():
            if send.outcome == ACKNOWLEDGED and number not in self._read:
                yield number

    def check(self) -> list[Anomaly]:
        """Every violation; call it when the group has read to the end."""
        sends = self.history.sends
        missing = [
            Anomaly("group-unseen", sends[number].partition, f"{self.name} did not read {number}")
            for number in self.unread()
        ]
        return [*self._anomalies, *missing]
