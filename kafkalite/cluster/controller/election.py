"""Takes part in the elections of the controller: one transaction creates `/controller` and raises `/controller_epoch`.

1. The broker that creates the ephemeral node is the controller, in the epoch that the same transaction wrote. The
   version of the epoch node fences all its writes.
2. A transaction whose result is unknown is read back: the node has the session as its owner, and the epoch is the one
   that this broker wrote.
3. Every broker watches `/controller`. Once it is deleted, all try to create it.
4. After a term that failed, its node is deleted at once, and this broker joins after a pause.
5. A node that is left of an earlier term of this session (`rejoin` after a failure) is deleted first.
6. While `/controller_epoch` is invalid, or calls fail, every broker tries again each second, and logs it once a minute.

Source: KafkaZkClient.registerControllerAndIncrementControllerEpoch, KafkaController.elect of Apache Kafka 3.9.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import (
    BadVersionError,
    ConnectionLossError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kafkalite.coordination.tree import Check, Create, Delete, Set, Stat, WatchEvent
from kafkalite.coordination.znodes.controller import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ControllerNode,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.rate_limited_log import RateLimitedLog

LOGGER = logging.getLogger("kafkalite.controller")
FIRST_EPOCH = 0
LOOK_AGAIN = (NodeExistsError, NoNodeError, BadVersionError, ConnectionLossError)
RETRY_S = 1.0  # after an error that no other broker causes, such as a lack of permission


class Term(NamedTuple):
    """A won election.

    Arguments:
        epoch: the controller epoch.
        epoch_version: the version of its node.
    """

    epoch: int
    epoch_version: int


class Election:
    """The elections of one session.

    Arguments:
        session: with the coordination service.
        clock: for the timestamp of the node, and for retries.
        broker_id: of this broker.
        elected: called with the `Term` when this broker is elected.
        moved: called when this broker is not the controller any more.
    """

    def __init__(
        self,
        session: Coordination,
        clock: Clock,
        broker_id: int,
        elected: Callable[[Term], object],
        moved: Callable[[], object],
    ) -> None:
        self._session = session
        self._clock = clock
        self._broker_id = broker_id
        self._elected = elected
        self._moved = moved
        self._tried: Term | None = None  # what the transaction in flight, or one without a response, writes
        self._term: Term | None = None
        self._looking = self._again = self._closed = self._paused = False
        self._timer: Timer | None = None
        self._log = RateLimitedLog(LOGGER, clock)
        self._invalid_epoch: ZnodeError | None = None

    @property
    def invalid_epoch(self) -> ZnodeError | None:
        """Why no controller can be elected: `/controller_epoch` is invalid. None = it was valid when it was read."""
        return self._invalid_epoch

    @property
    def term(self) -> Term | None:
        """The term of this broker, while it is the controller."""
        return self._term

    def start(self) -> None:
        """Join the election."""
        self._look()

    def rejoin(self) -> None:
        """End the own term, and join the next election."""
        self._term = None
        self._look()

    def pause(self, term: Term | None, pause_s: float) -> None:
        """End the own term, and join an election after a pause in seconds; until then another broker may be elected.

        If the node cannot be deleted now, it is deleted after the pause.
        """
        self._term, self._paused = None, True
        if self._closed:
            return
        self._timer = self._clock.call_at(self._clock.monotonic() + pause_s, self._resume)
        if term is not None:
            operations = (Check(CONTROLLER_EPOCH, term.epoch_version), Delete(CONTROLLER))
            self._session.multi(operations, self._left)

    def _left(self, outcome: Outcome) -> None:
        error = outcome.error
        if isinstance(error, SessionExpiredError):
            self._closed = True
        elif error is not None and not isinstance(error, CoordinationError):
            raise error

    def _resume(self) -> None:
        self._paused = False
        self._look()

    def close(self) -> None:
        """Leave; the node goes with the session."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self, _event: WatchEvent) -> None:
        self._look()

    def _look(self) -> None:
        """Read and watch the node; one read at a time, and another one if something changed meanwhile."""
        if self._closed or self._paused:
            return
        if self._looking:
            self._again = True
            return
        self._looking = True
        self._session.exists(CONTROLLER, self._looked, self._changed)

    def _looked(self, outcome: Outcome) -> None:
        self._looking = False
        if self._closed or self._paused or self._failed(outcome):
            return
        if self._again:
            self._again = False
            self._look()
            return
        stat: Stat | None = outcome.value
        own = stat is not None and stat.ephemeral_owner == self._session.session_id
        if stat is not None:
            self._invalid_epoch = None  # a controller was elected in an epoch
        if self._term is not None and not own:
            self._term = None
            self._moved()
        if stat is None:
            self._read_epoch(self._try)
        elif own and self._term is None:
            self._read_epoch(self._compare)

    def _read_epoch(self, then: Callable[[Term], object]) -> None:
        def read(outcome: Outcome) -> None:
            if self._closed:
                return
            if isinstance(outcome.error, NoNodeError):
                self._invalid_epoch = None
                self._session.create(CONTROLLER_EPOCH, encode_controller_epoch(FIRST_EPOCH), self._look_after)
            elif not self._failed(outcome):
                data, stat = outcome.value
                try:
                    epoch = decode_controller_epoch(data)
                except ZnodeError as error:
                    self._invalid_epoch = error
                    self._log(logging.ERROR, "epoch", "no controller can be elected: %s", error)
                    self._retry()
                    return
                self._invalid_epoch = None
                then(Term(epoch, stat.version))

        self._session.get(CONTROLLER_EPOCH, read)

    def _try(self, current: Term) -> None:
        """Try to become the controller."""
        term = self._tried = Term(current.epoch + 1, current.epoch_version + 1)
        node = ControllerNode(self._broker_id, self._clock.wall_ms())
        operations = (
            Create(CONTROLLER, encode_controller(node), ephemeral=True),
            Set(CONTROLLER_EPOCH, encode_controller_epoch(term.epoch), current.epoch_version),
        )
        self._session.multi(operations, self._ended)

    def _ended(self, outcome: Outcome) -> None:
        if not self._closed and outcome.error is None:
            assert self._tried is not None
            self._win(self._tried)
        self._look_after(outcome)

    def _look_after(self, outcome: Outcome) -> None:
        """Look again after a change: another broker may have been faster, or its result may be unknown."""
        if not self._closed and (isinstance(outcome.error, LOOK_AGAIN) or not self._failed(outcome)):
            self._look()

    def _compare(self, current: Term) -> None:
        """The node is this session's: of the transaction without a response, or of an earlier term."""
        if current == self._tried:
            self._win(current)
        else:
            self._session.multi((Delete(CONTROLLER),), self._look_after)

    def _win(self, term: Term) -> None:
        self._tried = None
        self._term = term
        LOGGER.info("broker %d is the controller, in epoch %d", self._broker_id, term.epoch)
        self._elected(term)

    def _failed(self, outcome: Outcome) -> bool:
        """Whether a call failed; then it is repeated later, unless the session is over."""
        error = outcome.error
        if error is None:
            return False
        if isinstance(error, SessionExpiredError):  # `BrokerSessions` begins a new session, with another election
            self._closed = True
            return True
        if not isinstance(error, CoordinationError):
            raise error
        self._log(logging.WARNING, "call", "the election of the controller failed, and is repeated: %s", error)
        self._retry()
        return True

    def _retry(self) -> None:
        self._timer = self._clock.call_at(self._clock.monotonic() + RETRY_S, self._look)
