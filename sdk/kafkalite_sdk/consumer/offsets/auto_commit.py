"""Commits what the application has received: periodically, when partitions are revoked, and at close.

What the last poll has returned is committed by the next one: until then the application may still process it.
"""

import logging
from collections.abc import Container

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk.consumer.driver import AnyDriver
from kafkalite_sdk.consumer.group_requests import GroupRequests
from kafkalite_sdk.values import OffsetAndMetadata

LOGGER = logging.getLogger("kafkalite_sdk.consumer.auto_commit")


class AutoCommit:
    """The automatic commits of one consumer.

    Arguments:
        driver: of the consumer.
        group: the requests to the coordinator.
        interval_s: between two commits.

    Attributes:
        next_at: time of the next commit on the loop's clock.
    """

    def __init__(self, driver: AnyDriver, group: GroupRequests, interval_s: float) -> None:
        self._driver = driver
        self._group = group
        self._interval_s = interval_s
        self.next_at = 0.0
        self._warned, self._warn_at = "", 0.0

    def polled(self, now: float) -> None:
        """The application polls: commit if the interval has passed. `now` in seconds of the loop's clock."""
        if now >= self.next_at:
            self.next_at = self._driver.attention_at = now + self._interval_s
            self._commit(self._changed(None), now)

    def _changed(self, partitions: Container[TopicPartition] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The consumed offsets of partitions (None = all) that are not committed."""
        states = self._driver.positions.states
        return {
            each: offset
            for each, offset in self._driver.consumed_offsets().items()
            if (partitions is None or each in partitions) and states[each].committed != offset.offset
        }

    def _commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], now: float) -> list[KafkaError | None]:
        """Commit offsets; the list gets the outcome."""
        outcome: list[KafkaError | None] = []

        def done(error: KafkaError | None) -> None:
            outcome.append(error)
            if error is None:
                self._driver.positions.committed(offsets)
            else:
                self._warn(str(error))
            self._driver.changed()

        if not offsets or self._group.identity() is None:
            return [None]
        self._group.commits.commit(offsets, now + self._driver.settings.client.default_api_timeout_s, done)
        return outcome

    def _warn(self, text: str) -> None:
        """Log why a commit has failed; once for those that end together, as at the close without a connection."""
        now = self._driver.now()
        if text != self._warned or now >= self._warn_at:
            LOGGER.warning("automatic commit: %s", text)
        self._warned, self._warn_at = text, now + self._interval_s

    async def commit(self, partitions: Container[TopicPartition] | None, deadline: float) -> None:
        """Commit what the application has received, and wait for the outcome.

        Arguments:
            partitions: those to commit, None = all.
            deadline: of the wait, in seconds of the loop's clock.
        """
        driver = self._driver
        outcome = self._commit(self._changed(partitions), driver.now())
        while not outcome and driver.now() < deadline:
            driver.work()
            await driver.wait(deadline)

    def commit_nowait(self, partitions: Container[TopicPartition]) -> None:
        """Commit what the application has received of partitions, without a wait."""
        self._commit(self._changed(partitions), self._driver.now())
