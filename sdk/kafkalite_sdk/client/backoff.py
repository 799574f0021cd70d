"""The pause before a retry: it doubles with each failure, with jitter, so that clients do not return together.

Pure. Source: ExponentialBackoff.java of Apache Kafka 4.3.
"""

from collections.abc import Callable

JITTER = 0.2
EXPONENT_MAX = 30


class Backoff:
    """An exponential back-off.

    Arguments:
        first_s: pause after the first failure, in seconds.
        max_s: longest pause, in seconds, before the jitter of 20 %.
        random: returns a number from 0 to below 1.
    """

    __slots__ = ("_first_s", "_max_s", "_random")

    def __init__(self, first_s: float, max_s: float, random: Callable[[], float]) -> None:
        self._first_s = first_s
        self._max_s = max(first_s, max_s)
        self._random = random

    def delay_s(self, failures: int) -> float:
        """Return the pause in seconds after this number of failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        pause = min(self._first_s * (1 << min(failures - 1, EXPONENT_MAX)), self._max_s)
        return pause * (1 - JITTER + 2 * JITTER * self._random())
