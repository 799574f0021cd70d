"""Registers a broker: an ephemeral node whose creation id (czxid) is the broker epoch.

1. Creation and a first write are one transaction, because only the response to a write has the creation id.
2. A transaction without a response is read back: a node of this session is this registration.
3. A node of another session may be left of an earlier process of this broker. It is waited for: it goes with its
   session. If it is still there after `wait_ms`, another broker with this id is alive, and this one is refused.
4. A broker that was registered before is never refused: its logs have what was acknowledged since the other one's
   directory was copied. It waits without connections until the other one has stopped.

Source: KafkaZkClient.CheckedEphemeral of Apache Kafka 3.9 (KAFKA-7165), which never waits.
"""

import logging
from collections.abc import Callable

from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import (
    ConnectionLossError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kafkalite.coordination.tree import Create, Set, Stat, WatchEvent
from kafkalite.coordination.znodes.brokers import (
    BrokerRegistration,
    decode_registration,
    encode_registration,
    registration_path,
)
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.rate_limited_log import RateLimitedLog

LOGGER = logging.getLogger("kafkalite.cluster")
RETRY_S = 1.0  # after an error that no other broker causes, such as a lack of permission
WAITING = (
    "it has registered while this broker had no session, perhaps with a copy of its log directory. This broker serves "
    "nothing and waits, as its logs are newer: stop the other one"
)
READ_BACK = (NodeExistsError, ConnectionLossError)


class Registration:
    """One registration, with one session.

    Arguments:
        session: the owner of the node.
        clock: for the wait.
        broker_id: of this broker.
        registration: what the node contains.
        wait_ms: how long the node of another session is waited for.
        registered: called with the broker epoch.
        refused: called with the reason; nothing was registered, and nothing will be.
        was_registered: whether this process was registered before.
    """

    def __init__(
        self,
        session: Coordination,
        clock: Clock,
        broker_id: int,
        registration: BrokerRegistration,
        wait_ms: int,
        registered: Callable[[int], object],
        refused: Callable[[str], object],
        *,
        was_registered: bool = False,
    ) -> None:
        self._was_registered = was_registered
        self._session = session
        self._clock = clock
        self._log = RateLimitedLog(LOGGER, clock)
        self._broker_id = broker_id
        self._path = registration_path(broker_id)
        self._data = encode_registration(registration)
        self._wait_ms = wait_ms
        self._registered = registered
        self._refused = refused
        self._deadline: Timer | None = None
        self._retry: Timer | None = None
        self._ended = self._late = self._busy = False

    def begin(self) -> None:
        """Register."""
        if not self._ended and not self._busy:
            self._busy = True
            self._session.multi((Create(self._path, ephemeral=True), Set(self._path, self._data, 0)), self._made)

    def close(self) -> None:
        """Stop waiting; the node, if there is one, goes with the session."""
        self._ended = True
        for timer in (self._deadline, self._retry):
            if timer is not None:
                timer.cancel()

    def _made(self, outcome: Outcome) -> None:
        if self._ended:
            return
        if outcome.error is None:
            stat: Stat = outcome.value[1]
            self._end(stat)
        elif isinstance(outcome.error, READ_BACK):
            self._session.exists(self._path, self._found, self._changed)
        else:
            self._failed(outcome.error)

    def _found(self, outcome: Outcome) -> None:
        if self._ended:
            return
        self._busy = False
        stat: Stat | None = outcome.value
        if outcome.error is not None:
            self._failed(outcome.error)
        elif stat is None:
            self.begin()
        elif stat.ephemeral_owner == self._session.session_id:
            self._end(stat)
        elif self._late:
            self._session.get(self._path, self._refuse)
        elif self._deadline is None:
            LOGGER.warning(
                "broker %d is registered by session 0x%x: waiting up to %d ms for its end; an earlier process of this "
                "broker may have left it", self._broker_id, stat.ephemeral_owner, self._wait_ms,
            )  # fmt: skip
            self._set_deadline()

    def _set_deadline(self) -> None:
        self._deadline = self._clock.call_at(self._clock.monotonic() + self._wait_ms / 1000, self._waited)

    def _changed(self, _event: WatchEvent) -> None:
        self.begin()

    def _waited(self) -> None:
        self._late = True
        self.begin()

    def _refuse(self, outcome: Outcome) -> None:
        if self._ended:
            return
        if isinstance(outcome.error, NoNodeError):
            self.begin()
            return
        where = address_in(self._broker_id, b"" if outcome.error is not None else outcome.value[0])
        text = f"another broker with id {self._broker_id} is alive, {where}"
        if self._was_registered:
            LOGGER.critical("%s: %s", text, WAITING)
            self._late = False
            self._set_deadline()
            return
        self.close()
        self._refused(f"{text}: give each broker an id of its own (broker.id)")

    def _end(self, stat: Stat) -> None:
        self.close()
        LOGGER.info("broker %d is registered, with broker epoch %d", self._broker_id, stat.czxid)
        self._registered(stat.czxid)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, SessionExpiredError):  # the next session registers again
            self.close()
            return
        if not isinstance(error, CoordinationError):
            raise error
        self._busy = False
        self._log(logging.WARNING, "failed", "the registration failed, and is repeated: %s", error)
        self._retry = self._clock.call_at(self._clock.monotonic() + RETRY_S, self.begin)


def address_in(broker_id: int, data: bytes) -> str:
    """The address in the node of a broker, for a text; the data may be anything."""
    try:
        return f"at {', '.join(map(str, decode_registration(broker_id, data).endpoints))}"
    except ZnodeError as error:
        LOGGER.warning("%s", error)
        return "at an unknown address"
