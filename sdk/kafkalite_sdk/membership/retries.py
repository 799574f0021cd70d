"""The pause before a failed request is repeated: it doubles with each failure, with jitter.

Pure; randomness is a parameter.
"""

from math import inf
from typing import Protocol

JITTER = 0.2


class RandomNumbers(Protocol):
    """The part of `random.Random` that is used."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


class Retries:
    """The retries of one request.

    Arguments:
        backoff_s, backoff_max_s: the first and the longest pause.
        random: for the jitter.

    Attributes:
        at: when the request may be sent again, -inf = at once.
        since: of the first of the failures without a success in between, None = none.
    """

    __slots__ = ("_backoff_max_s", "_backoff_s", "_failures", "_random", "at", "since")

    def __init__(self, backoff_s: float, backoff_max_s: float, random: RandomNumbers) -> None:
        self._backoff_s, self._backoff_max_s = backoff_s, backoff_max_s
        self._random = random
        self._failures = 0
        self.at = -inf
        self.since: float | None = None

    def failed(self, now: float) -> None:
        """The request has failed."""
        pause_s = min(self._backoff_s * 2**self._failures, self._backoff_max_s)
        self._failures = min(self._failures + 1, 32)
        self.at = now + pause_s * (1 - JITTER + 2 * JITTER * self._random.random())
        if self.since is None:
            self.since = now

    def succeeded(self) -> None:
        """The request has succeeded."""
        self._failures, self.at, self.since = 0, -inf, None

    def failing_s(self, now: float) -> float:
        """Time since the first failure in a row, 0 = the last request has succeeded."""
        return 0.0 if self.since is None else now - self.since
