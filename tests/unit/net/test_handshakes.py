"""How many TLS handshakes an iteration of the loop starts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from kafkalite.net import handshakes
from kafkalite.net.handshakes import DEADLINE_S, ENDS_MAX, SLOW_S, START_EACH_S, STARTS_MAX, Handshakes
from kafkalite.testing.virtual_clock import VirtualClock
from tests.kit.costly_clock import CostlyClock

RECORD = b"\x16\x03\x01\x00\x01\x00"  # whole, with one byte


class Loop:
    """An event loop whose iterations last as long as a test says."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.time: Callable[[], float] = self.clock.monotonic
        self.cpu_s = 0.0  # of its thread
        self._soon: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []

    def add_reader(self, _fd: int, callback: Callable[..., None], *args: object) -> None:
        self._soon.append(lambda: callback(*args))

    def remove_reader(self, _fd: int) -> None:
        pass

    def call_soon(self, callback: Callable[..., None], *args: object) -> Callable[..., None]:
        self._soon.append(lambda: callback(*args))
        return callback

    def call_later(self, _delay_s: float, callback: Callable[[], None]) -> Callable[[], None]:
        self.later.append(callback)
        return callback

    def iterate(self, seconds: float = 0.0, without_core_s: float = 0.0) -> None:
        """Run the callbacks that are ready; the iteration lasts some seconds, and longer without a core."""
        ready, self._soon = self._soon, []
        for each in ready:
            each()
        self.cpu_s += seconds
        self.clock.advance((seconds + without_core_s) * 1000)


class Task:
    cancelled = 0

    def add_done_callback(self, _callback: object) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled += 1


class Rig:
    """Handshakes of connections whose first record has arrived; none of them ends.

    Attributes:
        begun: number of handshakes that have been started.
        discarded: number of connections that were closed before.
        tasks: the handshakes.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.loop = Loop()
        self.begun = self.discarded = 0
        self.tasks: list[Task] = []
        self._stack = stack
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        report, cpu_time = (lambda _peer, _text: None), (lambda: self.loop.cpu_s)
        self.handshakes = Handshakes(loop, self._begin, self._discarded, report, cpu_time)

    def _begin(self, *_args: Any) -> asyncio.Task[None]:
        self.begun += 1
        self.tasks.append(Task())
        return cast("asyncio.Task[None]", self.tasks[-1])

    def _discarded(self, _socket: socket.socket, _host: str) -> None:
        self.discarded += 1

    def connect(self, count: int, sent: bytes = RECORD) -> None:
        for _ in range(count):
            ends = socket.socketpair()
            for each in ends:
                self._stack.enter_context(each)
            ends[1].sendall(sent)
            self.handshakes.add(ends[0], None, ("192.0.2.1", 1))
        self.loop.iterate()  # the records arrive

    def begun_by_iteration(self, seconds: float = 0.0, without_core_s: float = 0.0) -> int:
        before = self.begun
        self.loop.iterate(seconds, without_core_s)
        return self.begun - before


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(stack)


def test_rate_of_handshakes_does_not_decrease_with_the_load(rig: Rig) -> None:
    rig.connect(40)
    durations = (START_EACH_S / 10, START_EACH_S * 5.5, START_EACH_S * 2.5, START_EACH_S * 1000, 0.0)
    assert [rig.begun_by_iteration(each) for each in durations] == [1, 1, 5, 2, STARTS_MAX]
    assert rig.begun_by_iteration() == 1


def test_time_without_waiting_connections_starts_no_more_handshakes(rig: Rig) -> None:
    rig.connect(1)
    assert rig.begun_by_iteration(seconds=1.0) == 1
    rig.connect(5)
    assert rig.begun_by_iteration() == 1


def test_time_without_a_core_starts_no_more_handshakes(rig: Rig) -> None:
    """On a busy machine many would start at once, and the next iteration would be long for all clients."""
    rig.connect(40)
    assert rig.begun_by_iteration(START_EACH_S, without_core_s=1.0) == 1
    assert rig.begun_by_iteration() == 1


def test_connection_past_its_deadline_does_not_use_up_a_start(rig: Rig) -> None:
    rig.connect(3)
    rig.loop.clock.advance(DEADLINE_S * 1000)
    rig.connect(1)
    assert (rig.begun_by_iteration(), rig.discarded) == (1, 3)


def test_connections_past_their_deadline_are_closed_for_a_limited_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock costs a millisecond."""
    rig.connect(3)
    rig.loop.clock.advance(DEADLINE_S * 1000)
    rig.loop.time = CostlyClock(rig.loop.clock).monotonic
    monkeypatch.setattr(handshakes, "LATE_S", 0.0005)
    for closed in (1, 2, 3):
        rig.loop.iterate()
        assert (rig.discarded, rig.begun) == (closed, 0)


def test_slow_handshakes_end_some_in_each_iteration(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds that clients never finish would stop the loop at once."""
    count = 2 * ENDS_MAX + 5
    monkeypatch.setattr(handshakes, "RUNNING_MAX", count)
    rig.connect(2 * count)
    while rig.begun < count:
        rig.loop.iterate()
    rig.loop.iterate()
    rig.loop.clock.advance(SLOW_S * 1000)
    rig.loop.later.pop()()
    ended = []
    for _ in range(3):
        ended.append(sum(each.cancelled for each in rig.tasks))
        rig.loop.iterate()
    assert ended == [ENDS_MAX, 2 * ENDS_MAX, count] and {each.cancelled for each in rig.tasks} == {1}


def test_silent_connections_end_for_a_limited_time_in_each_iteration(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock costs a millisecond."""
    rig.connect(5, RECORD[:2])
    rig.loop.clock.advance(DEADLINE_S * 1000)
    rig.loop.time = CostlyClock(rig.loop.clock).monotonic
    monkeypatch.setattr(handshakes, "LATE_S", 0.0025)
    rig.loop.later.pop()()
    assert rig.discarded == 2
    rig.loop.iterate()
    assert rig.discarded == 4
    rig.loop.iterate()
    assert rig.discarded == 5
