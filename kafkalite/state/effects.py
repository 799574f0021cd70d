"""What a command of a group machine leads to: the whole vocabulary between the machines and their runtime.

A machine is called with a command and the time, and returns `Effects`; it never sees a socket, a log or a clock. Laws
that the runtime keeps, and on which the machines rely:
1. No other command of the shard runs between a command and the `apply` of its records.
2. All records of one command are appended as one batch, then applied in order, by the `apply` that replay uses too.
3. Answers leave once the command's records are committed; where it has none, once all earlier ones of the shard are.
4. Timers are set and cancelled in order, when the records are applied. A timer of the same name replaces the older one,
   and one that was cancelled or replaced never fires.
5. When an append fails, the shard is dropped and replayed: nothing that the command did in memory survives, and every
   token that waits is answered with an error of the coordinator.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

__all__ = ["Answer", "CancelTimer", "Effects", "Now", "ResolvePatterns", "SetTimer", "TimerName", "Token", "answered"]

Token = object  # who waits for an answer; a machine keeps it and hands it back, nothing more
TimerName = tuple[str, ...]


class Now(NamedTuple):
    """The time of a command: timeouts count on the monotonic clock, records carry wall time (both ms)."""

    ms: int
    wall_ms: int


class Answer(NamedTuple):
    """The result for whoever waits under `token`: a plain dataclass of the machine."""

    token: Token
    result: object


# Without the Python frame of `Answer(...)`: each command makes one.
_answer: Callable[[tuple[Token, object]], Answer] = partial(tuple.__new__, Answer)


class SetTimer(NamedTuple):
    """Call `expired(name, now)` at `at_ms` of the monotonic clock."""

    name: TimerName
    at_ms: int


class CancelTimer(NamedTuple):
    """Forget a timer; one that is not set is nothing to cancel."""

    name: TimerName


class ResolvePatterns(NamedTuple):
    """Find the topics that match patterns of a consumer group; ends with `patterns_resolved` or `patterns_failed`.

    Arguments:
        internal: whether internal topics match, too.
    """

    group: str
    patterns: tuple[str, ...]
    internal: bool = True


@dataclass(slots=True)
class Effects:
    """What one command led to, in order.

    Arguments:
        records: typed records of `groups/records`, for one batch.
        answers: results by token; every token is answered exactly once, by this command or by a later one.
        timers: what to set and to cancel.
        questions: what the machine needs to know from outside; asked when the records are applied.
    """

    records: list[object] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    questions: list[ResolvePatterns] = field(default_factory=list)

    def answer(self, token: Token, result: object) -> None:
        self.answers.append(_answer((token, result)))

    def set_timer(self, name: TimerName, at_ms: int) -> None:
        self.timers.append(SetTimer(name, at_ms))

    def cancel_timer(self, name: TimerName) -> None:
        self.timers.append(CancelTimer(name))

    def extend(self, other: "Effects") -> None:
        """Append what another machine of the same shard did for the same command."""
        self.records += other.records
        self.answers += other.answers
        self.timers += other.timers
        self.questions += other.questions


def answered(token: Token, result: object) -> Effects:
    """The effects of a command that is answered at once and does nothing else."""
    return Effects(answers=[_answer((token, result))])
