"""Reports to the controller, by a node in the tree, that a log directory of this broker has failed, or that the log of
a replica could be created after a failure.

The controller sends the broker all its partitions then, and learns which are offline. Without a session nothing has to
be reported: the controller sends all partitions after the next registration, too.

Source: ReplicaManager.handleLogDirFailure, KafkaZkClient.propagateLogDirEvent of Apache Kafka 3.9.
"""

import logging

from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, SessionExpiredError
from kafkalite.coordination.znodes.controller import LOG_DIR_EVENT_PREFIX, encode_log_dir_failure

LOGGER = logging.getLogger("kafkalite.server")
RETRY_S = 1.0


class LogDirectoryReports:
    """The reports of one broker.

    Arguments:
        session: with the coordination service.
        clock: for repetitions.
        broker_id: of this broker.
    """

    def __init__(self, session: Coordination, clock: Clock, broker_id: int) -> None:
        self._session = session
        self._clock = clock
        self._data = encode_log_dir_failure(broker_id)
        self._retry: Timer | None = None
        self._closed = False

    def report(self) -> None:
        """Let the controller ask which replicas are offline. The creation of the node is repeated until it succeeds; a
        second one changes nothing.
        """
        self._cancel()
        if not self._closed:
            self._session.create(LOG_DIR_EVENT_PREFIX, self._data, self._created, sequence=True)

    def close(self) -> None:
        """Report nothing more."""
        self._closed = True
        self._cancel()

    def _created(self, outcome: Outcome) -> None:
        error = outcome.error
        if error is None or self._closed or isinstance(error, SessionExpiredError):
            return
        if not isinstance(error, CoordinationError):
            raise error
        LOGGER.warning("the failure of a log directory cannot be reported, next attempt in %.0f s: %s", RETRY_S, error)
        self._cancel()
        self._retry = self._clock.call_at(self._clock.monotonic() + RETRY_S, self.report)

    def _cancel(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
