"""Housekeeping commands for many groups of a shard, in slices: each slice is one command with some of the groups.

The next slice runs in a later loop iteration, once the records of the last one are committed.
Source: GroupCoordinatorShard.java (cleanupExpiredOffsets, onPartitionsDeleted).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from kafkalite.callbacks import Completion
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.machine import GroupMachine

GROUP_WEIGHT = 5  # the cost of checking a group, in offsets


class SliceSettings(Protocol):
    """How large slices are, and when the next one runs."""

    @property
    def share(self) -> int:
        """The number of offsets that a shard may check in one loop iteration."""

    def soon(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in the next loop iteration, unless housekeeping was stopped."""


class ExpirationSlices:
    """One expiration of offsets in all groups of a shard.

    A slice that fails ends it: the next expiration covers the remaining groups.
    """

    def __init__(
        self, pace: SliceSettings, runtime: CoordinatorRuntime[GroupMachine], partition: int, names: list[str]
    ) -> None:
        self._pace = pace
        self._runtime = runtime
        self._partition = partition
        self._names = names

    def run(self) -> None:
        """Submit the next slice."""
        if self._names:
            # Not kept: it refers to this object, and a cycle would be left to the garbage collector.
            self._runtime.submit(self._partition, self._expire, Completion(self._committed, self._failed))

    def _expire(self, machine: GroupMachine, token: Token, now: Now) -> Effects:
        """A command: expire the offsets of the next groups."""
        names, offsets = [], 0
        while self._names and offsets < self._pace.share:
            names.append(self._names.pop())
            offsets += machine.offsets.count(names[-1]) + GROUP_WEIGHT
        effects = machine.expire_offsets(names, now)
        effects.answer(token, None)
        return effects

    def _run_next(self) -> None:
        self.run()
        self._runtime.write_pending()

    def _committed(self, _result: object) -> None:
        self._pace.soon(self._run_next)

    def _failed(self, _error: int) -> None:
        self._names = []


class DeletedTopicCleanup:
    """Deletes the offsets and other data of deleted topics from all groups of a shard.

    Arguments:
        pace: the size of slices.
        runtime, partition: of the groups.
        topics: the deleted topics; each may have been created again.
    """

    def __init__(
        self, pace: SliceSettings, runtime: CoordinatorRuntime[GroupMachine], partition: int, topics: Sequence[str]
    ) -> None:
        self._pace = pace
        self._runtime = runtime
        self._partition = partition
        self._topics = topics
        self._left: list[tuple[str, tuple[str, ...]]] = []  # groups and their deleted topics, the next one last

    def begin(self) -> None:
        """Find the groups, once the shard is loaded, and submit the first slice."""
        machine = self._runtime.machine(self._partition)
        if machine is None:
            self._runtime.submit(self._partition, self._loaded)  # delayed until the shard is loaded
            return
        left: dict[str, tuple[str, ...]] = {}
        for topic in self._topics:
            readers = machine.readers(topic)
            if not left:
                left = dict.fromkeys(readers, (topic,))
            else:
                left.update({group: (*left.get(group, ()), topic) for group in readers})
        self._left = list(reversed(left.items()))
        self._run()

    def _loaded(self, _machine: GroupMachine, _token: Token, _now: Now) -> Effects:
        self._pace.soon(self._begin_again)
        return Effects()

    def _begin_again(self) -> None:
        self.begin()
        self._runtime.write_pending()

    def _run(self) -> None:
        if self._left:
            self._runtime.submit(self._partition, self._forget, Completion(self._committed, self._failed))

    def _forget(self, machine: GroupMachine, token: Token, _now: Now) -> Effects:
        """A command: forget the topics in the next groups. A group with more offsets than a slice needs several."""
        effects, left = Effects(), self._pace.share
        while self._left and left > 0:
            group, topics = self._left[-1]
            found = machine.topics_deleted(group, topics, left)
            if len(found.records) < left:
                self._left.pop()
            left -= max(1, len(found.records))
            effects.extend(found)
        effects.answer(token, None)
        return effects

    def _run_next(self) -> None:
        self._run()
        self._runtime.write_pending()

    def _committed(self, _result: object) -> None:
        if self._left:
            self._pace.soon(self._run_next)

    def _failed(self, _error: int) -> None:
        """The shard is replayed: start again, because some records were not committed."""
        self._pace.soon(self._begin_again)
