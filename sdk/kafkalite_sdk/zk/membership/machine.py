"""The pure machine of a consumer whose group is in ZooKeeper.

The driver calls the inputs below, with the time in seconds (monotonic) as the last argument. After each of them it
takes `take_effects()` and executes them, until there are none; see `effects`. It calls `expire(now)` at `deadline`. It
may call an input within the execution of an effect. The machine ends with Failed or Ended, then it ignores all inputs.

```
machine = Membership(settings)
machine.established(session_id, wall_ms, now)   # registers, rebalances
machine.completed(token, outcome, now)          # of each Operation
machine.fired(token, now)                       # of each watch
machine.suspended(now), machine.resumed(now), machine.lost(now)
machine.released(token, positions, now)         # of each Release
machine.shut_down(now)                          # ends with Ended, or Failed
```

1. One procedure runs at a time: a session (`rebalance.member_session`) or the end (`rebalance.leave`).
2. Nothing is fetched without an owner node: `Fetch` follows the creation of all owners; they are deleted after
   `released`. A lost session releases at once. A suspended one keeps its partitions for the session timeout, because
   its owners remain; then it releases them, and fetches again when the connection is back.
3. Committed offsets never pass the positions that the driver reports, and only owned partitions are committed.
4. No change is made while the session is suspended. After a change without a response, the nodes are read back.
5. Every wait has a deadline: of a release and of offsets, `rebalance.max.retries` * `rebalance.backoff.ms`; of a
   commit, see `settings`; of the end, the same as of a release. A session without connection is waited for without
   limit.

Source: ZookeeperConsumerConnector.scala of Apache Kafka 1.1.1. `rebalance` lists the deviations.
"""

from kafkalite.clock import Outcome
from kafkalite.coordination.znodes.consumers import owners_path
from kafkalite_sdk.zk.membership.effects import Effect, Ended, Failed, Positions
from kafkalite_sdk.zk.membership.errors import ReleaseTimeoutError, SessionLostError
from kafkalite_sdk.zk.membership.rebalance import leave, member_session
from kafkalite_sdk.zk.membership.runner import Runner
from kafkalite_sdk.zk.membership.settings import MembershipSettings
from kafkalite_sdk.zk.membership.state import MemberState, Session


