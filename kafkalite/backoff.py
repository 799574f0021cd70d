"""Calculates the pause before a retry: it doubles with each failure in a row, up to a maximum.

Clients add jitter, so that they do not return together. Pure: random numbers are an argument. Source:
ExponentialBackoff.java of Apache Kafka 4.3.
"""

from collections.abc import Callable
from typing import TypeVar

JITTER = 0.2
EXPONENT_MAX = 30

Pause = TypeVar("Pause", int, float)


def exponential_pause(first: Pause, failures: int, maximum: Pause) -> Pause:
    """Return the pause after failures in a row, without jitter.

    Arguments:
        first: pause after the first failure, in any unit of time.
        failures: their number, from 1 on.
        maximum: longest pause, in the same unit.
    """
    return min(first * (1 << min(max(failures - 1, 0), EXPONENT_MAX)), maximum)


class Backoff:
    """An exponential back-off with jitter.

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
        return exponential_pause(self._first_s, failures, self._max_s) * (1 - JITTER + 2 * JITTER * self._random())
