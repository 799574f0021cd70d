"""The prober of the fairness tests counts every delayed request of a stall, and summarises delays by nearest rank."""

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perf.brokers.base import Running
from perf.errors import VerificationError
from perf.loads.fairness.control import RESPONSE
from perf.loads.fairness.probe import INTERVAL_S, Probe
from perf.loads.fairness.waits import Delay, ProcessDelay, ProcessTimes, Wait, summary_ms
from perf.wire import api_versions, read_exactly

WITHHELD = 40


@contextmanager
def stalling_broker(released: threading.Event, *, closes: bool = False) -> Iterator[int]:
    """A server that answers the first requests only when it has read WITHHELD of them; yields its port."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            read_exactly(connection, WITHHELD * len(api_versions(0)))
            if closes:
                return
            connection.sendall(RESPONSE * WITHHELD)
            released.set()
            while connection.recv(len(api_versions(0)), socket.MSG_WAITALL):
                connection.sendall(RESPONSE)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def running(port: int) -> Running:
    return Running("other", cast("Any", SimpleNamespace(pid=os.getpid())), port, Path(), 0.0)


def test_stall_counts_once_for_each_scheduled_request() -> None:
    released = threading.Event()
    with stalling_broker(released) as port:
        with Probe(running(port)) as probe:
            assert released.wait(60)
        assert len(probe.waits) >= WITHHELD
        for number, wait in enumerate(probe.waits[:WITHHELD]):  # the later planned, the shorter the wait
            assert wait.wall_s >= (WITHHELD - 1 - number) * INTERVAL_S
            assert 0 <= wait.net_s <= wait.wall_s
    assert len(probe.control) > 0


def test_closed_connection_fails_the_probe() -> None:
    with (
        stalling_broker(threading.Event(), closes=True) as port,
        pytest.raises(VerificationError, match="prober"),
        Probe(running(port)) as probe,
    ):
        select.select((probe._prober.stdout,), (), (), 60)
    assert probe.waits == []


def test_summary_by_nearest_rank() -> None:
    waits = [Wait(number / 1000, number / 2000) for number in range(1, 101)]
    assert summary_ms(waits[::-1]) == {"longest": 100.0, "net": 50.0, "p99": 100.0, "net_p99": 50.0}


def test_summary_without_requests_is_an_error() -> None:
    with pytest.raises(ValueError, match="no request"):
        summary_ms([])


def test_delay_of_a_thread_never_decreases() -> None:
    with Delay(os.getpid()) as delay:
        first = delay.seconds()
        os.sched_yield()
        assert delay.seconds() >= first >= 0


def test_delay_of_an_unknown_process_is_an_error() -> None:
    with pytest.raises(OSError):
        Delay(2**22 + 1)


def test_machine_time_of_a_blocked_loop_includes_that_of_other_threads() -> None:
    before = ProcessTimes(on_core_s=1.0, queued_s=2.0, others_queued_s=3.0)
    running = ProcessTimes(on_core_s=1.5, queued_s=2.1, others_queued_s=3.4)
    assert running.machine_s(before, wall_s=0.6) == pytest.approx(0.1)  # never blocked
    assert running.machine_s(before, wall_s=0.8) == pytest.approx(0.3)  # blocked for 0.2 s, while others had no core
    assert running.machine_s(before, wall_s=2.0) == pytest.approx(0.5)  # blocked for longer than others had no core


def test_process_delay_adds_up_all_threads_and_never_decreases() -> None:
    released, started = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        released.wait()

    with ProcessDelay(os.getpid()) as delay:
        thread = threading.Thread(target=work)
        thread.start()
        assert started.wait(60)
        with_thread = delay.times()
        released.set()
        thread.join()
        after = delay.times()
    assert after.on_core_s >= with_thread.on_core_s > 0
    assert after.queued_s >= with_thread.queued_s
    assert after.others_queued_s >= with_thread.others_queued_s
