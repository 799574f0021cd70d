"""One shard of a coordinator: runs commands on its state machine, appends their records and completes requests.

An incarnation is one machine from its replay until an append fails or the shard is closed. Invariants (`state.effects`
lists what the machines rely on):
1. A command, the `apply` of its records and their append are one step of the event loop: nothing runs between them.
2. Answers leave when all earlier records are committed, in the order of the commands.
3. An append that fails ends the incarnation: all pending requests fail with an error of the coordinator, and the log is
   replayed. A command that raises does the same, because its changes may be incomplete.
4. Callbacks of a previous incarnation, of an append or a timer, are ignored. Replay starts once the last append of that
   incarnation has completed; if it committed nothing, replay is delayed by a second, so that a full disk does not lead
   to a tight retry loop. A log that cannot be read is retried with a growing delay, up to about a minute.
5. A request that waits longer than the commit timeout for its append fails with an error of the coordinator; its
   records stay valid once they are committed. What the machine asks after the commit has no timeout.
6. While the log accepts no appends, because too few replicas are in sync, only queries run: a command would have to be
   undone by a replay. It fails with COORDINATOR_NOT_AVAILABLE. The first timer that expires meanwhile ends the
   incarnation, because members could not keep their sessions; the next one begins when the log accepts appends and the
   replicas have all records. Until then requests fail with COORDINATOR_NOT_AVAILABLE while too few replicas are in
   sync, else with COORDINATOR_LOAD_IN_PROGRESS. NOT_COORDINATOR would hide the groups of the shard in ListGroups.
7. A command of a transaction, or with its marker, runs only if the log would accept its batch now; its request fails
   alone otherwise, since what a command has applied cannot be undone.
8. Answers to `ENVIRONMENT` are requests of the machine: they are passed to `ask` in the order of the answers, while
   the incarnation lasts. Those of the start follow its timers.

Source: CoordinatorRuntime.java of Apache Kafka.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafkalite.backoff import exponential_pause
from kafkalite.callbacks import call_each
from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.errors import KafkaErrorCode
from kafkalite.slicing import Slicer
from kafkalite.state.effects import ENVIRONMENT, Answer, Effects, Now, SetTimer, TimerChange, TimerName, Token

if TYPE_CHECKING:
    from typing import TypeAlias

    from kafkalite.coordinators.runtime.partition_writer import TransactionOfRecords
    from kafkalite.records.control import TransactionMarker

    Transaction: TypeAlias = TransactionOfRecords | TransactionMarker | None

LOGGER = logging.getLogger("kafkalite.coordinators")
LOADING: int = KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE: int = KafkaErrorCode.NOT_COORDINATOR
UNAVAILABLE: int = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
RETRY_MS = 1_000
RETRY_MAX_MS = 64_000
LOG_MS = 60_000  # between lines about the same error
TIMERS_AT_ONCE = 100
STEPS_AT_ONCE = 4  # of a start, outside the slicer: up to as many hundred sessions


class Machine(Protocol):
    """A pure state machine, as a shard drives it."""

    def apply(self, record: Any) -> None: ...
    def start_timers(self, now: Now) -> Iterator[Effects]: ...
    def fire_timer(self, name: TimerName, now: Now) -> Effects: ...
    def ended(self) -> None: ...


M = TypeVar("M", bound=Machine)
# Without the Python frame of `Now(...)`: each command has one.
_now: Callable[[tuple[int, int]], Now] = partial(tuple.__new__, Now)
Command = Callable[[M, Token, Now], Effects]


class CommandCompletion(Protocol):
    """The pending response of a command, and its token; exactly one method is called, once."""

    def answer(self, result: Any, /) -> object:
        """Complete with the result of the machine."""

    def fail(self, error: int, /) -> object:
        """Complete without a result: a Kafka error code."""


class RecordWriter(Protocol):
    """The log of a shard."""

    def append(self, records: list[object], now: Now, transaction: "Transaction", done: Callable[[int], None]) -> None:
        """Append the records of one command; calls `done(error)` once they are committed, perhaps before it returns."""

    def refusal(self) -> int:
        """The error that every append would have now, 0 = none: NOT_ENOUGH_REPLICAS."""

    def rejection(self, transaction: "TransactionOfRecords | TransactionMarker") -> int:
        """The error that an append of this transaction would have now, 0 = none."""

    def replay(self, apply: Callable[[object], None], done: Callable[[int], None]) -> Callable[[], None]:
        """Replay all committed records into `apply`, in the background; then call `done(error)`. Returns its stop.

        NOT_ENOUGH_REPLICAS: too few replicas are in sync, or do not have all records yet.
        """

    def write_pending(self) -> None:
        """Write the batches that were appended outside a loop iteration of the network."""


class PendingAppend:
    """An append that is not committed yet.

    Attributes:
        answers: they leave once it is committed.
        since_ms: its time on the monotonic clock.
        ended: the log has called back.
    """

    __slots__ = ("answers", "ended", "since_ms")

    def __init__(self, answers: list[Answer], since_ms: int) -> None:
        self.answers = answers
        self.since_ms = since_ms
        self.ended = False


class Incarnation(Generic[M]):
    """A machine from its replay until an append fails or the shard is closed.

    Attributes:
        entries: appends that are not committed, in order.
        completions: pending responses, as an ordered set.
        timers: set timers.
        unset: timers of the start that are not set yet; they are set some at a time.
        committed: whether anything was committed.
        commit_timer: fires when the oldest append has taken the commit timeout.
    """

    def __init__(self, machine: M) -> None:
        self.machine = machine
        self.entries: deque[PendingAppend] = deque()
        self.completions: dict[CommandCompletion, None] = {}
        self.timers: dict[TimerName, Timer] = {}
        self.unset: dict[TimerName, SetTimer[TimerName]] = {}
        self.committed = False
        self.commit_timer: Timer | None = None


class CoordinatorShard(Generic[M]):
    """A shard that this broker coordinates; `load` starts its replay.

    Arguments:
        index: of its partition.
        make_machine: creates an empty machine.
        writer: its log.
        clock: for timers and `Now`.
        ask: receives the requests of the machine to its environment.
        commit_timeout_ms: how long an answer may wait for its records.
        slicer: spreads the steps after a replay, which start the sessions of thousands of members.
    """

    def __init__(
        self,
        index: int,
        make_machine: Callable[[], M],
        writer: RecordWriter,
        clock: Clock,
        ask: Callable[[int, Any], None],
        commit_timeout_ms: int,
        slicer: Slicer,
    ) -> None:
        self._slicer = slicer
        self.index = index
        self._make_machine = make_machine
        self._writer = writer
        self._clock = clock
        self._ask = ask
        self._commit_timeout_ms = commit_timeout_ms
        self._incarnation: Incarnation[M] | None = None
        self._error = LOADING
        self._open = 0  # appends of all incarnations that have not completed
        self._logged_error = self._logged_ms = 0  # of the last line about a failed append
        self._stop: Callable[[], None] | None = None  # stops the current replay
        self._retry: Timer | None = None
        self._failed_loads = 0  # in a row
        self._later: list[Command[M]] = []  # commands without a completion, submitted while loading
        self._closed = False

    @property
    def machine(self) -> M | None:
        """The machine, None while it is not loaded. Read only: commands go through `submit`."""
        return None if self._incarnation is None else self._incarnation.machine

    @property
    def committed_machine(self) -> M | None:
        """The machine if an answer would leave at once: it is loaded, and every record is committed; else None."""
        incarnation = self._incarnation
        return None if incarnation is None or incarnation.entries else incarnation.machine

    @property
    def is_unloaded(self) -> bool:
        """Whether it was never loaded."""
        begun = self._incarnation is not None or self._stop is not None or self._retry is not None or self._open
        return self._error == LOADING and not begun

    @property
    def error(self) -> int:
        """The error of all commands now; 0 = the shard is loaded."""
        if self._incarnation is not None:
            return 0
        return UNAVAILABLE if self._error == LOADING and self._writer.refusal() else self._error

    def now(self) -> Now:
        return _now((int(self._clock.monotonic() * 1000), self._clock.wall_ms()))

    # commands

    def submit(
        self,
        command: Command[M],
        completion: CommandCompletion | None,
        transaction: "Transaction" = None,
        *,
        is_query: bool = False,
    ) -> None:
        """Run a command; see `CoordinatorRuntime.submit`."""
        incarnation = self._incarnation
        if incarnation is None:
            self._refuse(command, completion)
            return
        refusal = 0 if is_query else self._writer.refusal()
        if refusal:
            self._refuse_append(incarnation, command, completion, refusal)
            return
        if transaction is not None and (error := self._writer.rejection(transaction)):
            assert completion is not None, "a command of a transaction has a response"
            completion.fail(error)
            return
        if completion is not None:
            incarnation.completions[completion] = None
        try:
            now = self.now()
            answers = self._apply_effects(incarnation, command(incarnation.machine, completion, now), now, transaction)
        except Exception:
            self._command_failed(incarnation, completion)
            raise
        if answers:
            self._complete(incarnation, answers)

    def _refuse(self, command: Command[M], completion: CommandCompletion | None) -> None:
        if completion is not None:
            completion.fail(self.error)
        elif not self._closed:
            self._later.append(command)

    def _refuse_append(
        self, incarnation: Incarnation[M], command: Command[M], completion: CommandCompletion | None, error: int
    ) -> None:
        """The log accepts no appends (invariant 6)."""
        if completion is not None:
            completion.fail(coordinator_error(error))
        else:
            self._later.append(command)
            self._drop(incarnation, coordinator_error(error))

    def _command_failed(self, incarnation: Incarnation[M], completion: CommandCompletion | None = None) -> None:
        """End the incarnation, because a command raised an exception (invariant 3)."""
        if completion is not None and completion in incarnation.completions:
            del incarnation.completions[completion]
            completion.fail(KafkaErrorCode.UNKNOWN_SERVER_ERROR)
        self._drop(incarnation, NOT_HERE)

    def _apply_effects(
        self, incarnation: Incarnation[M], effects: Effects, now: Now, transaction: "Transaction" = None
    ) -> Sequence[Answer]:
        """Apply and append the records of a command (invariant 1); returns the answers that may leave now."""
        for record in effects.records:
            incarnation.machine.apply(record)
        for change in effects.timers:
            self._set_timer(incarnation, change)
        ready: Sequence[Answer] = ()
        if effects.records:
            self._append(incarnation, PendingAppend(effects.answers, now.ms), effects.records, now, transaction)
        elif incarnation.entries:
            incarnation.entries[-1].answers += effects.answers  # after those of the pending appends
        else:
            ready = effects.answers
        for question in effects.questions:
            self._ask(self.index, question)
        return ready

    def _append(
        self,
        incarnation: Incarnation[M],
        entry: PendingAppend,
        records: list[object],
        now: Now,
        transaction: "Transaction",
    ) -> None:
        incarnation.entries.append(entry)
        self._open += 1
        try:
            self._writer.append(records, now, transaction, partial(self._appended, incarnation, entry))
        except Exception:
            if not entry.ended:  # the log did not accept it
                entry.ended = True
                self._open -= 1
            raise
        if incarnation.commit_timer is None and not entry.ended:
            self._start_commit_timer(incarnation, now.ms)

    def _start_commit_timer(self, incarnation: Incarnation[M], since_ms: int) -> None:
        incarnation.commit_timer = self._clock.call_at(
            (since_ms + self._commit_timeout_ms) / 1000, self._commit_timed_out, incarnation
        )

    def _commit_timed_out(self, incarnation: Incarnation[M]) -> None:
        """Fail the requests of late appends (invariant 5). One timer for all appends fires at most once per timeout."""
        incarnation.commit_timer = None
        now_ms = self.now().ms + 1  # the float may be slightly lower
        late = [entry for entry in incarnation.entries if now_ms - entry.since_ms >= self._commit_timeout_ms]
        completions: list[Any] = [
            each.token for entry in late for each in entry.answers if each.token in incarnation.completions
        ]
        for entry in late:
            entry.answers = [each for each in entry.answers if each.token is ENVIRONMENT]
        for completion in completions:
            del incarnation.completions[completion]
        if incarnation.entries:
            on_time = (entry.since_ms for entry in islice(incarnation.entries, len(late), None))
            self._start_commit_timer(incarnation, next(on_time, now_ms))
        if completions:
            LOGGER.error("shard %d: records were not committed within %d ms", self.index, self._commit_timeout_ms)
        error = coordinator_error(KafkaErrorCode.REQUEST_TIMED_OUT)
        call_each(lambda completion: completion.fail(error), completions)

    # answers

    def _appended(self, incarnation: Incarnation[M], entry: PendingAppend, error: int) -> None:
        entry.ended = True
        self._open -= 1
        if self._incarnation is not incarnation:
            self._begin_replay()
        elif error:
            self._log_failure(error)
            self._drop(incarnation, coordinator_error(error))
        else:
            incarnation.committed = True
            ready = incarnation.entries.popleft().answers if incarnation.entries[0] is entry else []
            while incarnation.entries and incarnation.entries[0].ended:
                ready += incarnation.entries.popleft().answers
            self._complete(incarnation, ready)

    def _log_failure(self, error: int) -> None:
        """Log a failed append, once a minute for each error: on a full disk each attempt fails."""
        now_ms = self.now().ms
        if error != self._logged_error or now_ms - self._logged_ms >= LOG_MS:
            self._logged_error, self._logged_ms = error, now_ms
            LOGGER.error("shard %d: an append failed with %s; replaying", self.index, KafkaErrorCode(error).name)

    def _complete(self, incarnation: Incarnation[M], answers: Sequence[Answer]) -> None:
        if len(answers) == 1:
            self._complete_one(incarnation, answers[0])
        else:
            call_each(partial(self._complete_one, incarnation), answers)

    def _complete_one(self, incarnation: Incarnation[M], answer: Answer) -> None:
        token: Any = answer.token
        if token is not None and token in incarnation.completions:  # else it has failed with its incarnation
            del incarnation.completions[token]
            token.answer(answer.result)
        elif token is ENVIRONMENT and self._incarnation is incarnation:
            self._ask(self.index, answer.result)

    # timers

    def _set_timer(self, incarnation: Incarnation[M], change: TimerChange) -> None:
        incarnation.unset.pop(change.name, None)
        old = incarnation.timers.pop(change.name, None)
        if old is not None:
            old.cancel()
        if isinstance(change, SetTimer):
            incarnation.timers[change.name] = self._clock.call_at(
                change.at_ms / 1000, self._expired, incarnation, change
            )

    def _expired(self, incarnation: Incarnation[M], timer: SetTimer[TimerName]) -> None:
        if self._incarnation is not incarnation:
            return
        del incarnation.timers[timer.name]
        if refusal := self._writer.refusal():
            self._drop(incarnation, coordinator_error(refusal))
            return
        try:
            now = self.now()
            now = now._replace(ms=max(now.ms, timer.at_ms))  # the float may be slightly lower
            answers = self._apply_effects(incarnation, incarnation.machine.fire_timer(timer.name, now), now)
        except Exception:
            self._command_failed(incarnation)
            raise
        self._complete(incarnation, answers)
        self._writer.write_pending()

    # incarnations

    def load(self) -> None:
        """Replay the log; until then commands fail with COORDINATOR_LOAD_IN_PROGRESS."""
        self._error = LOADING
        self._retry = None
        self._begin_replay()

    def reload(self) -> None:
        """Replay the log into a new machine, for a new leader epoch: pending requests fail with
        COORDINATOR_LOAD_IN_PROGRESS. A shard that was never loaded stays so.
        """
        if self._incarnation is not None:
            self._drop(self._incarnation, LOADING, soon=True)
        elif self._stop is not None:
            self._stop()
            self._stop = None
            self.load()

    def close(self) -> None:
        """Stop: pending requests and all later ones fail with NOT_COORDINATOR."""
        self._closed = True
        self._later.clear()
        if self._retry is not None:
            self._retry.cancel()
        if self._stop is not None:
            self._stop()
        self._error = NOT_HERE
        if self._incarnation is not None:
            self._drop(self._incarnation, NOT_HERE)

    def _drop(self, incarnation: Incarnation[M], error: int, *, soon: bool = False) -> None:
        if self._incarnation is not incarnation:
            return
        self._incarnation = None
        incarnation.machine.ended()
        for timer in incarnation.timers.values():
            timer.cancel()
        if incarnation.commit_timer is not None:
            incarnation.commit_timer.cancel()
        completions, incarnation.completions = list(incarnation.completions), {}
        if not self._closed:
            self._load_again(LOADING if error == UNAVAILABLE else NOT_HERE, soon=soon or incarnation.committed)
        call_each(lambda completion: completion.fail(error), completions)

    def _load_again(self, error: int, *, soon: bool = False) -> None:
        """Replay the log: at once, or after a pause, during which all requests fail with `error`."""
        if soon:
            self.load()
        else:
            self._error = error
            wait_ms = exponential_pause(RETRY_MS, self._failed_loads, RETRY_MAX_MS)
            self._retry = self._clock.call_at(self._clock.monotonic() + wait_ms / 1000, self.load)

    def _begin_replay(self) -> None:
        busy = self._open or self._incarnation is not None or self._stop is not None or self._retry is not None
        if self._closed or busy:
            return
        machine = self._make_machine()
        self._stop = stop_nothing
        stop = self._writer.replay(machine.apply, partial(self._replayed, machine))
        if self._stop is stop_nothing:  # it has not ended meanwhile
            self._stop = stop

    def _replayed(self, machine: M, error: int) -> None:
        self._stop = None
        if self._closed:
            return
        if error:
            self._load_failed(error)
            return
        self._failed_loads = 0
        self._stop = stop_nothing
        started, steps = partial(self._started, Incarnation(machine)), self._start(machine)
        outcome = first_steps(steps)
        if outcome is not None and outcome.error is None:
            started(outcome)
            return
        # The slicer reports what `started` raises.
        start = self._slicer.run(steps if outcome is None else ending_with(outcome), started)
        if self._stop is stop_nothing:  # it has not ended meanwhile
            self._stop = start.cancel

    def _load_failed(self, error: int) -> None:
        if error == KafkaErrorCode.NOT_ENOUGH_REPLICAS:  # that ends by itself
            self._load_again(LOADING)
        else:
            self._failed_loads += 1
            self._load_again(NOT_HERE)

    def _start(self, machine: M) -> Generator[None, None, tuple[Effects, Now]]:
        """Run the steps after the replay, such as the start of sessions."""
        now, effects = self.now(), Effects()
        for share in machine.start_timers(now):
            effects.extend(share)
            yield
        return effects, now

    def _started(self, incarnation: Incarnation[M], outcome: Outcome) -> None:
        self._stop = None
        self._incarnation = incarnation
        later, self._later = self._later, []
        try:
            effects, now = outcome.result()
            incarnation.unset = {change.name: change for change in effects.timers if isinstance(change, SetTimer)}
            effects.timers = []
            ready = self._apply_effects(incarnation, effects, now)  # no client waits for it
        except Exception:
            self._command_failed(incarnation)
            raise
        self._slicer.run(self._continue(incarnation, ready), Outcome.result)
        call_each(lambda command: self.submit(command, None), later)
        self._writer.write_pending()

    def _continue(self, incarnation: Incarnation[M], answers: Sequence[Answer]) -> Generator[None, None, None]:
        """Set the timers of the start, unless a command has set or cancelled them meanwhile; then pass its requests to
        the environment.
        """
        while incarnation.unset and self._incarnation is incarnation:
            for name in list(islice(incarnation.unset, TIMERS_AT_ONCE)):
                self._set_timer(incarnation, incarnation.unset[name])
            yield
        for begin in range(0, len(answers), TIMERS_AT_ONCE):
            self._complete(incarnation, answers[begin : begin + TIMERS_AT_ONCE])
            yield


def first_steps(steps: Generator[None, None, Any]) -> Outcome | None:
    """Run the first steps immediately; return the outcome if the generator ends with them, else None.

    A shard with few sessions does not wait for the slicer: otherwise the first commit, which creates
    `__consumer_offsets`, would fail with COORDINATOR_LOAD_IN_PROGRESS on a busy broker.
    """
    try:
        for _ in range(STEPS_AT_ONCE):
            next(steps)
    except StopIteration as end:
        return Outcome(end.value)
    except Exception as error:
        return Outcome(error=error)
    return None


def ending_with(outcome: Outcome) -> Generator[None, None, Any]:
    """A generator that returns or raises an outcome at its first step."""
    yield from ()
    return outcome.result()


def stop_nothing() -> None:
    """The stop function of a replay that is just starting."""


def coordinator_error(error: int) -> int:
    """The error code for a request whose append failed with `error` (CoordinatorOperationExceptionHelper.java)."""
    if error in (KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, KafkaErrorCode.KAFKA_STORAGE_ERROR):
        return KafkaErrorCode.NOT_COORDINATOR
    if error in (
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.NOT_ENOUGH_REPLICAS,
        KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaErrorCode.REQUEST_TIMED_OUT,
    ):
        return KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
    return KafkaErrorCode.UNKNOWN_SERVER_ERROR
