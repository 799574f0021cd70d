"""Keeps the offsets that open transactions have committed (KIP-98, KIP-447).

Invariant: of the commits for a partition, the latest in the log is valid, whichever transaction ends first. A pending
commit that a later one has superseded stays pending (the partition is not stable), but its marker commits nothing.
"""

from collections.abc import Iterator

from kafkalite.model import TopicPartition
from kafkalite.state.groups.records import OffsetCommitted

Key = tuple[str, str, int]  # group, topic, partition


class PendingOffsets:
    """The open transactions of a shard that commit offsets, by producer id."""

    def __init__(self) -> None:
        self._open: dict[int, dict[Key, tuple[int, OffsetCommitted | None]]] = {}
        self._of_group: dict[str, dict[int, None]] = {}  # the producers that have pending offsets of a group
        self._order = 0  # grows with each commit: the order of the log

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, group: str) -> bool:
        return group in self._of_group

    def __iter__(self) -> Iterator[Key]:
        """Every partition with a pending offset, once for each transaction that commits it."""
        for pending in self._open.values():
            yield from pending

    def partitions(self, group: str) -> frozenset[TopicPartition]:
        """The partitions (topic, index) of a group that are not stable."""
        producers = self._of_group.get(group, ())
        return frozenset(
            TopicPartition(topic, partition)
            for producer in producers
            for name, topic, partition in self._open[producer]
            if name == group
        )

    def add(self, producer_id: int, committed: OffsetCommitted) -> None:
        """Add a commit of an open transaction."""
        self._order += 1
        key = (committed.group, committed.topic, committed.partition)
        self._open.setdefault(producer_id, {})[key] = (self._order, committed)
        self._of_group.setdefault(committed.group, {})[producer_id] = None

    def supersede(self, key: Key, before: int | None = None) -> None:
        """Invalidate the pending commits for a partition (before an order), because a later commit is valid."""
        for producer in self._of_group.get(key[0], ()):
            pending = self._open[producer]
            if key in pending and (before is None or pending[key][0] < before):
                pending[key] = (pending[key][0], None)

    def forget(self, key: Key) -> None:
        """Remove the pending commits for a partition whose offset was deleted; the transactions stay open."""
        for producer in list(self._of_group.get(key[0], ())):
            pending = self._open[producer]
            if pending.pop(key, None) is not None and all(group != key[0] for group, _, _ in pending):
                self._remove(key[0], producer)

    def end(self, producer_id: int, *, materialise: bool) -> list[OffsetCommitted]:
        """End a transaction; returns the commits that become valid, none if it was aborted."""
        pending = self._open.pop(producer_id, {})
        for group in dict.fromkeys(group for group, _, _ in pending):
            self._remove(group, producer_id)
        committed_now = []
        for key, (order, committed) in pending.items():
            if materialise and committed is not None:
                committed_now.append(committed)
                self.supersede(key, order)
        return committed_now

    def _remove(self, group: str, producer_id: int) -> None:
        """A transaction has no pending offset of this group any more."""
        producers = self._of_group[group]
        del producers[producer_id]
        if not producers:
            del self._of_group[group]
