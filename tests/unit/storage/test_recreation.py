"""A topic that is deleted and made again at once: no work in progress for the old one affects the new one."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.clock import Outcome
from kafkalite.storage import checkpoints
from kafkalite.storage.log.log import Log
from kafkalite.testing.virtual_clock import VirtualClock
from tests.unit.storage.damage import CONFIG, batch, make
from tests.unit.storage.test_manager import TOPIC_ID, Kit, fill

OTHER_ID = bytes(range(16, 32))


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data", config=replace(CONFIG, retention_ms=0)).open()
    yield kit
    kit.manager.unlock()


def making(kit: Kit, log: Log) -> list[Outcome]:
    """Make a log of the same name; what it came to, once it did."""
    ended: list[Outcome] = []
    make(kit.manager, log.root, log.topic, log.partition, OTHER_ID, kit.config, ended.append)
    return ended


def begin_jobs(kit: Kit) -> None:
    """The jobs that were held back run now; their outcomes, and further jobs, wait."""
    kit.offload.release()
    kit.offload.held = True


def run_until_idle(kit: Kit) -> None:
    kit.offload.release()
    kit.offload.drain()


def recovery_point(kit: Kit, log: Log) -> int | None:
    path = Path(log.root) / checkpoints.RECOVERY_POINTS
    return checkpoints.read_offsets(kit.disk, str(path)).get((log.topic, log.partition))


def names_in(log: Log) -> list[str]:
    return sorted(path.name for path in Path(log.directory).iterdir())


FRESH = ["00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata"]


@pytest.mark.parametrize("still_full", [False, True])
def test_deletion_without_disk_space_ends_before_the_new_log_is_created(kit: Kit, still_full: bool) -> None:
    log = kit.create(batches=100)
    kit.disk.fail("rename", errno.ENOSPC, path=log.directory, repeat=still_full)
    kit.offload.held = True
    kit.manager.delete(log)
    kit.disk.faults = [fault for fault in kit.disk.faults if still_full]
    ended = making(kit, log)
    assert kit.offload.waiting == 1, "the removal, alone"
    begin_jobs(kit)
    assert ended == [] and not Path(log.directory).exists()
    kit.disk.heal()
    run_until_idle(kit)
    assert names_in(ended[0].result()) == FRESH
    assert kit.manager.is_online(log.root)


def test_files_of_a_deleted_log_are_removed_before_the_new_log_is_created(kit: Kit) -> None:
    log = kit.create(batches=100)
    kit.disk.fail("rename", errno.ENOSPC, path=log.directory, repeat=True)
    kit.disk.fail("remove", errno.ENOSPC, path=log.directory, repeat=True)
    kit.disk.fail("remove_tree", errno.ENOSPC, path=log.directory, repeat=True)
    kit.manager.delete(log)
    kit.offload.drain()
    assert Path(log.directory).exists() and kit.manager.is_online(log.root)
    ended = making(kit, log)
    kit.offload.drain()
    assert isinstance(ended[0].error, OSError) and ended[0].error.errno == errno.ENOSPC
    kit.disk.heal()
    ended = making(kit, log)
    kit.offload.drain()
    assert names_in(ended[0].result()) == FRESH


@pytest.mark.parametrize("step", range(9))
def test_a_kill_while_a_directory_is_removed_under_its_own_name(kit: Kit, step: int) -> None:
    log = kit.create(batches=100)
    kit.disk.fail("rename", errno.ENOSPC, path=log.directory, repeat=True)
    kit.disk.fail("remove", errno.EIO, path=log.directory, when=step + 1, repeat=True)
    kit.disk.fail("remove_tree", errno.EIO, path=log.directory)
    kit.manager.delete(log)
    kit.offload.drain()
    again = kit.restart(clean=False)
    assert again.loaded[0].rejected == {}
    assert again.manager.topic_ids == {("t", 0): TOPIC_ID}, "it is known whose it was"
    again.manager.unlock()


@pytest.mark.parametrize("slices", [1, 2])
def test_running_checkpoint_does_not_contain_the_new_log(kit: Kit, slices: int) -> None:
    log, other = kit.create(batches=100), kit.create("other", batches=100)
    kit.manager.upkeep.checkpoint()
    run_until_idle(kit)  # the closed segments are synced
    if slices == 2:
        assert isinstance(kit.clock, VirtualClock)
        slow = kit.clock.monotonic
        ticks = iter(range(10**6))
        kit.clock.monotonic = lambda: slow() + next(ticks)  # type: ignore[method-assign]
    kit.offload.held = slices == 1
    kit.manager.upkeep.checkpoint()  # has seen the log that is deleted now
    kit.manager.delete(log)
    ended = making(kit, log)
    while not ended:
        run_until_idle(kit)
        kit.clock.advance(10**7)
    ended[0].result()
    run_until_idle(kit)
    kit.clock.advance(10**7)
    run_until_idle(kit)
    assert (recovery_point(kit, other) or 0) > 0
    assert not recovery_point(kit, log), "what the old one was synced up to does not count for the new one"


def test_the_checkpoints_forget_the_old_log_before_the_new_one_has_files(kit: Kit) -> None:
    log = kit.create(batches=100)
    log.delete_records_before(200)
    kit.manager.upkeep.checkpoint()
    run_until_idle(kit)
    for write in (kit.manager.upkeep.checkpoint, kit.manager.upkeep.checkpoint_starts):
        write()
        run_until_idle(kit)
    assert recovery_point(kit, log) == log.active.base_offset > 0
    kit.manager.delete(log)
    kit.disk.fail("write", errno.ENOSPC, path="-checkpoint", repeat=True)
    ended = making(kit, log)
    run_until_idle(kit)
    assert isinstance(ended[0].error, OSError) and not Path(log.directory).exists(), "no room to forget it"
    kit.disk.heal()
    ended = making(kit, log)
    while not Path(log.directory).exists():
        assert kit.offload.drain()
    assert recovery_point(kit, log) is None
    starts = Path(log.root) / checkpoints.LOG_STARTS
    assert checkpoints.read_offsets(kit.disk, str(starts)) == {}


def test_flush_of_a_deleted_log_writes_no_snapshot_for_the_new_one(kit: Kit) -> None:
    log = kit.create()
    kit.offload.held = True
    fill(log, 100)
    assert log.rolled
    kit.manager.flusher.request_flush(log)
    kit.manager.flusher.begin()  # its job has not begun
    kit.manager.delete(log)
    ended = making(kit, log)
    assert kit.offload.waiting == 1, "the round, alone"
    run_until_idle(kit)
    assert names_in(ended[0].result()) == FRESH


def test_flush_requested_before_the_deletion_is_answered(kit: Kit) -> None:
    log = kit.create()
    kit.offload.held = True
    fill(log, 100)
    received: list[int] = []
    kit.manager.flusher.request_flush(log, received.append)
    kit.manager.delete(log)
    kit.manager.flusher.begin()
    assert received == [56] and kit.offload.waiting == 0
    assert log.append(batch(), None, 0) < 0 or log.write() == 56


def test_retention_of_the_old_log_renames_nothing_of_the_new_one(kit: Kit) -> None:
    log = kit.create(batches=100)
    kit.offload.held = True
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    assert kit.offload.waiting == 1
    kit.manager.delete(log)
    ended = making(kit, log)
    assert kit.offload.waiting == 1, "the renames, alone"
    run_until_idle(kit)
    assert names_in(ended[0].result()) == FRESH and kit.manager.is_online(log.root)
