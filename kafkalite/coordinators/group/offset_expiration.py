"""What happens to groups without a request: offsets expire, those of deleted topics go, topics change under them.

Each is a command of a shard like any other (`errands`), on some groups at a time, so that nothing holds the loop, nor
fills one batch with tombstones. Topics that change while an earlier change is still being looked at are looked at
together: 2,000 deleted topics are one walk over the shards. Nothing expires while the wall clock is not believed
(`ClockWatch`).
Source: GroupCoordinatorShard.java (cleanupExpiredOffsets), GroupCoordinatorService.java (onPartitionsDeleted).
"""

from collections.abc import Callable, Collection, Generator
from functools import partial
from itertools import islice

from kafkalite.clock import Clock, ClockWatch, Outcome, Timer
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.group.sliced_commands import DeletedTopicCleanup, SlicedCommands
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.slicing import Slicer
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.shard import GroupShard

__all__ = ["OffsetExpiration"]

OFFSETS_AT_ONCE = 1_000  # of all shards in one loop iteration
GROUPS_AT_ONCE = 200  # registered groups that look at changed topics


class OffsetExpiration:
    """The upkeep of all groups of a broker.

    Arguments:
        runtime: their shards.
        clock: when to sweep.
        config: `offsets.retention.check.interval.ms`, `kafkalite.retention.clock.jump.pause.ms`.
        slicer: spreads the walk over the shards.
    """

    def __init__(
        self, runtime: CoordinatorRuntime[GroupShard], clock: Clock, config: BrokerConfig, slicer: Slicer
    ) -> None:
        self._runtime = runtime
        self._slicer = slicer
        self._changed: dict[str, None] = {}  # topics that no shard has looked at yet
        self._gone: dict[str, None] = {}  # those of them that were deleted
        self._following = False
        self._clock = clock
        self._interval_s = config.offsets_retention_check_interval_ms / 1000
        self._clock_watch = ClockWatch(clock, config.kafkalite_retention_clock_jump_pause_ms)
        self._timer: Timer | None = None
        self._closed = False

    def start(self) -> None:
        """Sweep from now on."""
        self._timer = self._clock.call_at(self._clock.monotonic() + self._interval_s, self._sweep)

    def close(self) -> None:
        """Sweep no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def topic_changed(self, name: str) -> None:
        """A topic is new or has grown: the groups that read it are to be given its partitions."""
        self._changed[name] = None
        if not self._following:
            self._following = True
            self._slicer.run(self._follow(), self._followed)

    def topic_gone(self, name: str) -> None:
        """A topic was deleted: one that is created under its name is another one."""
        self._gone[name] = None
        self.topic_changed(name)

    def _follow(self) -> Generator[None, None, None]:
        """Have each shard look at the topics that changed."""
        while self._changed:
            changed, self._changed = self._changed, {}
            gone, self._gone = self._gone, {}
            for shard in self._runtime.shards():
                yield from self._look_at(shard, changed.keys())
                if gone:
                    DeletedTopicCleanup(self, self._runtime, shard, list(gone)).begin()
                self._runtime.write_pending()
                yield

    def _look_at(self, shard: int, changed: Collection[str]) -> Generator[None, None, None]:
        machine = self._runtime.machine(shard)
        if machine is None:  # one that is loading has seen nothing yet
            return
        machine.consumers.topics_changed(changed)
        names = iter(machine.registered.topic_readers.concerned(changed))
        while share := list(islice(names, GROUPS_AT_ONCE)):
            self._runtime.submit(shard, partial(look_at_topics, changed, share))
            yield

    def _followed(self, outcome: Outcome) -> None:
        self._following = False
        outcome.result()

    def _sweep(self) -> None:
        self.start()
        if self._clock_watch.look() is None:
            return
        for shard in self._runtime.shards():
            machine = self._runtime.machine(shard)
            if machine is not None:
                SlicedCommands(self, self._runtime, shard, machine.names()).go_on()
        self._runtime.write_pending()

    @property
    def share(self) -> int:
        """How many offsets a shard may look at in one loop iteration: all shards work at the same time."""
        return max(1, OFFSETS_AT_ONCE // len(self._runtime.shards()))

    def soon(self, go_on: Callable[[], None]) -> None:
        """Go on in the next loop iteration."""
        if not self._closed:
            self._clock.call_at(self._clock.monotonic(), go_on)


def look_at_topics(
    changed: Collection[str], groups: Collection[str], machine: GroupShard, _token: Token, now: Now
) -> Effects:
    """A command: those of these registered groups that read one of the topics may begin a generation."""
    return machine.registered.topics_changed(changed, now, among=groups)
