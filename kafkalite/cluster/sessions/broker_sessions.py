"""Keeps this broker in its cluster: registered while it has a session, and registered again after a lost one.

1. The order of a session: the tree belongs to this cluster, its counters are raised above what logs and directories of
   this broker have (an older tree may have been restored), this broker is registered, then it serves.
2. A lost session ends everything that was built on it, before a new one is opened: the broker accepts no requests
   until it is registered again, with another broker epoch.
3. While the service is out of reach the broker serves from its image.
4. An empty tree and another cluster's tree stop the broker, another broker with this id prevents its start. Nothing is
   deleted.
5. A service that refuses the first session, by TLS, for its credentials or for lack of permission, prevents the start.
   A broker that was registered repeats the attempt: an operator may correct certificates, credentials and access
   control lists.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from kafkalite.clock import Clock, Outcome, Then, Timer
from kafkalite.cluster.sessions.registration import RETRY_S, Registration
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import (
    AuthenticationError,
    CoordinationError,
    InvalidAclError,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
    TlsError,
)
from kafkalite.coordination.znodes import CLUSTER_ID, ZnodeError, decode_cluster_id
from kafkalite.coordination.znodes.brokers import BrokerRegistration
from kafkalite.rate_limited_log import RateLimitedLog

LOGGER = logging.getLogger("kafkalite.cluster")
Notify = Callable[[], object]
CORRECTABLE = (AuthenticationError, InvalidAclError, NoAuthError, TlsError)
"""Errors of a new session that an operator may correct while the broker runs."""


class Connect(Protocol):
    """Opens a session: calls `then` once with the session when it is established, or with the error that prevents it.
    The other callbacks are those of `coordination.backend`; none is called before `then`.
    """

    def __call__(self, then: Then, on_lost: Notify, on_suspended: Notify, on_resumed: Notify) -> object: ...


class RegisteringBroker(Protocol):
    """The broker, as `BrokerSessions` uses it."""

    broker_id: int
    cluster_id: str

    def registration(self) -> BrokerRegistration:
        """What the node of this broker contains; called for each registration."""

    def raise_counters(self, session: Coordination, then: Then) -> None:
        """Raise the counters of the tree; `then` is called with the outcome."""

    def joined(self, session: Coordination, broker_epoch: int) -> None:
        """The broker is registered: it takes part in elections, watches the tree, and serves."""

    def left(self) -> None:
        """The session is over: nothing of it is used any more, and no request is accepted."""

    def refused(self, reason: str) -> None:
        """The broker cannot join this cluster: it stops."""


class BrokerSessions:
    """The sessions of one broker, from its start to its stop.

    Arguments:
        broker: this broker.
        connect: opens a session.
        clock: for waits.
        wait_ms: how long the registration of another session is waited for; above the session timeout.

    Attributes:
        broker_epoch: of the current registration; None = not registered.
    """

    def __init__(self, broker: RegisteringBroker, connect: Connect, clock: Clock, wait_ms: int) -> None:
        self.broker_epoch: int | None = None
        self._broker = broker
        self._connect = connect
        self._clock = clock
        self._log = RateLimitedLog(LOGGER, clock)
        self._wait_ms = wait_ms
        self._session: Coordination | None = None
        self._registration: Registration | None = None
        self._retry: Timer | None = None
        self._suspended_at: float | None = None
        self._started = self._joined = self._closed = False

    @property
    def suspended_ms(self) -> int:
        """How long the service has been out of reach, in ms; -1 = it is connected."""
        return -1 if self._suspended_at is None else int((self._clock.monotonic() - self._suspended_at) * 1000)

    @property
    def session(self) -> Coordination | None:
        """The current session; None while there is none."""
        return self._session

    def open(self, then: Then) -> None:
        """Open the first session, for the start of the broker; `then` is called with it, or with an error."""

        def opened(outcome: Outcome) -> None:
            self._session = outcome.value
            then(outcome)

        self._connect(opened, self._lost, self._suspended, self._resumed)

    def start(self) -> None:
        """Register, and serve; in another session if the first one was lost meanwhile."""
        self._started = True
        if self._session is None:
            self._reconnect()
        else:
            self._check_tree()

    def close(self) -> None:
        """Register no more. The owner closes the session; a session that is being opened is not used."""
        self._closed = True
        self._end()

    def _reconnect(self) -> None:
        LOGGER.info("a new session is opened")
        self._connect(self._reconnected, self._lost, self._suspended, self._resumed)

    def _reconnected(self, outcome: Outcome) -> None:
        if self._closed:
            return
        error = outcome.error
        if self._joined and isinstance(error, CORRECTABLE):
            self._repeat(self._reconnect, "no session can be opened", error)
            return
        if isinstance(error, CoordinationError):
            self._refuse(f"the coordination service refuses this broker: {error}")
            return
        self._session, self._suspended_at = outcome.result(), None
        self._check_tree()

    def _lost(self) -> None:
        if self._closed:
            return
        LOGGER.warning("the session with the coordination service is lost")
        self._end()
        self._session = None
        if self._started:
            self._broker.left()
            self._reconnect()

    def _end(self) -> None:
        self.broker_epoch = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._registration is not None:
            self._registration.close()
            self._registration = None

    def _suspended(self) -> None:
        self._suspended_at = self._clock.monotonic()
        LOGGER.warning("the coordination service is out of reach: changes of topics and configs wait or fail")

    def _resumed(self) -> None:
        self._suspended_at = None
        LOGGER.info("the coordination service is reached")

    # One session.

    def _check_tree(self) -> None:
        """Register if the tree is that of this cluster."""
        session = self._session
        assert session is not None
        session.get(CLUSTER_ID, lambda outcome: self._tree_read(session, outcome))

    def _tree_read(self, session: Coordination, outcome: Outcome) -> None:
        if session is not self._session or self._closed:
            return
        error = outcome.error
        if isinstance(error, NoNodeError):
            self._refuse(f"the tree of the coordination service has no {CLUSTER_ID}, so it is empty or another one")
        elif isinstance(error, CoordinationError):
            if not isinstance(error, SessionExpiredError):
                self._repeat(self._check_tree, "the tree cannot be read", error)
        elif error is not None:
            raise error
        else:
            self._compare(session, outcome.value[0])

    def _compare(self, session: Coordination, data: bytes) -> None:
        try:
            found = decode_cluster_id(data)
        except ZnodeError as error:
            self._refuse(str(error))
            return
        if found != self._broker.cluster_id:
            self._refuse(f"the tree belongs to cluster {found}, this broker to {self._broker.cluster_id}")
            return
        self._broker.raise_counters(session, lambda outcome: self._counted(session, outcome))

    def _counted(self, session: Coordination, outcome: Outcome) -> None:
        if session is not self._session or self._closed or isinstance(outcome.error, SessionExpiredError):
            return
        if isinstance(outcome.error, CoordinationError):
            self._repeat(self._check_tree, "the counters of the tree cannot be raised", outcome.error)
            return
        outcome.result()
        self._registration = Registration(
            session, self._clock, self._broker.broker_id, self._broker.registration(), self._wait_ms,
            lambda epoch: self._registered(session, epoch), self._refuse, was_registered=self._joined,
        )  # fmt: skip
        self._registration.begin()

    def _repeat(self, attempt: Notify, failure: str, error: CoordinationError) -> None:
        self._log(logging.WARNING, failure, "%s, next attempt in %.0f s: %s", failure, RETRY_S, error)
        self._retry = self._clock.call_at(self._clock.monotonic() + RETRY_S, attempt)

    def _registered(self, session: Coordination, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self._joined = True
        self._broker.joined(session, broker_epoch)

    def _refuse(self, reason: str) -> None:
        self.close()
        self._broker.refused(f"{reason}. Nothing was changed: restore the tree, or correct the configuration")
