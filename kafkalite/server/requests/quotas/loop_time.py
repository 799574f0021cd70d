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
        now_ms: the time of the quotas.
        cpu_ns: CPU time of the thread of the event loop.

    Attributes:
        hubs: drivers of the listeners whose requests are counted.
        share_ns: the time beside the handler that a request is charged.
    """

    def __init__(self, now_ms: Callable[[], int], cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._now_ms = now_ms
        self._cpu_ns = cpu_ns
        self.hubs: set[Hub] = set()
        self.share_ns = 0
        self._begin_period()

    def _begin_period(self) -> None:
        self._began_ms, self._began = self._now_ms(), self._counts()

    def _counts(self) -> tuple[int, int]:
        """The number of requests, and the time beside their handlers."""
        return sum(hub.requests for hub in self.hubs), self._cpu_ns() - sum(hub.handled_ns for hub in self.hubs)

    def add(self, hub: Hub) -> None:
        """Count the requests of a driver."""
        if hub not in self.hubs:
            self.hubs.add(hub)
            self._begin_period()

    def update(self, now_ms: int) -> None:
        """A request is charged: compute the share once per period."""
        if now_ms - self._began_ms < PERIOD_MS:
            return
        (requests_before, beside_before), (requests, beside_ns) = self._began, self._counts()
        if requests - requests_before >= REQUESTS_MIN:
            self.share_ns = min(max(0, beside_ns - beside_before) // (requests - requests_before), SHARE_NS_MAX)
        self._begin_period()