class Membership:
    """The membership of one consumer.

    Arguments:
        settings: see MembershipSettings; raises ValueError if they are not valid.

    Attributes:
        state: for tests and for reports; not to be changed.
    """

    def __init__(self, settings: MembershipSettings) -> None:
        settings.check()
        self.state = MemberState(settings)
        self._runner = Runner(self.state, self._procedure_ended)
        self._commits = self._runner.commits
        self._release_at: float | None = None  # a suspended session does not keep its partitions for longer
        self._end_at: float | None = None
        self._leaving = False
        self._error: Exception | None = None
        self._has_ended = False
        self._tickets = 0
        self._runner.start(member_session(self.state))

    @property
    def deadline(self) -> float | None:
        """When `expire` must be called, None = it need not be."""
        if self._has_ended:
            return None
        times = (self._runner.deadline, self._commits.deadline, self._release_at, self._end_at)
        return min((time for time in times if time is not None), default=None)

    def take_effects(self) -> list[Effect]:
        """What is to be done since the last call, in this order."""
        effects, self.state.effects = self.state.effects, []
        return effects

    # The session.

    def established(self, session_id: int, wall_ms: int, now: float) -> None:
        """A session began.

        Arguments:
            session_id: the owner of its ephemeral nodes.
            wall_ms: milliseconds since 1970, for the registration.
            now: in seconds.
        """
        if self._begin(now):
            self.state.session = Session(session_id, wall_ms)
            self._runner.wake()
            self._end_input()

    def suspended(self, now: float) -> None:
        """The session has no connection."""
        if self._begin(now) and self.state.session is not None:
            self.state.suspended = True
            self._release_at = now + self.state.settings.session_timeout_s
            self._runner.wake()

    def resumed(self, now: float) -> None:
        """The session has a connection again."""
        if self._begin(now):
            self.state.suspended = False
            self._release_at = None
            self._commits.proceed()
            self._runner.wake()
            self._end_input()

    def lost(self, now: float) -> None:
        """The session is over: its nodes are gone. The partitions are released at once, and not committed."""
        if not self._begin(now):
            return
        self.state.end_session()
        self._release_at = None
        self._commits.abandon(SessionLostError("the session with ZooKeeper is over"))
        self._runner.start(leave(self.state) if self._leaving else member_session(self.state))
        self._end_input()

    def completed(self, token: int, outcome: Outcome, now: float) -> None:
        """The result of an operation.

        Arguments:
            token: of the Operation.
            outcome: its value, or a CoordinationError.
            now: in seconds.
        """
        if self._begin(now):
            self._runner.completed(token, outcome)
            self._end_input()

    def fired(self, token: int, now: float) -> None:
        """The watch of a read has fired."""
        path = self.state.watches.remove(token)
        if not self._begin(now) or path is None:
            return
        if path.startswith(owners_path(self.state.settings.group) + "/"):
            self.state.blocked.discard(path)
        else:
            self.state.changed = True
        self._runner.wake()
        self._end_input()

    # Streams and offsets.

    def released(self, token: int, positions: Positions, now: float) -> None:
        """The streams have stopped, and the listener has returned.

        Arguments:
            token: of the Release.
            positions: the offset behind the last record that a stream has returned, by partition.
            now: in seconds.
        """
        if self._begin(now) and token == self.state.releasing:
            owned = self.state.held.keys() | self.state.unknown.keys()  # not those of a session that is over
            self.state.active, self.state.releasing = None, None
            self._runner.released({each: positions[each] for each in positions if each in owned})
            self._commits.proceed()
            self._end_input()

    def positions_read(self, token: int, positions: Positions, now: float) -> None:
        """The answer to ReadPositions.

        Arguments: as of `released`.
        """
        if self._begin(now):
            self._commits.positions_read(token, positions)
            self._end_input()

    def committed(self, token: int, outcome: Outcome, now: float) -> None:
        """The result of CommitOffsets.

        Arguments:
            token: of the effect.
            outcome: an error, or a mapping with the error of each partition that was not committed.
            now: in seconds.
        """
        if self._begin(now):
            self._commits.committed(token, outcome)
            self._end_input()

    def offsets_read(self, token: int, outcome: Outcome, now: float) -> None:
        """The result of ReadOffsets.

        Arguments:
            token: of the effect.
            outcome: an error, or the offset, None or an exception of each partition.
            now: in seconds.
        """
        if self._begin(now):
            self._runner.offsets_read(token, outcome)
            self._end_input()

    # The application and the timer.

    def commit(self, now: float) -> int:
        """Commit the present positions; returns the ticket of the CommitDone that reports the end."""
        self._tickets += 1
        if self._begin(now):
            self._commits.request(self._tickets)
            self._end_input()
        return self._tickets

    def shut_down(self, now: float) -> None:
        """Release, commit if commits are automatic, delete owners and registration; then Ended."""
        if self._begin(now) and not self._leaving:
            self._leave()

    def expire(self, now: float) -> None:
        """The time is `deadline` or later."""
        if not self._begin(now):
            return
        if self._end_at is not None and now >= self._end_at:
            self._end(self._error or ReleaseTimeoutError("the consumer has not left its group in time"))
            return
        if self._release_at is not None and now >= self._release_at:
            self._release_at = None
            if self.state.active:
                self._runner.release(lost=True)
        self._commits.expire()
        self._runner.expire()
        self._end_input()

    # The end.

    def _begin(self, now: float) -> bool:
        self.state.now = now
        return not self._has_ended

    def _end_input(self) -> None:
        if self.state.active:
            self._commits.start_periodic()

    def _leave(self, error: Exception | None = None) -> None:
        self._leaving, self._error = True, error
        self._end_at = self.state.now + self.state.settings.rebalance_timeout_s
        self._runner.start(leave(self.state))

    def _procedure_ended(self, error: Exception | None) -> None:
        if not self._leaving:
            self._leave(error)
        else:
            self._end(self._error or error)

    def _end(self, error: Exception | None) -> None:
        self._has_ended = True
        self._commits.abandon(error or SessionLostError("the consumer has ended"))
        self.state.effects.append(Ended() if error is None else Failed(error))
