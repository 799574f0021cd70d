"""Reports what a leader has sent wrongly, once a minute for each partition.

An election moves thousands of partitions at once: its errors are reported once a minute for each leader.
"""

import logging

from kafkalite.clock import Clock
from kafkalite.errors import KafkaErrorCode

LOGGER = logging.getLogger("kafkalite.cluster.fetchers")
INTERVAL_S = 60.0
KEYS_MAX = 10_000
CODES = frozenset(KafkaErrorCode)
OF_ELECTIONS = frozenset(
    {
        KafkaErrorCode.FENCED_LEADER_EPOCH,
        KafkaErrorCode.UNKNOWN_LEADER_EPOCH,
        KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


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
        self._log(subject, level, f"{subject}: {text}")

    def report_error(self, partition: str, leader: int, error: int, text: str, level: int = logging.WARNING) -> None:
        """Log the error of a partition, as `report`; errors of elections once for all partitions of the leader.

        Arguments:
            partition: its name.
            leader: broker id.
            error: the Kafka error code of the leader.
            text: what happened, and what follows.
            level: of the `logging` module.
        """
        if error in OF_ELECTIONS:
            site = f"leader {leader}, error {error}"
            self._log(
                site, level, f"{partition}: {text}; the next minute, other partitions with this error are not logged"
            )
        else:
            self.report(partition, text, level)

    def _log(self, site: str, level: int, line: str) -> None:
        now = self._clock.monotonic()
        if now - self._last.get(site, -INTERVAL_S) < INTERVAL_S:
            return
        if len(self._last) >= KEYS_MAX:
            self._last.clear()
        self._last[site] = now
        LOGGER.log(level, "%s", line)


def error_text(error: int) -> str:
    """The name of an error code; a leader of a newer version may have others."""
    return KafkaErrorCode(error).name if error in CODES else f"error {error}"
