"""Lets requests wait until a broker that has just joined its cluster knows the cluster.

Until the controller has sent the first UpdateMetadata, the broker knows no broker, no topic and no controller. A client
would believe that: librdkafka asks again after `topic.metadata.refresh.interval.ms` (5 minutes), and its administrative
requests fail until then.
"""

from collections.abc import Callable

from kafkalite.callbacks import call_each
from kafkalite.clock import Clock, Timer


class FirstImage:
    """The first image of a broker, which may never come: while no broker can be elected, for example.

    Arguments:
        clock: for the deadline.

    Attributes:
        ended: the image has arrived, or the wait for it was given up.
    """

    def __init__(self, clock: Clock) -> None:
        self.ended = False
        self._clock = clock
        self._waiting: list[Callable[[], object]] = []
        self._timer: Timer | None = None

    def expect(self, within_s: float) -> None:
        """The broker has joined: the wait ends after this time without an image."""
        if not self.ended:
            self._timer = self._clock.call_at(self._clock.monotonic() + within_s, self.end)

    def wait(self, then: Callable[[], object]) -> None:
        """Call `then` at the end of the wait; at once if it has ended."""
        if self.ended:
            then()
        else:
            self._waiting.append(then)

    def end(self) -> None:
        """Call all that wait. A second call does nothing."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        call_each(lambda then: then(), waiting)
