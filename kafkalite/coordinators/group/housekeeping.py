"""Housekeeping of groups: expires offsets, deletes those of deleted topics, and notifies groups of changed topics.

`state/groups/offsets/expiration` decides which offsets expire.

Each runs as sliced commands (`sliced_commands`), so that neither the loop is blocked nor a batch is filled with
tombstones. Topics that change while an earlier change is being processed are processed together: 2,000 deleted topics
are one pass over the shards. Nothing expires after a jump of the wall clock (`ClockWatch`).
Source: GroupCoordinatorShard.java (cleanupExpiredOffsets), GroupCoordinatorService.java (onPartitionsDeleted).
"""

from collections.abc import Callable, Collection, Generator
from functools import partial
from itertools import islice

from kafkalite.clock import Clock, ClockWatch, Outcome, Timer
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.group.sliced_commands import DeletedTopicCleanup, ExpirationSlices
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.slicing import Slicer
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.machine import GroupMachine

OFFSETS_AT_ONCE = 1_000  # of all shards in one loop iteration
GROUPS_AT_ONCE = 200  # groups that one command notifies of changed topics


class GroupHousekeeping:
    """The housekeeping of all groups of a broker.

    Arguments:
        runtime: their shards.
        clock: for the interval of expiration.
        config: `offsets.retention.check.interval.ms`, `kafkalite.retention.clock.jump.pause.ms`.
        slicer: spreads notifications over loop iterations.
    """

    def __init__(
        self, runtime: CoordinatorRuntime[GroupMachine], clock: Clock, config: BrokerConfig, slicer: Slicer
    ) -> None:
        self._runtime = runtime
        self._slicer = slicer
        self._changed: dict[str, None] = {}  # topics of which no shard was notified yet
        self._gone: dict[str, None] = {}  # the deleted ones among them
        self._notifying = False
        self._clock = clock
        self._interval_s = config.offsets_retention_check_interval_ms / 1000
        self._clock_watch = ClockWatch(clock, config.kafkalite_retention_clock_jump_pause_ms)
        self._timer: Timer | None = None
        self._closed = False

    def start(self) -> None:
        """Start the expiration timer."""
        self._timer = self._clock.call_at(self._clock.monotonic() + self._interval_s, self._expire_offsets)

    def close(self) -> None:
        """Stop all housekeeping."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def topic_changed(self, name: str) -> None:
        """A topic was created or has more partitions: notify the groups that read it."""
        self._changed[name] = None
        if not self._notifying:
            self._notifying = True
            self._slicer.run(self._notify_shards(), self._notified)

    def topic_gone(self, name: str) -> None:
        """A topic was deleted: notify its groups and delete its offsets."""
        self._gone[name] = None
        self.topic_changed(name)

    def _notify_shards(self) -> Generator[None, None, None]:
        """Notify each shard of the changed topics."""
        while self._changed:
            changed, self._changed = self._changed, {}
            gone, self._gone = self._gone, {}
            for partition in self._runtime.partitions():
                yield from self._notify_groups(partition, changed.keys())
                if gone:
                    DeletedTopicCleanup(self, self._runtime, partition, list(gone)).begin()
                self._runtime.write_pending()
                yield

    def _notify_groups(self, partition: int, changed: Collection[str]) -> Generator[None, None, None]:
        machine = self._runtime.machine(partition)
        if machine is None:  # a loading shard reads the current topics later
            return
        for group_type in machine.registry.types.values():
            names = iter(group_type.topics_changed(changed))
            while share := list(islice(names, GROUPS_AT_ONCE)):
                self._runtime.submit(partition, partial(check_topics, group_type.name, changed, share))
                yield

    def _notified(self, outcome: Outcome) -> None:
        self._notifying = False
        outcome.result()

    def _expire_offsets(self) -> None:
        self.start()
        if self._clock_watch.look() is None:
            return
        for partition in self._runtime.partitions():
            machine = self._runtime.machine(partition)
            if machine is not None:
                ExpirationSlices(self, self._runtime, partition, machine.names()).run()
        self._runtime.write_pending()

    @property
    def share(self) -> int:
        """The number of offsets that a shard may check in one loop iteration; all shards run at the same time."""
        return max(1, OFFSETS_AT_ONCE // max(1, len(self._runtime.partitions())))

    def soon(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in the next loop iteration."""
        if not self._closed:
            self._clock.call_at(self._clock.monotonic(), go_on)


def check_topics(
    group_type: str, changed: Collection[str], groups: Collection[str], machine: GroupMachine, _token: Token, now: Now
) -> Effects:
    """Start rebalances of those groups that read a changed topic; a command.

    Arguments:
        group_type: of the groups.
        changed: names of the topics.
        groups: the ids of groups of the shard.
        machine: has the groups.
        _token: has no use, as there is no answer.
        now: of the command.
    """
    return machine.registry.types[group_type].check_topics(changed, groups, now)
