"""Requests that wait for a partition: parked until exactly what they wait for has happened.

A `FetchWaiter` hangs on each partition it reads and is woken by the append that brings the missing bytes, by an event
that changes the answer (deletion, a new leader epoch, a moved log start), or by its deadline. One that reads committed
records only waits for the last stable offset: while a transaction is open, new bytes are none for it. Nothing polls
(law 4 of the design).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.clock import Clock, Timer

if TYPE_CHECKING:
    from kafkalite.cluster.partition import Partition


class DelayedFetch:
    """A parked fetch.

    Arguments:
        partitions: the partitions it hangs on.
        bytes_missing: how many more bytes below the high watermark complete it (`min_bytes` less what is there).
        wake: called once, with no arguments, when the fetch should be read and answered.
        missing: given by one that reads up to the last stable offset: tells how many bytes are missing now.
    """

    __slots__ = ("_bytes_missing", "_missing", "_partitions", "_timer", "_wake")

    def __init__(
        self,
        partitions: list["Partition"],
        bytes_missing: int,
        wake: Callable[[], None],
        missing: Callable[[], int] | None = None,
    ) -> None:
        self._partitions = partitions
        self._bytes_missing = bytes_missing
        self._missing = missing
        self._wake: Callable[[], None] | None = wake
        self._timer: Timer | None = None

    def watch(self, clock: Clock, wait_s: float) -> None:
        """Hang on every partition, for at most `wait_s` seconds."""
        for partition in self._partitions:
            partition.delayed_fetches[self] = None
        self._timer = clock.call_at(clock.monotonic() + wait_s, self.force_complete)

    def bytes_appended(self, size: int) -> None:
        """`size` more bytes became readable on one of the partitions."""
        self._bytes_missing -= size
        if self._bytes_missing <= 0:
            self.force_complete()

    def unstable_bytes_appended(self, size: int, *, stable_moved: bool) -> None:
        """As `grown`, on a partition where not all that is readable is of transactions that have ended."""
        if self._missing is None:
            self.bytes_appended(size)
        elif stable_moved and self._wake is not None:
            self._bytes_missing = self._missing()
            self.bytes_appended(0)

    def force_complete(self) -> None:
        """Let the fetch be answered now; later calls do nothing."""
        wake = self._wake
        self.cancel()
        if wake is not None:
            wake()

    def cancel(self) -> None:
        """Leave every partition without an answer (the client is gone)."""
        self._wake = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._partitions:
            partition.delayed_fetches.pop(self, None)
        self._partitions = []
