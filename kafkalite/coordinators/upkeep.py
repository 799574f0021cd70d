"""What happens to groups without a request: offsets expire, those of deleted topics go, topics change under them.

Each is a command of a shard like any other. Offsets are looked at some at a time, so that nothing holds the loop, nor
fills one batch with tombstones. A sweep goes on when the tombstones of the last step are committed, and ends where they
cannot be: the next sweep is in time. Nothing expires while the wall clock is not believed (`ClockWatch`).
Source: GroupCoordinatorShard.java (cleanupExpiredOffsets), GroupCoordinatorService.java (onPartitionsDeleted).
"""

from collections.abc import Callable
from functools import partial

from kafkalite.clock import Clock, ClockWatch, Timer
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.runtime import Runtime
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.group_shard import GroupShard

__all__ = ["Upkeep"]

OFFSETS_AT_ONCE = 1_000  # of all shards in one turn of the loop
GROUP_WEIGHT = 5  # to look at a group, against one of its offsets

Forget = Callable[[GroupShard, str, int], Effects]


class Upkeep:
    """The upkeep of all groups of a broker.

    Arguments:
        runtime: their shards.
        clock: when to sweep.
        config: `offsets.retention.check.interval.ms`, `kafkalite.retention.clock.jump.pause.ms`.
    """

    def __init__(self, runtime: Runtime[GroupShard], clock: Clock, config: BrokerConfig) -> None:
        self._runtime = runtime
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
        """A topic is new or has grown: whoever reads it is to be given its partitions."""
        for shard in self._runtime.shards():
            machine = self._runtime.machine(shard)
            if machine is None:  # one that is loading has seen nothing yet
                continue
            machine.consumers.topics_changed((name,))
            if machine.registered.groups:
                self._runtime.submit(shard, partial(look_at_topic, name))
        self._runtime.flush()

    def settings_changed(self) -> None:
        """What holds for groups may have changed: heartbeats are judged anew."""
        for shard in self._runtime.shards():
            machine = self._runtime.machine(shard)
            if machine is not None:
                machine.consumers.settings_changed()

    def topic_gone(self, name: str) -> None:
        """A topic was deleted: nobody has read anything of one that is made anew."""
        self.topic_changed(name)
        for shard in self._runtime.shards():
            self._forget(shard, name, GroupShard.topic_deleted)
        self._runtime.flush()

    def _forget(self, shard: int, name: str, forget: Forget) -> None:
        """Forget some offsets of a topic, and more of them in the next turn."""

        def command(machine: GroupShard, _token: Token, _now: Now) -> Effects:
            share = self.share
            effects = forget(machine, name, share)
            if len(effects.records) >= share:
                self.soon(partial(self._forget_more, shard, name))
            return effects

        self._runtime.submit(shard, command)

    def _forget_more(self, shard: int, name: str) -> None:
        self._forget(shard, name, GroupShard.forget_offsets)
        self._runtime.flush()

    def _sweep(self) -> None:
        self.start()
        if self._clock_watch.look() is None:
            return
        for shard in self._runtime.shards():
            machine = self._runtime.machine(shard)
            if machine is not None:
                Sweep(self, self._runtime, shard, machine.names()).go_on()
        self._runtime.flush()

    @property
    def share(self) -> int:
        """How many offsets a shard may look at in one turn: all have their turns at the same time."""
        return max(1, OFFSETS_AT_ONCE // len(self._runtime.shards()))

    def soon(self, go_on: Callable[[], None]) -> None:
        """Go on in the next turn of the loop."""
        if not self._closed:
            self._clock.call_at(self._clock.monotonic(), go_on)


class Sweep:
    """One sweep over a shard: `shard.Waiting` for each of its commands."""

    def __init__(self, upkeep: Upkeep, runtime: Runtime[GroupShard], shard: int, names: list[str]) -> None:
        self._upkeep = upkeep
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
        while self._names and offsets < self._upkeep.share:
            names.append(self._names.pop())
            offsets += machine.offsets.count(names[-1]) + GROUP_WEIGHT
        effects = machine.sweep(names, now)
        effects.answer(token, None)
        return effects

    def next_turn(self) -> None:
        """As `go_on`, outside a pass."""
        self.go_on()
        self._runtime.flush()

    def answer(self, _result: object) -> None:
        """The tombstones are committed."""
        self._upkeep.soon(self.next_turn)

    def fail(self, _error: int) -> None:
        """The shard is being read again; the next sweep is in time for these groups."""
        self._names = []


def look_at_topic(name: str, machine: GroupShard, _token: Token, now: Now) -> Effects:
    """A command: registered groups that read the topic may begin a generation."""
    return machine.registered.topics_changed((name,), now)
