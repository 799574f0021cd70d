"""Group commit: completions after the fsync, the files of an fsync batch, and its errors."""

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kafkalite.clock import Clock
from kafkalite.storage.flush.flusher import Flusher
from kafkalite.storage.log.flush_job import JobSyncer
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, VirtualClock
from tests.kit.logs import new_log
from tests.unit.storage.damage import CONFIG, batch, filled
from tests.unit.storage.test_manager import Kit

STORAGE = 56


class Rig:
    """A flusher over two log directories whose jobs wait until the test lets them run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = FaultyDisk()
        self.clock: VirtualClock = VirtualClock()
        self.offload = InlineOffload()
        self.offload.held = True
        self.failed: list[tuple[str, int | None]] = []
        self.received: list[tuple[str, int]] = []
        clock: Clock = self.clock
        self.syncer = JobSyncer(self.disk, self.offload)
        self.flusher = Flusher(self.disk, clock, self.syncer, self.fail)
        self.logs: list[Log] = []

    def fail(self, path: str, error: OSError) -> None:
        self.failed.append((path, error.errno))
        for log in self.logs:
            if log.root == path:
                log.fail()

    def log(self, name: str = "t-0", root: str = "a") -> Log:
        log = new_log(self.disk, str(self.path / root / name), name, 0, CONFIG)
        self.logs.append(log)
        return log

    def write(self, log: Log, batches: int = 1) -> int:
        """Append, and ask; answers the log end."""
        for _ in range(batches):
            log.append(batch(), None, 0)
            assert log.write() == 0
        self.flusher.request_flush(log, self.teller(log))
        return int(log.log_end_offset)

    def teller(self, log: Log) -> Callable[[int], None]:
        return partial(self.complete, log.topic)

    def complete(self, name: str, error: int) -> None:
        self.received.append((name, error))

    def run(self) -> list[tuple[str, int]]:
        """Run the submitted jobs; return the completions since the last call."""
        self.offload.release()
        self.offload.drain()
        self.offload.held = True
        received, self.received = self.received, []
        return received

    def one(self) -> list[tuple[str, int]]:
        """As `run`, but what that starts is held again."""
        self.offload.release()
        self.offload.held = True
        self.offload.drain()
        received, self.received = self.received, []
        return received

    def synced(self) -> list[str]:
        return [path for operation, path in self.disk.trace if operation == "sync" and path.endswith(".log")]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_no_flush_is_reported_before_the_sync(rig: Rig) -> None:
    log = rig.log()
    end = rig.write(log)
    rig.flusher.begin()
    assert rig.received == [] and log.recovery_point == 0
    assert rig.run() == [("t-0", 0)]
    assert log.recovery_point == end == 3


def test_one_sync_covers_all_that_was_appended_meanwhile(rig: Rig) -> None:
    log = rig.log()
    rig.write(log)
    rig.flusher.begin()
    for _ in range(5):
        rig.write(log)
        rig.flusher.begin()
    assert rig.one() == [("t-0", 0)]
    assert log.recovery_point == 3, "what came after the plan is not claimed"
    assert rig.run() == [("t-0", 0)] * 5
    assert log.recovery_point == 18
    assert len(rig.synced()) == 2 and rig.flusher.batches == 2


def test_partitions_of_a_loop_iteration_share_a_batch(rig: Rig) -> None:
    for name in ("a-0", "b-0", "c-0"):
        rig.write(rig.log(name))
    rig.flusher.begin()
    assert rig.offload.waiting == 1
    assert rig.run() == [("a-0", 0), ("b-0", 0), ("c-0", 0)]
    assert rig.flusher.batches == 1


def test_directories_do_not_wait_for_each_other(rig: Rig) -> None:
    rig.write(rig.log("a-0", root="one"))
    rig.flusher.begin()
    rig.write(rig.log("b-0", root="two"))
    rig.flusher.begin()
    assert rig.offload.waiting == 2


def test_two_batches_of_a_log_directory_share_no_log(rig: Rig) -> None:
    rig.syncer.batches_max = 2
    first, second, third = (rig.log(name) for name in ("a-0", "b-0", "c-0"))
    rig.write(first)
    rig.flusher.begin()
    rig.write(first)
    rig.flusher.begin()
    assert rig.offload.waiting == 1, "an error of writing would be told to one of two syncs of a file only"
    rig.write(second)
    rig.flusher.begin()
    rig.write(third)
    rig.flusher.begin()
    assert rig.offload.waiting == 2 and list(rig.flusher.waiting[first.root]) == [first, third]
    assert rig.one() == [("a-0", 0), ("b-0", 0)]
    assert (first.recovery_point, second.recovery_point) == (3, 3)
    assert rig.run() == [("a-0", 0), ("c-0", 0)]
    assert first.recovery_point == first.log_end_offset == 6
    assert rig.flusher.batches == 3


def test_failed_batch_fails_the_requests_of_its_logs_only(rig: Rig) -> None:
    rig.syncer.batches_max = 2
    first, second = rig.log("a-0"), rig.log("b-0")
    rig.write(first)
    rig.flusher.begin()
    rig.write(first)
    rig.write(second)
    rig.flusher.begin()
    rig.disk.fail("sync", errno.EIO, path="a-0")
    assert rig.run() == [("a-0", STORAGE), ("a-0", STORAGE), ("b-0", 0)], "b-0 is on the disk"
    assert rig.failed == [(first.root, errno.EIO)]
    assert first.recovery_point == 0 and not rig.flusher.waiting
    rig.flusher.begin()
    assert rig.offload.waiting == 0


def test_a_roll_brings_the_closed_segment_its_indexes_and_the_directory(rig: Rig) -> None:
    log = rig.log()
    rig.write(log, batches=70)
    assert len(log.segments) == 2
    rig.disk.trace.clear()
    rig.flusher.begin()
    rig.run()
    changed = {path for operation, path in rig.disk.trace if operation in ("sync", "sync_dir")}
    first, second = log.segments
    assert changed == {
        first.path(".log"), first.path(".index"), first.path(".timeindex"), second.path(".log"), log.directory,
        log.epochs.path, second.path(".snapshot.tmp"),
    }  # fmt: skip
    rig.disk.trace.clear()
    rig.write(log)
    rig.flusher.begin()
    rig.run()
    assert [path for operation, path in rig.disk.trace if "sync" in operation] == [second.path(".log")]


def test_an_epoch_is_on_the_disk_before_its_batches(rig: Rig) -> None:
    log = rig.log()
    rig.write(log)
    rig.flusher.begin()
    rig.run()
    log.append(batch(), None, 4)
    assert log.write() == 0
    rig.flusher.request_flush(log)
    rig.disk.trace.clear()
    rig.flusher.begin()
    rig.run()
    synced = [(operation, path) for operation, path in rig.disk.trace if "sync" in operation]
    assert synced == [("sync", log.epochs.path), ("sync", log.active.path(".log")), ("sync_dir", log.directory)]


@pytest.mark.parametrize("where", [".log", "leader-epoch-checkpoint"])
def test_a_failed_sync_is_final_for_the_directory(rig: Rig, where: str) -> None:
    log, other = rig.log("a-0"), rig.log("b-0")
    rig.write(log)
    rig.flusher.begin()
    rig.write(other)
    rig.disk.fail("sync", errno.EIO, path=where)
    assert rig.run() == [("a-0", STORAGE), ("b-0", STORAGE)], "those who gathered for the next round, too"
    assert rig.failed == [(log.root, errno.EIO)]
    assert log.recovery_point == other.recovery_point == 0
    rig.write(log, batches=0)
    assert rig.received == [("a-0", STORAGE)], "it is never tried again"
    rig.flusher.begin()
    assert rig.offload.waiting == 0


def test_a_failed_sync_of_the_directory_itself(rig: Rig) -> None:
    log = rig.log()
    rig.write(log)
    rig.disk.fail("sync_dir", errno.EIO)
    rig.flusher.begin()
    assert rig.run() == [("t-0", STORAGE)]
    assert log.recovery_point == 0


def test_log_truncated_during_a_flush_is_flushed_again(rig: Rig) -> None:
    log = rig.log()
    rig.write(log, batches=3)
    rig.flusher.begin()
    log.truncate_to(log.begin_truncation(3))
    log.append(batch(7), None, 0)
    assert log.write() == 0
    assert rig.one() == []
    assert log.recovery_point == 0, "the sync was of what is no longer there"
    assert rig.run() == [("t-0", 0)]
    assert log.recovery_point == log.log_end_offset == 10


def test_log_that_is_deleted_meanwhile_fails_no_request(rig: Rig) -> None:
    log, other = rig.log("a-0"), rig.log("b-0")
    rig.write(log, batches=70)
    rig.write(other)
    rig.flusher.begin()
    rig.disk.rename(log.directory, log.directory + "-delete")
    assert rig.run() == [("a-0", 0), ("b-0", 0)]
    assert rig.failed == []


def test_exception_of_one_callback_does_not_stop_the_others(rig: Rig) -> None:
    log = rig.log()
    rig.write(log)
    rig.flusher.request_flush(log, lambda error: [][error])
    rig.flusher.request_flush(log, partial(rig.complete, "last"))
    rig.flusher.begin()
    with pytest.raises(IndexError):
        rig.run()
    assert rig.received == [("t-0", 0), ("last", 0)]


def test_close_runs_the_last_batches_at_once(rig: Rig) -> None:
    log = rig.log()
    rig.write(log)
    rig.flusher.begin()
    rig.write(log)
    rig.flusher.finish()
    assert rig.run() == [("t-0", 0), ("t-0", 0)]
    rig.write(log)
    rig.flusher.begin()
    assert rig.received == [("t-0", 0)] and log.recovery_point == log.log_end_offset == 9


def test_exception_of_a_callback_at_close_is_raised(rig: Rig) -> None:
    log = rig.log()
    rig.flusher.finish()
    rig.write(log)
    rig.flusher.request_flush(log, lambda error: [][error])
    with pytest.raises(IndexError):
        rig.flusher.begin()
    assert rig.received == [("t-0", 0)] and rig.failed == []


@pytest.mark.parametrize("at_once", [False, True])
def test_callback_may_start_waiting_batches(rig: Rig, at_once: bool) -> None:
    """As a coordinator does after a failed append: it writes, and starts the requested flush."""
    gone, other = rig.log("gone-0", "a"), rig.log("other-0", "b")
    rig.syncer.batches_max = 2
    if at_once:
        rig.flusher.finish()
    rig.flusher.request_flush(gone, lambda _: rig.flusher.begin())
    rig.write(other)
    gone.fail()
    rig.flusher.begin()
    assert rig.run() == [("other-0", 0)] and not rig.flusher.waiting


def test_an_unclean_start_syncs_the_closed_segments_it_did_not_see_synced(tmp_path: Path) -> None:
    log = filled(tmp_path / "a" / "t-0", disk=FaultyDisk())
    again = Log(
        log.disk, log.directory, "t", 0, replace(CONFIG), list(log.segments), log.epochs, recovery_point=0
    )  # fmt: skip
    assert again.rolled
    closed = {segment.path(".log") for segment in again.segments[:-1]}
    assert closed <= {file.path for file in again.plan_flush(active=False).files}
    again.apply_flush(again.plan_flush(active=False))
    assert not again.rolled and again.recovery_point == again.active.base_offset


@pytest.mark.parametrize("every", [1, 2])
def test_unsynced_data_after_a_kill_is_synced_before_it_is_read(tmp_path: Path, every: int) -> None:
    kit = Kit(tmp_path / "data", config=replace(CONFIG, flush_messages=every)).open()
    end = kit.create(batches=70).log_end_offset
    again = kit.restart(clean=False)
    log = again.manager.find("t", 0)
    assert log is not None
    synced = {path for operation, path in again.disk.trace if operation == "sync"}
    batches = {segment.path(".log") for segment in log.segments}
    assert (batches <= synced) is (every == 1) and len(batches) == 2
    assert log.recovery_point == (end if every == 1 else 0)
    again.manager.unlock()


def test_closed_segment_is_flushed_right_after_its_roll(tmp_path: Path) -> None:
    """As UnifiedLog.roll: the flush and the producer snapshot do not wait for the checkpoint of the recovery points."""
    kit = Kit(tmp_path / "data").open()
    log = kit.create(batches=70)
    closed, active = log.segments
    assert not any(operation == "sync" and path == closed.path(".log") for operation, path in kit.disk.trace)
    kit.advance(0)
    synced = {path for operation, path in kit.disk.trace if operation in ("sync", "sync_dir")}
    assert synced >= {closed.path(".log"), closed.path(".index"), closed.path(".timeindex"), log.directory}
    assert active.path(".log") not in synced, "the active segment waits for its own settings"
    assert kit.disk.exists(active.path(".snapshot"))
    assert log.synced == active.base_offset and not log.rolled
    kit.manager.unlock()


def test_rolls_of_one_loop_iteration_are_flushed_together(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data").open()
    logs = [kit.create(name) for name in ("a", "b", "c")]
    for log in logs:
        log.roll(log.log_end_offset)
        for _ in range(70):
            log.append(batch(), None, 0)
            assert log.write() == 0
    kit.offload.held = True
    kit.clock.advance(0)
    assert kit.offload.waiting == 1
    kit.offload.release()
    kit.offload.drain()
    assert [log.synced for log in logs] == [log.active.base_offset for log in logs]
    kit.manager.unlock()
