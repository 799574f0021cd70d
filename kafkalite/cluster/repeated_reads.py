"""Repeats reads of the tree until one succeeds, the session ends, or the reader is closed."""

import logging
from collections.abc import Callable

from kafkalite.clock import Clock, Outcome, Then
from kafkalite.coordination.errors import CoordinationError, SessionExpiredError

LOGGER = logging.getLogger("kafkalite.cluster")
RETRY_S = 0.5


class RepeatedReads:
    """The reads of one subject.

    Arguments:
        what: the subject in the plural, for the log: "ACLs".
        clock: for pauses.
    """

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._closed = False

    def run(self, read: Callable[[Then], object], then: Callable[[], object] = lambda: None) -> None:
        """Read until it succeeds; after an expired session no more, as the next one reads everything.

        Arguments:
            read: calls its argument with the outcome. Exceptions that are no CoordinationError are raised.
            then: called after the success.
        """

        def ended(outcome: Outcome) -> None:
            if outcome.error is None:
                then()
                return
            if isinstance(outcome.error, SessionExpiredError) or self._closed:
                return
            if not isinstance(outcome.error, CoordinationError):
                raise outcome.error
            text = "the %s cannot be read, next attempt in %.1f s: %s"
            LOGGER.warning(text, self._what, RETRY_S, outcome.error)
            self._clock.call_at(self._clock.monotonic() + RETRY_S, self.run, read, then)

        if not self._closed:
            read(ended)

    def close(self) -> None:
        """Repeat no read any more."""
        self._closed = True
