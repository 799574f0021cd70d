"""Reads `/controller_epoch`, the epoch of the latest election of a controller, within a time limit."""

import logging
from collections.abc import Callable

from kafkalite.callbacks import once
from kafkalite.clock import Clock, Outcome
from kafkalite.cluster.controller.fence import NO_EPOCH
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.znodes.controller import CONTROLLER_EPOCH, decode_controller_epoch
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.rate_limited_log import RateLimitedLog

LOGGER = logging.getLogger("kafkalite.cluster")
LIMIT_S = 1.0  # a read waits while the service is out of reach; the controller repeats its request


class ControllerEpochReader:
    """Reads the controller epoch.

    Arguments:
        session: with the coordination service.
        clock: for the limit.
    """

    def __init__(self, session: Coordination, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._log = RateLimitedLog(LOGGER, clock)

    def read_epoch(self, then: Callable[[int], object]) -> None:
        """Call `then` once with the epoch; with -1 if it cannot be read within the limit."""
        end = once(then)

        def read(outcome: Outcome) -> None:
            timer.cancel()
            end(self._epoch_of(outcome))

        timer = self._clock.call_at(self._clock.monotonic() + LIMIT_S, end, NO_EPOCH)
        self._session.get(CONTROLLER_EPOCH, read)

    def _epoch_of(self, outcome: Outcome) -> int:
        """The epoch that was read, -1 without one; logged once a minute, as controllers repeat their requests."""
        try:
            return decode_controller_epoch(outcome.result()[0])
        except (CoordinationError, ZnodeError) as error:
            self._log(logging.WARNING, "read", "the controller epoch cannot be read: %s", error)
            return NO_EPOCH
