"""Rounds in lanes: who carries out which round, and how outcomes come back to the loop."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import LoopClock, Outcome, ThreadOffload
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.flush.fsync_threads import ThreadSyncer, syncer_for
from kafkalite.storage.log.flush_job import FlushPlan, JobSyncer
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.logs import new_log
from tests.unit.storage.damage import CONFIG, batch

ANSWER_S = 120.0


class Rig:
    """A syncer of two log directories on the running loop."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self.disk = disk or Disk()
        loop = asyncio.get_running_loop()
        self.raised: list[BaseException] = []
        self.threads = ThreadOffload(loop, 2)
        self.syncer = syncer_for(self.disk, [self.root("a"), self.root("b")], loop, self.threads, self.note)

    def root(self, name: str) -> str:
        return str(self.path / name)

    def note(self, _callback: object, error: BaseException) -> None:
        self.raised.append(error)

    def log(self, name: str, root: str = "a") -> Log:
        return new_log(self.disk, os.path.join(self.root(root), name), name, 0, CONFIG)

    async def run(self, plans: list[FlushPlan], root: str = "a") -> Outcome:
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.syncer.run(self.root(root), plans, ended.set_result)
        assert not ended.done(), "never before run has returned"
        return await asyncio.wait_for(ended, ANSWER_S)


def write(log: Log, batches: int = 1) -> None:
    for _ in range(batches):
        log.append(batch(), None, 0)
        assert log.write() == 0


async def test_syncer_depends_on_the_disk(tmp_path: Path) -> None:
    for disk, kind in ((Disk(), ThreadSyncer), (FaultyDisk(), JobSyncer)):
        rig = Rig(tmp_path, disk)
        assert type(rig.syncer) is kind
        rig.syncer.close()


async def test_flusher_with_sync_threads_completes_all_requests(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    received: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    flusher = Flusher(rig.disk, LoopClock(asyncio.get_running_loop()), rig.syncer, lambda path, error: None)
    logs = [rig.log(f"{root}{number}-0", root) for root in "ab" for number in range(6)]
    for _ in range(3):
        for log in logs:
            write(log)
            flusher.request_flush(log, lambda error, log=log: received.put_nowait((log.topic, error)))
        flusher.begin()
        names = {await asyncio.wait_for(received.get(), ANSWER_S) for _ in logs}
        assert names == {(log.topic, 0) for log in logs}
        assert all(log.recovery_point == log.log_end_offset for log in logs)
    rig.syncer.close()
    assert flusher.batches == 6


async def test_batch_with_snapshots_runs_as_a_job_and_writes_them(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    log = rig.log("t-0")
    write(log, 70)
    plan = log.plan_flush()
    assert plan.snapshots and plan.directory == log.directory
    (base,) = plan.snapshots
    assert (await rig.run([plan])).error is None
    assert log.apply_flush(plan) and (Path(log.directory) / f"{base:020d}.snapshot").exists()
    rig.syncer.close()


async def test_error_is_the_outcome(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    log = rig.log("t-0")
    write(log)
    plan = log.plan_flush()
    plan.paths = [log.directory]
    error = (await rig.run([plan])).error
    assert isinstance(error, OSError) and (error.errno, error.filename) == (errno.EISDIR, log.directory)
    rig.syncer.close()


async def test_close_applies_running_batches(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    outcomes: list[Outcome] = []
    for root in "ab":
        log = rig.log("t-0", root)
        write(log)
        rig.syncer.run(rig.root(root), [log.plan_flush()], outcomes.append)
    rig.syncer.close()
    assert [outcome.error for outcome in outcomes] == [None, None]
    rig.syncer.close()


async def test_exception_of_a_callback_is_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    log = rig.log("t-0")
    write(log)

    def broken(outcome: Outcome) -> None:
        raise LookupError(str(outcome.error))

    rig.syncer.run(rig.root("a"), [log.plan_flush()], broken)
    rig.syncer.close()
    assert [type(error) for error in rig.raised] == [LookupError]


async def test_nothing_is_taken_after_the_end(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    log = rig.log("t-0")
    write(log)
    rig.syncer.close()
    with pytest.raises(RuntimeError, match="closed"):
        rig.syncer.run(rig.root("a"), [log.plan_flush()], print)
