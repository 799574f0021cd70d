"""The result of a command of a state machine: records, answers, timers and questions for the coordinator runtime.

A machine is called with a command and the time, and returns `Effects`; it has no socket, log or clock. The runtime
guarantees, and machines rely on this:
1. No other command of the shard runs between a command and the `apply` of its records.
2. All records of a command are appended as one batch, then applied in order, by the `apply` that replay uses too.
3. Answers leave once the records of the command, or all earlier records of the shard if it has none, are committed.
4. Timers are set and cancelled in order, when the records are applied. A timer of the same name replaces the older one;
   a cancelled or replaced timer never fires.
5. When an append fails, the machine is dropped and the log is replayed: no change in memory survives, and every pending
   token fails with an error of the coordinator.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

Token = object  # the pending response of a command; a machine only keeps it and returns it
ENVIRONMENT: Token = object()  # the token of `Effects.ask_after_commit`
TimerName = tuple[str, ...]  # of a group
Name = TypeVar("Name", bound=tuple[object, ...])


class Now(NamedTuple):
    """The time of a command: timeouts count on the monotonic clock, records carry wall time (both ms)."""

    ms: int
    wall_ms: int


class Answer(NamedTuple):
    """The result for a pending response."""

    token: Token
    result: object


# Without the Python frame of `Answer(...)`: each command makes one.
_answer: Callable[[tuple[Token, object]], Answer] = partial(tuple.__new__, Answer)


class SetTimer(NamedTuple, Generic[Name]):
    """Report at `at_ms` of the monotonic clock that the timer has expired. It replaces an earlier timer of this name.

    Groups receive `expired(name, now)`, the controller the event `TimerExpired`.
    """

    name: Name
    at_ms: int


class CancelTimer(NamedTuple, Generic[Name]):
    """Cancel a timer, if it is set."""

    name: Name


TimerChange = SetTimer[TimerName] | CancelTimer[TimerName]


class ResolvePatterns(NamedTuple):
    """Find the topics that match patterns of a consumer group; ends with `patterns_resolved` or `patterns_failed`.

    Arguments:
        internal: whether internal topics match too.
    """

    group: str
    patterns: tuple[str, ...]
    internal: bool = True


@dataclass(slots=True)
class Effects:
    """The effects of one command, in order.

    Arguments:
        records: typed records of `groups/records`, for one batch.
        answers: results by token; every token is answered exactly once, by this command or by a later one.
        timers: timers to set and to cancel.
        questions: requests of the machine to its environment, sent when the records are applied: `ResolvePatterns` of
            groups, `AllocateProducerId` of transactions.
    """

    records: list[object] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    questions: list[Any] = field(default_factory=list)

    def answer(self, token: Token, result: object) -> None:
        self.answers.append(_answer((token, result)))

    def ask_after_commit(self, request: object) -> None:
        """Send a request to the environment once the records are committed, in the order of the answers.

        The markers of a transaction are such a request: one that left before the decision is committed could tear the
        transaction. It is dropped with the machine; the next one repeats it from `start_timers`.
        """
        self.answers.append(_answer((ENVIRONMENT, request)))

    def set_timer(self, name: TimerName, at_ms: int) -> None:
        self.timers.append(SetTimer(name, at_ms))

    def cancel_timer(self, name: TimerName) -> None:
        self.timers.append(CancelTimer(name))

    def extend(self, other: "Effects") -> None:
        """Append the effects that another machine of the shard has for the same command."""
        self.records += other.records
        self.answers += other.answers
        self.timers += other.timers
        self.questions += other.questions


def answer_only(token: Token, result: object) -> Effects:
    """The effects of a command that only returns a result."""
    return Effects(answers=[_answer((token, result))])
