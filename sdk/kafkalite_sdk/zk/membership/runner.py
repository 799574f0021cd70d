"""Carries out the steps of the one procedure that a member runs."""

import itertools
from collections.abc import Callable

from kafkalite.clock import Outcome
from kafkalite.coordination.errors import CoordinationError, SessionExpiredError
from kafkalite.errors import KafkaError
from kafkalite_sdk.zk.membership.commits import Commits
from kafkalite_sdk.zk.membership.effects import Operation, Positions, ReadOffsets, Release
from kafkalite_sdk.zk.membership.errors import OffsetsTimeoutError, ReleaseTimeoutError
from kafkalite_sdk.zk.membership.state import MemberState
from kafkalite_sdk.zk.membership.steps import Calls, Commit, Offsets, Procedure, Step, Stop, Wait


class Runner:
    """Runs a procedure: one step at a time, its result starts the next one.

    Arguments:
        state: of the member.
        ended: called when the procedure has ended, with its error, or None.

    Attributes:
        tokens: of effects.
        commits: of the member.
        deadline: when `expire` must be called for the step, None = it need not be.
    """

    def __init__(self, state: MemberState, ended: Callable[[Exception | None], None]) -> None:
        self._state = state
        self._ended = ended
        self.tokens = itertools.count(1)
        self.commits = Commits(state, self.tokens, self._release_committed)
        self.deadline: float | None = None
        self._procedure: Procedure[None] | None = None
        self._step: Step | None = None
        self._open: dict[int, int] = {}  # token of an operation -> its index in the step
        self._outcomes: list[Outcome] = []

    def start(self, procedure: Procedure[None]) -> None:
        """Run this procedure instead of the present one, whose results are ignored."""
        if self._procedure is not None:
            self._procedure.close()
        self._procedure = procedure
        self._resume(None)

    # Results.

    def completed(self, token: int, outcome: Outcome) -> None:
        """The result of an operation; that of a session that is over is ignored, because `lost` follows."""
        if isinstance(outcome.error, SessionExpiredError):
            return
        if outcome.error is not None:
            self._state.watches.remove(token)
        at = self._open.pop(token, None)
        if at is None:
            return
        self._outcomes[at] = outcome
        if not self._open:
            self._resume(self._outcomes)

    def released(self, positions: Positions) -> None:
        """The fetching of all partitions has stopped."""
        if isinstance(self._step, Stop):
            self._resume(positions)
        else:
            self._state.changed = True
            self.wake()

    def offsets_read(self, token: int, outcome: Outcome) -> None:
        """The result of ReadOffsets."""
        if isinstance(self._step, Offsets) and token in self._open:
            self._resume(outcome)

    def wake(self) -> None:
        """The state has changed."""
        if isinstance(self._step, Wait):
            self._resume(None)

    def expire(self) -> None:
        """Wait ends, or an answer is too late."""
        if self.deadline is None or self._state.now < self.deadline:
            return
        if isinstance(self._step, Stop):
            self._throw(ReleaseTimeoutError("the streams and the rebalance listener did not return in time"))
        elif isinstance(self._step, Offsets):
            self._resume(Outcome(error=OffsetsTimeoutError("the offset storage did not answer in time")))
        else:
            self.wake()

    def release(self, *, lost: bool) -> None:
        """Stop the fetching of the active partitions, unless that is in progress."""
        state = self._state
        if state.releasing is None:
            state.releasing = next(self.tokens)
            state.effects.append(Release(state.releasing, frozenset(state.active or ()), lost))

    # Steps.

    def _resume(self, value: object) -> None:
        procedure = self._procedure
        assert procedure is not None
        self._proceed(lambda: procedure.send(value))

    def _throw(self, error: Exception) -> None:
        procedure = self._procedure
        assert procedure is not None
        self._proceed(lambda: procedure.throw(error))

    def _proceed(self, run: Callable[[], Step]) -> None:
        self._step, self.deadline = None, None
        self._open.clear()
        try:
            step = run()
        except StopIteration:
            self._procedure = None
            self._ended(None)
        except (CoordinationError, KafkaError) as error:
            self._procedure = None
            self._ended(error)
        else:
            self._step = step
            self._begin(step)

    def _begin(self, step: Step) -> None:
        if isinstance(step, Calls):
            self._make_calls(step)
        elif isinstance(step, Stop):
            self._stop(step)
        elif isinstance(step, Commit):
            self.commits.release(step.positions)
        elif isinstance(step, Offsets):
            self._read_offsets(step)
        else:
            self.deadline = step.until

    def _make_calls(self, step: Calls) -> None:
        state = self._state
        self._outcomes = [Outcome()] * len(step.calls)
        if not step.calls:
            self._resume(self._outcomes)
            return
        for at, call in enumerate(step.calls):
            token = next(self.tokens)
            self._open[token] = at
            state.watches.add(call, token)
            state.effects.append(Operation(token, call))

    def _stop(self, step: Stop) -> None:
        if not self._state.active:
            self._resume({})
            return
        self.deadline = self._state.now + self._state.settings.rebalance_timeout_s
        self.release(lost=step.lost)

    def _read_offsets(self, step: Offsets) -> None:
        token = next(self.tokens)
        self._open[token] = 0
        self.deadline = self._state.now + self._state.settings.rebalance_timeout_s
        self._state.effects.append(ReadOffsets(token, step.partitions))

    def _release_committed(self) -> None:
        if isinstance(self._step, Commit):
            self._resume(None)
