"""A deletion of records that waits until every live replica has moved its log start (DeleteRecords).

It is checked after each fetch of a follower and with each state of the controller, which sends one when a replica has
died. At its deadline it is checked once more. Source: DelayedDeleteRecords.scala of Apache Kafka 3.9.
"""

from collections.abc import Callable

from kafkalite.clock import Clock, Timer
from kafkalite.cluster.partition.leader import Leader
from kafkalite.errors import KafkaErrorCode

UNKNOWN_LOW_WATERMARK = -1


class LogStartWait:
    """One wait; `done` is called once, inside `start` or later.

    Arguments:
        leader: of the partition, whose own log start was moved.
        offset: from which on records are kept.
        done: called with a Kafka error code (REQUEST_TIMED_OUT, or that of the end of the leadership; 0 = none) and the
            lowest log start of the live replicas, -1 with an error.
    """

    __slots__ = ("_done", "_leader", "_offset", "_timer")

    def __init__(self, leader: Leader, offset: int, done: Callable[[int, int], object]) -> None:
        self._leader = leader
        self._offset = offset
        self._done = done
        self._timer: Timer | None = None

    def start(self, clock: Clock, timeout_ms: int) -> None:
        """Wait at most `timeout_ms`."""
        self._timer = clock.call_at(clock.monotonic() + timeout_ms / 1000, self._expire)
        self._leader.progress_waits[self] = None
        self.check()

    def check(self) -> None:
        """End the wait if every live replica has moved its log start."""
        low_watermark = self._leader.low_watermark()
        if low_watermark >= self._offset:
            self._end(0, low_watermark)

    def fail(self, error: int) -> None:
        """End the wait: the leadership has ended."""
        self._end(error, UNKNOWN_LOW_WATERMARK)

    def _expire(self) -> None:
        low_watermark = self._leader.low_watermark()
        if low_watermark >= self._offset:
            self._end(0, low_watermark)
        else:
            self._end(KafkaErrorCode.REQUEST_TIMED_OUT, UNKNOWN_LOW_WATERMARK)

    def _end(self, error: int, low_watermark: int) -> None:
        timer, self._timer = self._timer, None
        if timer is None:  # ended by a callback of another one
            return
        timer.cancel()
        self._leader.progress_waits.pop(self, None)
        self._done(error, low_watermark)
