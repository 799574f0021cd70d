"""Counts the failures of a request in a row, and calculates when it may be repeated.

Pure; randomness is a parameter.
"""

from math import inf
from typing import Protocol

from kafkalite.backoff import Backoff


class RandomNumbers(Protocol):
    """The part of `random.Random` that is used."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


class Retries:
    """The retries of one request.

    Arguments:
        backoff: pause before the request is repeated.

    Attributes:
        at: when the request may be sent again, -inf = at once.
        since: of the first of the failures without a success in between, None = none.
    """

    __slots__ = ("_backoff", "_failures", "at", "since")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures = 0
        self.at = -inf
        self.since: float | None = None

    def failed(self, now: float) -> None:
        """The request has failed."""
        self._failures += 1
        self.at = now + self._backoff.delay_s(self._failures)
        if self.since is None:
            self.since = now

    def succeeded(self) -> None:
        """The request has succeeded."""
        self._failures, self.at, self.since = 0, -inf, None

    def failing_s(self, now: float) -> float:
        """Time since the first failure in a row, 0 = the last request has succeeded."""
        return 0.0 if self.since is None else now - self.since
