"""Upkeep of many groups of one shard, some of them per loop iteration: each share is a command of the shard.

An errand goes on when the records of the last share are committed, with the groups that are left: it never begins
again with the first one. Source: GroupCoordinatorShard.java (cleanupExpiredOffsets, onPartitionsDeleted).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.shard import GroupShard

__all__ = ["DeletedTopicCleanup", "SliceSettings", "SlicedCommands"]

GROUP_WEIGHT = 5  # to look at a group, against one of its offsets


class SliceSettings(Protocol):
    """How fast errands go."""

    @property
    def share(self) -> int:
        """How many offsets a shard may look at in one loop iteration."""

    def soon(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in the next loop iteration, unless the upkeep has ended."""


class SlicedCommands:
    """One sweep over a shard: `shard.Waiting` for each of its commands.

    A share that cannot be committed ends the sweep: the next one is in time for the groups that are left.
    """

    def __init__(
        self, pace: SliceSettings, runtime: CoordinatorRuntime[GroupShard], shard: int, names: list[str]
    ) -> None:
        self._pace = pace
        self._runtime = runtime
        self._shard = shard
        self._names = names

    def go_on(self) -> None:
        """Sweep the next groups."""
        if self._names:
            self._runtime.submit(self._shard, self._some, self)

    def _some(self, machine: GroupShard, token: Token, now: Now) -> Effects:
        """A command: expire the offsets of the next groups; however few they have, it is some work to look."""
        names, offsets = [], 0
        while self._names and offsets < self._pace.share:
            names.append(self._names.pop())
            offsets += machine.offsets.count(names[-1]) + GROUP_WEIGHT
        effects = machine.sweep(names, now)
        effects.answer(token, None)
        return effects

    def next_share(self) -> None:
        """As `go_on`, outside a pass."""
        self.go_on()
        self._runtime.write_pending()

    def answer(self, _result: object) -> None:
        """The tombstones are committed."""
        self._pace.soon(self.next_share)

    def fail(self, _error: int) -> None:
        """The shard is being read again."""
        self._names = []


class DeletedTopicCleanup:
    """Deletes what the groups of a shard keep of deleted topics: `shard.Waiting` for each of its commands.

    Arguments:
        pace: how many offsets at a time.
        runtime, shard: whose groups.
        topics: the deleted topics; each may have been created again meanwhile.
    """

    def __init__(
        self, pace: SliceSettings, runtime: CoordinatorRuntime[GroupShard], shard: int, topics: Sequence[str]
    ) -> None:
        self._pace = pace
        self._runtime = runtime
        self._shard = shard
        self._topics = topics
        self._left: list[tuple[str, tuple[str, ...]]] = []  # groups, the next one last, and what each has to forget

    def begin(self) -> None:
        """Find the groups, once the shard is loaded, and do the first share."""
        machine = self._runtime.machine(self._shard)
        if machine is None:
            self._runtime.submit(self._shard, self._loaded)  # a command without an answer waits for the loading
            return
        left: dict[str, tuple[str, ...]] = {}
        for topic in self._topics:
            readers = machine.readers(topic)
            if not left:
                left = dict.fromkeys(readers, (topic,))
            else:
                left.update({group: (*left.get(group, ()), topic) for group in readers})
        self._left = list(reversed(left.items()))
        self._go_on()

    def _loaded(self, _machine: GroupShard, _token: Token, _now: Now) -> Effects:
        self._pace.soon(self._begin_again)
        return Effects()

    def _begin_again(self) -> None:
        self.begin()
        self._runtime.write_pending()

    def _go_on(self) -> None:
        if self._left:
            self._runtime.submit(self._shard, self._some, self)

    def _some(self, machine: GroupShard, token: Token, _now: Now) -> Effects:
        """A command: forget the topics in the next groups; a group with more offsets than the share goes on later."""
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

    def _next_share(self) -> None:
        self._go_on()
        self._runtime.write_pending()

    def answer(self, _result: object) -> None:
        """The tombstones are committed."""
        if self._left:
            self._pace.soon(self._next_share)

    def fail(self, _error: int) -> None:
        """The shard is being read again: what was not committed must be forgotten again."""
        self._pace.soon(self._begin_again)
