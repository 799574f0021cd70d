"""The time of the event loop beside the handlers of requests: receiving, parsing, sending, timers, and the loop itself.

A cheap request costs more of it than its handler takes, so each charged request has its share. The shares are equal:
what the thread used in the last period beside the handlers, divided by the number of requests. Background work is
part of that, so a share is bounded.
"""

import time
from collections.abc import Callable

from kafkalite._speedups.net.framing import Hub

PERIOD_MS = 1000
REQUESTS_MIN = 50  # of a period; among fewer ones the background work is too large a part
SHARE_NS_MAX = 500_000


class LoopTime:
    """The share of one request.

    Arguments:
        cpu_ns: CPU time of the thread of the event loop.

    Attributes:
        hubs: drivers of the listeners whose requests are counted.
        continued_ns: time of the callbacks that continue charged requests; it is charged to them.
        share_ns: the time beside the handler that a request is charged.
    """

    def __init__(self, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._cpu_ns = cpu_ns
        self.hubs: set[Hub] = set()
        self.continued_ns = 0
        self.share_ns = 0
        self._begin_period(0)

    def _begin_period(self, now_ms: int) -> None:
        self._began_ms, self._began = now_ms, self._counts()

    def _counts(self) -> tuple[int, int]:
        """The number of requests, and the time that is charged to none of them."""
        charged_ns = self.continued_ns + sum(hub.handled_ns for hub in self.hubs)
        return sum(hub.requests for hub in self.hubs), self._cpu_ns() - charged_ns

    def add(self, hub: Hub, now_ms: int) -> None:
        """Count the requests of a driver.

        Arguments:
            hub: the driver.
            now_ms: the time of the quotas.
        """
        if hub not in self.hubs:
            self.hubs.add(hub)
            self._begin_period(now_ms)

    def update(self, now_ms: int) -> None:
        """Compute the share once per period; called at each charge. `now_ms`: the time of the quotas."""
        if now_ms - self._began_ms < PERIOD_MS:
            return
        (requests_before, beside_before), (requests, beside_ns) = self._began, self._counts()
        if requests - requests_before >= REQUESTS_MIN:
            self.share_ns = min(max(0, beside_ns - beside_before) // (requests - requests_before), SHARE_NS_MAX)
        self._begin_period(now_ms)
