"""Lets requests wait until a broker that has just joined its cluster knows the cluster.

Until the controller has sent the first UpdateMetadata, the broker knows no broker, no topic and no controller. A client
would take that for an answer: librdkafka asks again after `topic.metadata.refresh.interval.ms` (5 minutes), and fails
administrative requests until then.
"""

from collections.abc import Callable

from kafkalite.callbacks import call_each
from kafkalite.clock import Clock


class FirstImage:
    """The first image of a broker, which may never come: while no broker can be elected, for example.

    Arguments:
        clock: for the deadline.
        wait_s: the wait ends after this time without an image.

    Attributes:
        ended: the image has arrived, or the wait for it was given up.
    """

    def __init__(self, clock: Clock, wait_s: float) -> None:
        self.ended = False
        self._waiting: list[Callable[[], object]] = []
        self._timer = clock.call_at(clock.monotonic() + wait_s, self.end)

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
        self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        call_each(lambda then: then(), waiting)
