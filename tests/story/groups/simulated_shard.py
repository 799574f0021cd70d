"""A shard for tests: it appends, applies, answers and sets timers like the runtime, in virtual time."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, Protocol, TypeVar

from kafkalite.coordinators.group.serde import GroupRecordSerde
from kafkalite.state.effects import CancelTimer, Effects, Now, ResolvePatterns, TimerName, Token
from kafkalite.state.groups.group import GroupType
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit
from kafkalite.state.groups.records import OffsetsCommitted, commits_of
from tests.kit.packed import in_one_piece

WALL_START_MS = 1_700_000_000_000
CODEC = GroupRecordSerde()


def delete_topic(machine: GroupMachine, topic: str) -> Effects:
    """Delete a topic in all groups, as housekeeping does."""
    effects = Effects()
    for group in machine.readers(topic):
        effects.extend(machine.topics_deleted(group, [topic]))
    return effects


def check_changed_topics(groups: GroupType, topics: Collection[str], now: Now) -> Effects:
    """Notify the groups of one type of changed topics, as housekeeping does."""
    return groups.check_topics(topics, groups.topics_changed(topics), now)


class Machine(Protocol):
    def apply(self, record: Any) -> None: ...
    def fire_timer(self, name: TimerName, now: Now) -> Effects: ...
    def start_timers(self, now: Now) -> Iterator[Effects]: ...


M = TypeVar("M", bound=Machine)


class Shard(Generic[M]):
    """One machine, its log and its clock."""

    def __init__(self, make: Callable[[], M]) -> None:
        self._make = make
        self.log: list[object] = []
        self.ms = 0
        self.timers: dict[TimerName, int] = {}
        self.answers: dict[Token, object] = {}
        self.order: dict[Token, int] = {}  # token -> number of its response
        self.waiting: dict[Token, int] = {}  # token -> time of the request
        self.questions: list[ResolvePatterns] = []
        self.incarnations = 1
        self._tokens = 0
        self.machine = make()
        self._start()

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_START_MS + self.ms)

    def _start(self) -> None:
        for effects in self.machine.start_timers(self.now):
            self.do(effects)

    def ask(self, command: Callable[[M, Token, Now], Effects]) -> Token:
        """Run a command; returns its token, under which `answers` has the result now or later."""
        self._tokens += 1
        token = self._tokens
        self.waiting[token] = self.ms
        self.do(command(self.machine, token, self.now))
        return token

    def do(self, effects: Effects) -> None:
        """Carry out effects like the runtime: append, apply, set timers, answer."""
        for record in effects.records:
            self.log += commits_of(record) if isinstance(record, OffsetsCommitted) else (record,)
            self.machine.apply(record)
        for timer in effects.timers:
            if isinstance(timer, CancelTimer):
                self.timers.pop(timer.name, None)
            else:
                assert timer.at_ms >= self.ms, f"{timer} is in the past"
                self.timers[timer.name] = timer.at_ms
        for token, result in effects.answers:
            assert token in self.waiting, f"{token} was answered twice, or is unknown: {result}"
            del self.waiting[token]
            self.answers[token] = result
            self.order[token] = len(self.order)
        self.questions += effects.questions

    def advance(self, ms: int, after_each: Callable[[], None] = lambda: None) -> None:
        """Let time pass; timers fire in order."""
        until = self.ms + ms
        while due := [(at_ms, name) for name, at_ms in self.timers.items() if at_ms <= until]:
            at_ms, name = min(due)
            self.ms = at_ms
            del self.timers[name]
            self.do(self.machine.fire_timer(name, self.now))
            after_each()
        self.ms = until

    def replayed(self) -> M:
        """A new machine that has replayed the log."""
        machine = self._make()
        for record in self.log:
            machine.apply(record)
        return machine

    def compact(self) -> None:
        """Compact the log: keep the last record of each key, no tombstones."""
        last: dict[bytes, tuple[int, bool]] = {}
        for at, record in enumerate(self.log):
            key, value = CODEC.encode(record)
            last[key] = at, value is not None
        self.log = [self.log[at] for at in sorted(at for at, exists in last.values() if exists)]

    def restart(self) -> list[Token]:
        """Restart the broker: pending requests, timers and memory are lost; returns the tokens of the requests."""
        self.incarnations += 1
        dropped = list(self.waiting)
        self.waiting.clear()
        self.timers.clear()
        self.questions.clear()
        self.machine = self.replayed()
        self._start()
        return dropped


def committing(request: Commit) -> Callable[[GroupMachine, Token, Now], Effects]:
    """The command of a commit; for every other token a packed one, as from a socket."""

    def command(machine: GroupMachine, token: Token, now: Now) -> Effects:
        assert isinstance(token, int)
        plain = request.producer_id == request.retention_ms == -1
        return machine.offsets.commit(in_one_piece(request) if plain and token % 2 else request, token, now)

    return command
