"""Reports what a leader has sent wrongly, once a minute for each partition."""

import logging

from kafkalite.clock import Clock
from kafkalite.errors import KafkaErrorCode

LOGGER = logging.getLogger("kafkalite.cluster.fetchers")
INTERVAL_S = 60.0
KEYS_MAX = 10_000
CODES = frozenset(KafkaErrorCode)


class FetchReports:
    """The log lines of the fetchers about responses.

    Arguments:
        clock: for the interval.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}

    def report(self, subject: str, text: str, level: int = logging.WARNING) -> None:
        """Log a line, unless there was one about this subject in the last minute.

        Arguments:
            subject: a partition or a leader.
            text: what happened, and what follows.
            level: of the `logging` module.
        """
        now = self._clock.monotonic()
        if now - self._last.get(subject, -INTERVAL_S) < INTERVAL_S:
            return
        if len(self._last) >= KEYS_MAX:
            self._last.clear()
        self._last[subject] = now
        LOGGER.log(level, "%s: %s", subject, text)


def error_text(error: int) -> str:
    """The name of an error code; a leader of a newer version may have others."""
    return KafkaErrorCode(error).name if error in CODES else f"error {error}"
