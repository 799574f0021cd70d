"""A process with one consumer: the driver of a `Membership`, with streams, a listener and an offset storage."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite_sdk.zk.membership import effects
from kafkalite_sdk.zk.membership.machine import Membership
from kafkalite_sdk.zk.membership.settings import MembershipSettings

from kafkalite.clock import Outcome
from kafkalite.model import TopicPartition
from kafkalite.testing.virtual_clock import START_WALL_MS

if TYPE_CHECKING:
    from tests.story.zk.world import World


class StorageError(Exception):
    """A planned failure of the offset storage."""


class Member:
    """The process.

    Arguments:
        world: what it runs in.
        settings: of its consumer.

    Attributes:
        positions: of the partitions that it fetches.
        error: it has failed.
        ended: it has ended, or was killed.
        is_shut_down: its application has ended it.
    """

    def __init__(self, world: "World", settings: MembershipSettings) -> None:
        self.world = world
        self.settings = settings
        self.machine = Membership(settings)
        self.positions: dict[TopicPartition, int] = {}
        self.returned: dict[TopicPartition, int] = {}
        self.streams: dict[TopicPartition, int] = {}
        self.error: Exception | None = None
        self.ended = self.is_shut_down = False
        self.tickets: set[int] = set()
        self._executing = False
        self.session: Any = None
        self._connect()

    @property
    def now(self) -> float:
        """Seconds."""
        return self.world.schedule.now_ms / 1000

    def has(self, session: int) -> bool:
        """Whether this is its session."""
        return self.session is not None and self.session.session_id == session

    def _connect(self) -> None:
        if not self.ended:
            self.session = self.world.service.open(self)

    # What the application does.

    def consume(self) -> None:
        """The streams return some records."""
        chance = self.world.chance
        for partition in self.positions:
            count = min(
                chance.randrange(4) if self.world.faulty else 100,
                self.world.ends.get(partition, 0) - self.positions[partition],
            )
            if count > 0:
                self.world.process(self, partition, self.positions[partition], self.positions[partition] + count)
                self.positions[partition] += count

    def commit(self) -> None:
        """Commit explicitly."""
        if not self.ended:
            ticket = self.machine.commit(self.now)
            self.tickets.add(ticket)
            self._execute()

    def shut_down(self) -> None:
        """End in order."""
        self.is_shut_down = True
        self._input(self.machine.shut_down)

    def kill(self) -> None:
        """End at once."""
        self.ended = True
        self.positions.clear()
        if self.session is not None:
            self.session.kill()

    # The session.

    def established(self) -> None:
        assert self.session is not None
        self._input(self.machine.established, self.session.session_id, START_WALL_MS + self.world.schedule.now_ms)

    def suspended(self) -> None:
        self._input(self.machine.suspended)

    def resumed(self) -> None:
        self._input(self.machine.resumed)

    def lost(self) -> None:
        self._input(self.machine.lost)
        self.session = None
        self.world.schedule.after(self.world.chance.randrange(300), self._connect)

    # The machine.

    def _input(self, function: Callable[..., object], *arguments: Any) -> None:
        if not self.ended:
            function(*arguments, self.now)
            self._execute()

    def _execute(self) -> None:
        """Execute all effects."""
        if self._executing:
            return
        self._executing = True
        while not self.ended and (taken := self.machine.take_effects()):
            for effect in taken:
                EXECUTE[type(effect)](self, effect)
        self._executing = False
        deadline = self.machine.deadline
        if deadline is not None and not self.ended:
            self.world.schedule.at(int(deadline * 1000) + 1, partial(self._expire, deadline))

    def _expire(self, deadline: float) -> None:
        if self.machine.deadline == deadline and self.now >= deadline:
            self._input(self.machine.expire)

    def operate(self, effect: effects.Operation) -> None:
        if self.session is None or self.session.over:
            return
        self.session.call(
            effect.call,
            partial(self._completed, self.session, effect.token),
            partial(self._fired, self.session, effect.token),
        )

    def _completed(self, session: Any, token: int, outcome: Outcome) -> None:
        if session is self.session:
            self._input(self.machine.completed, token, outcome)

    def _fired(self, session: Any, token: int) -> None:
        if session is self.session:
            self._input(self.machine.fired, token)

    def release(self, effect: effects.Release) -> None:
        """The streams stop at once; the listener takes some time."""
        assert effect.partitions >= self.positions.keys(), (effect.partitions, self.positions)
        positions, self.positions = self.positions, {}
        chance = self.world.chance
        delay = chance.choice((0, 0, 5, 100, 1_500 if self.world.faulty else 100))
        self.world.schedule.after(delay, partial(self._input, self.machine.released, effect.token, positions))

    def read_positions(self, effect: effects.ReadPositions) -> None:
        positions = {each: self.positions[each] for each in effect.partitions if each in self.positions}
        self.machine.positions_read(effect.token, positions, self.now)

    def commit_offsets(self, effect: effects.CommitOffsets) -> None:
        self.world.check_commit(self, effect.offsets)
        world, chance, session = self.world, self.world.chance, self.session
        fails = world.faulty and chance.random() < 0.2
        failed = {each for each in effect.offsets if fails and chance.random() < 0.5}

        def write() -> None:
            for partition, offset in effect.offsets.items():
                if partition not in failed:
                    world.write_offset(self, session, partition, offset)

        world.schedule.after(delay := chance.choice((0, 1, 5, 50)), write)
        lost = fails and not failed
        outcome = (
            Outcome(error=StorageError("planned")) if lost else Outcome(dict.fromkeys(failed, StorageError("one")))
        )
        world.schedule.after(delay, partial(self._input, self.machine.committed, effect.token, outcome))

    def read_offsets(self, effect: effects.ReadOffsets) -> None:
        world = self.world

        def read() -> None:
            if world.faulty and world.chance.random() < 0.1:
                outcome = Outcome(error=StorageError("planned"))
            else:
                outcome = Outcome({each: world.offsets.get(each) for each in effect.partitions})
            self._input(self.machine.offsets_read, effect.token, outcome)

        world.schedule.after(world.chance.choice((0, 1, 5, 50)), read)

    def fetch(self, effect: effects.Fetch) -> None:
        starts: Mapping[TopicPartition, effects.FetchStart] = effect.partitions
        assert not self.positions
        self.positions = {each: start.offset or 0 for each, start in starts.items()}
        self.streams = {each: start.stream for each, start in starts.items()}
        self.world.check_fetch(self, starts)

    def commit_done(self, effect: effects.CommitDone) -> None:
        self.tickets.remove(effect.ticket)

    def note_problem(self, effect: effects.Problem) -> None:
        self.world.problems.append(str(effect.error))

    def fail(self, effect: effects.Failed) -> None:
        self.error = effect.error
        self.end(effect)

    def end(self, effect: object) -> None:
        assert not self.positions and not self.tickets, "the consumer ended before its streams and commits"
        self.ended = True
        if self.session is not None and not self.session.over:
            self.world.check_left(self, self.session)
            self.session.end()


EXECUTE: dict[type, Callable[[Member, Any], None]] = {
    effects.Operation: Member.operate,
    effects.Release: Member.release,
    effects.ReadPositions: Member.read_positions,
    effects.CommitOffsets: Member.commit_offsets,
    effects.ReadOffsets: Member.read_offsets,
    effects.Fetch: Member.fetch,
    effects.CommitDone: Member.commit_done,
    effects.Problem: Member.note_problem,
    effects.Failed: Member.fail,
    effects.Ended: Member.end,
}
