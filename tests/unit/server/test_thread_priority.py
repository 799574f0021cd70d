"""The threads of the cleaner and of deletions have a low priority; a thread of the application keeps its own."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.clock import Executor, Outcome, ThreadOffload
from kafkalite.server.broker import Broker
from kafkalite.server.process.ports import Ports
from kafkalite.server.process.thread_priority import NICE, log_rejected, lower_thread_priority
from tests.unit.storage.test_cleaner import Kit, plain

Priority = tuple[int, int]


def priority() -> Priority:
    """Scheduling policy and nice value of this thread."""
    thread = threading.get_native_id()
    return os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)


def in_thread(run: Callable[[], object]) -> list[Priority]:
    """The priority of a new thread before and after a call."""
    found: list[Priority] = []

    def target() -> None:
        found.append(priority())
        run()
        found.append(priority())

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    return found


@pytest.mark.parametrize(("policy", "expected"), [("SCHED_OTHER", os.SCHED_BATCH), ("SCHED_IDLE", os.SCHED_IDLE)])
def test_thread_does_not_preempt_the_loop(policy: str, expected: int) -> None:
    def run() -> None:
        os.sched_setscheduler(threading.get_native_id(), getattr(os, policy), os.sched_param(0))
        lower_thread_priority()

    assert in_thread(run)[1][0] == expected


def test_priority_that_is_lower_already_stays() -> None:
    """After `nice -n 15 kafkalite serve` the threads keep 15."""

    def run() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE + 5)
        lower_thread_priority()

    assert in_thread(run)[1][1] == NICE + 5


def test_system_that_refuses_a_priority_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "planted")

    log_rejected.cache_clear()
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_setscheduler", refused)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    asked: list[int] = []
    monkeypatch.setattr(os, "setpriority", lambda *now: asked.append(now[-1]))
    for _ in range(2):
        lower_thread_priority()
    assert asked == [NICE, NICE], "the second call to the system follows a refused first one"
    logged = [record.message for record in caplog.records if "planted" in record.message]
    assert logged == ["background threads (compaction, deletion) keep their normal priority: [Errno 1] planted"]


def test_broker_lowers_the_priority_of_cleaner_deletions_and_moves_alone(tmp_path: Path) -> None:
    async def priorities() -> dict[str, Priority]:
        executors: dict[str, Executor] = {}

        def recorded(*arguments: Any, name: str = "jobs", **options: Any) -> ThreadOffload:
            executors[name] = created = ThreadOffload(*arguments, name=name, **options)
            return created

        async with Broker(str(tmp_path), ports=Ports(offload=recorded)):
            found: dict[str, Priority] = {}
            for name, executor in executors.items():
                done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
                executor.run(priority, done=done.set_result)
                found[name] = (await done).value
            return found

    before = priority()
    found = asyncio.run(priorities())
    low = {name for name, (policy, nice) in found.items() if policy == os.SCHED_BATCH and nice >= NICE}
    assert (
        low == {"kafkalite-clean", "kafkalite-move", "kafkalite-remove"}
        and {"jobs", "kafkalite-create"} <= set(found) - low
    )
    assert priority() == before


def test_jobs_that_a_simulation_runs_in_its_own_thread_keep_its_priority(tmp_path: Path) -> None:
    def clean() -> None:
        kit = Kit(tmp_path)
        log = plain(kit, range(100))
        kit.start()
        kit.run()
        assert kit.cleaner.clean_until(log) == log.active.base_offset

    before, after = in_thread(clean)
    assert after == before
