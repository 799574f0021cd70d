"""Limits the rate at which all cleaner threads read and write (`log.cleaner.io.max.bytes.per.second`)."""

import threading
from collections.abc import Callable


class Throttle:
    """A rate shared by threads.

    Arguments:
        bytes_per_second: together; more than the largest number of bytes means no limit.
        monotonic: seconds of a clock that may be read from any thread.
    """

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float]) -> None:
        self._rate = bytes_per_second
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._paid_until = monotonic()

    def delay(self, size: int) -> float:
        """Seconds to wait after `size` bytes were read or written."""
        with self._lock:
            now = self._monotonic()
            self._paid_until = max(self._paid_until, now) + size / self._rate
            return self._paid_until - now

    def waiter(self, ended: threading.Event) -> Callable[[int], None]:
        """Return the function that a thread calls with the bytes it moved; its wait ends once `ended` is set."""

        def wait(size: int) -> None:
            ended.wait(min(self.delay(size), threading.TIMEOUT_MAX))

        return wait
