"""Deleted files and directories: few jobs of their own, one sync of the log directory each, and no table that grows."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.storage.file_removal import BATCH, FileRemover
from kafkalite.storage.manager import LogManager
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom, VirtualClock
from tests.unit.storage.damage import CONFIG, made
from tests.unit.storage.test_manager import TOPIC_ID, Kit, fill

DELAY_MS = 60_000


class Counting(InlineOffload):
    """Counts jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0

    def run(self, job, *args, done) -> None:  # type: ignore[no-untyped-def]
        self.jobs += 1
        super().run(job, *args, done=done)


class Rig:
    """Directories and files that were renamed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk, self.clock, self.offload = FaultyDisk(), VirtualClock(), Counting()
        self.removals = FileRemover(self.disk, self.clock, self.offload)

    def directories(self, count: int) -> list[str]:
        paths = [self.root / f"t-{number}.0-delete" for number in range(count)]
        for path in paths:
            path.mkdir()
            (path / "0.log").write_bytes(b"batch")
        return [str(path) for path in paths]

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.offload.drain()

    @property
    def left(self) -> int:
        return len(list(self.root.iterdir()))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_thousands_of_directories_are_removed_by_few_jobs_with_one_sync_each(rig: Rig) -> None:
    count = 4 * BATCH
    for path in rig.directories(count):
        rig.removals.add([path], DELAY_MS, directories=True)
    rig.wait(DELAY_MS - 1)
    assert (rig.left, rig.offload.jobs) == (count, 0)
    rig.wait(1)
    assert (rig.left, rig.offload.jobs, rig.disk.counts["sync_dir"]) == (0, 4, 4)
    assert len(rig.removals) == 0 and rig.clock.timers == 0


def test_each_removal_keeps_its_own_delay(rig: Rig) -> None:
    first, second, third = rig.directories(3)
    rig.removals.add([first], 2 * DELAY_MS, directories=True)
    rig.removals.add([second], DELAY_MS, directories=True)
    rig.removals.add([third], 0, directories=True)
    found = []
    for _ in range(3):
        rig.offload.drain()
        found.append(sorted(path.name for path in rig.root.iterdir()))
        rig.wait(DELAY_MS)
    assert found == [["t-0.0-delete", "t-1.0-delete"], ["t-0.0-delete"], []]


def test_a_directory_that_cannot_be_removed_stays_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    paths = rig.directories(3)
    rig.disk.fail("remove_tree", errno.EIO, path=paths[1])
    rig.removals.add(paths, 0, directories=True)
    rig.offload.drain()
    assert [str(path) for path in rig.root.iterdir()] == [paths[1]]
    assert "cannot remove deleted files, the next start removes them" in caplog.text


def test_nothing_is_removed_from_a_log_directory_that_cannot_be_synced(rig: Rig) -> None:
    rig.disk.fail("sync_dir", errno.EIO)
    rig.removals.add(rig.directories(3), 0, directories=True)
    rig.offload.drain()
    assert rig.left == 3


def test_missing_directory_is_ignored(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.removals.add([str(rig.root / "gone-delete"), *rig.directories(1)], 0, directories=True)
    rig.removals.add([str(rig.root / "gone.deleted")], 0)
    rig.offload.drain()
    assert (rig.left, caplog.text) == (0, "")


def test_after_the_close_no_job_begins(rig: Rig) -> None:
    rig.offload.held = True
    rig.removals.add(rig.directories(BATCH + 1), 0, directories=True)
    rig.removals.close()
    rig.offload.release()
    rig.offload.drain()
    assert (rig.left, rig.offload.jobs) == (1, 1)


def test_other_jobs_do_not_wait_for_deletions(tmp_path: Path) -> None:
    """Deletions and deleted segments have an offload of their own; here it is blocked."""
    removals = InlineOffload()
    removals.held = True
    offload, clock, disk = InlineOffload(), VirtualClock(), FaultyDisk()
    manager = LogManager(disk, [str(tmp_path)], clock, offload, SeededRandom(1), removals=removals)
    manager.lock()
    config = replace(CONFIG, retention_ms=0, file_delete_delay_ms=0)
    logs = [made(manager, offload, str(tmp_path), "t", index, TOPIC_ID, config) for index in range(3)]
    fill(logs[0], batches=100)
    manager.upkeep.check_retention(lambda log: log.log_end_offset)
    for log in logs[1:]:
        manager.delete(log)
    jobs_before = removals.waiting
    answered = []
    offload.run(abs, -1, done=lambda outcome: answered.append(outcome.result()))
    offload.drain()
    assert answered == [1]
    assert jobs_before == 2, "the deleted segments of one log, the directories of the others"
    removals.release()
    removals.drain()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["t-0"]
    manager.unlock()


def test_deleted_partitions_are_forgotten_with_the_next_checkpoints(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data").open()
    (path,) = kit.manager.directories()
    for _ in range(3):
        for log in [kit.create(partition=index) for index in range(20)]:
            kit.manager.delete(log)
        kit.manager.upkeep.checkpoint()
        kit.offload.drain()
        assert len(kit.manager._files.deleted[path]) == 20, "the checkpoint of log starts may name them"
        kit.manager.upkeep.checkpoint_starts()
        kit.offload.drain()
        assert not kit.manager._files.deleted[path]
    kit.manager.unlock()


def test_a_partition_deleted_while_a_checkpoint_is_written_is_remembered(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data").open()
    (path,) = kit.manager.directories()
    log = kit.create()
    kit.offload.held = True
    for write in (kit.manager.upkeep.checkpoint, kit.manager.upkeep.checkpoint_starts):
        write()
    kit.manager.delete(log)
    kit.offload.release()
    kit.offload.drain()
    assert list(kit.manager._files.deleted[path]) == [("t", 0)]
    kit.manager.unlock()
