"""Whether the application of a group member polls often enough (`max.poll.interval.ms`). Pure.

A member whose application does not poll within the interval leaves the group and loses its partitions. The next call of
the application fails once; the poll after it joins again.
"""

import logging
from math import inf

from kafkalite.errors import MaxPollIntervalExceededError

LOGGER = logging.getLogger("kafkalite_sdk.membership.poll_interval")


class PollInterval:
    """The time until which the application of one member must poll. All times in s.

    Arguments:
        group_id: of the group, for messages.
        interval_s: the longest time between two polls.

    Attributes:
        deadline: of the next poll, inf = none.
        missed: whether the application did not poll in time, and has not polled since.
        error: what the next call of the application raises, None = nothing.
    """

    __slots__ = ("_group_id", "_interval_s", "deadline", "error", "missed")

    def __init__(self, group_id: str, interval_s: float) -> None:
        self._group_id = group_id
        self._interval_s = interval_s
        self.deadline = inf
        self.missed = False
        self.error: MaxPollIntervalExceededError | None = None

    def begin(self, now: float) -> None:
        """The interval begins again: the application polls or subscribes."""
        self.deadline = now + self._interval_s
        self.missed = False

    def end(self) -> None:
        """The member leaves: no poll is due."""
        self.deadline = inf

    def expire(self, now: float) -> bool:
        """Whether the application has missed the deadline since the last call; this is logged."""
        if now < self.deadline or self.missed:
            return False
        self.missed = True
        self.error = MaxPollIntervalExceededError(
            f"group {self._group_id}: poll was not called for {self._interval_s:g} s, so the consumer has left the "
            "group and lost its partitions; process fewer records per poll or increase max_poll_interval_ms"
        )
        LOGGER.warning("%s", self.error)  # the next poll, which raises it, may be far away
        return True

    def raise_error(self) -> None:
        """Raise the error of a missed deadline, once."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error
