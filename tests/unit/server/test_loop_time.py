"""The time of the event loop beside the handlers is divided equally among the requests of all listeners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.server.requests.quotas.loop_time import PERIOD_MS, REQUESTS_MIN, SHARE_NS_MAX, LoopTime

US = 1000


class Thread:
    """The thread of an event loop with one or several drivers."""

    def __init__(self, drivers: int = 1) -> None:
        self.now_ms = self.cpu_ns = 0
        self.hubs: list[Any] = [Driver() for _ in range(drivers)]
        self.time = LoopTime(lambda: self.cpu_ns)
        for hub in self.hubs:
            self.time.add(hub, 0)

    def serve(self, requests: int, handler_ns: int, beside_ns: int, hub: int = 0) -> None:
        self.hubs[hub].requests += requests
        self.hubs[hub].handled_ns += requests * handler_ns
        self.cpu_ns += requests * (handler_ns + beside_ns)

    def pass_period(self) -> int:
        self.now_ms += PERIOD_MS
        self.time.update(self.now_ms)
        return self.time.share_ns


class Driver(SimpleNamespace):
    """What `LoopTime` reads of a hub."""

    __hash__ = object.__hash__

    def __init__(self) -> None:
        super().__init__(requests=0, handled_ns=0)


def test_share_is_the_time_beside_the_handlers_by_requests() -> None:
    thread = Thread()
    thread.serve(100, 30 * US, 50 * US)
    thread.time.update(PERIOD_MS - 1)
    assert thread.time.share_ns == 0, "the first period has not ended"
    assert thread.pass_period() == 50 * US
    thread.serve(1000, 30 * US, 5 * US)
    assert thread.pass_period() == 5 * US, "each period counts its own requests"


def test_requests_of_all_drivers_share_the_time_of_the_thread() -> None:
    thread = Thread(drivers=2)
    thread.serve(100, 10 * US, 20 * US, hub=0)
    thread.serve(300, 10 * US, 40 * US, hub=1)
    assert thread.pass_period() == 35 * US


def test_driver_of_a_first_client_begins_a_period() -> None:
    """What a driver has served before counts neither as requests nor as time."""
    thread = Thread()
    late = Driver()
    late.requests, late.handled_ns, thread.cpu_ns = 10_000, 10_000 * US, 20_000 * US
    thread.time.add(late, 0)
    thread.serve(100, 30 * US, 50 * US)
    thread.time.add(late, 500)
    assert thread.pass_period() == 50 * US


@pytest.mark.parametrize(
    ("requests", "beside_ns", "share_ns"),
    [
        (REQUESTS_MIN - 1, 10 * US, 0),
        (REQUESTS_MIN, 10 * US, 10 * US),
        (REQUESTS_MIN, 2 * SHARE_NS_MAX, SHARE_NS_MAX),
        (REQUESTS_MIN, -10 * US, 0),
    ],
)
def test_share_is_bounded(requests: int, beside_ns: int, share_ns: int) -> None:
    """Few requests give none; background work is charged with a bound; a preempted handler used less CPU time."""
    thread = Thread()
    thread.serve(requests, 30 * US, beside_ns)
    assert thread.pass_period() == share_ns


def test_few_requests_keep_the_share_of_the_period_before() -> None:
    thread = Thread()
    thread.serve(100, 30 * US, 50 * US)
    thread.pass_period()
    thread.serve(1, 30 * US, 400 * US)
    assert thread.pass_period() == 50 * US


def test_time_of_continued_requests_is_not_shared() -> None:
    """It is charged to the request that is continued."""
    thread = Thread()
    thread.serve(100, 30 * US, 50 * US)
    thread.time.continued_ns += 1000 * US
    assert thread.pass_period() == 40 * US
