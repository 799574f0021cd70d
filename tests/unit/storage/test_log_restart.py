"""A log restarts empty at an offset of its leader, through the manager."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Outcome
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log
from tests.kit.logs import read_log
from tests.unit.storage.damage import batch
from tests.unit.storage.test_manager import Kit
from tests.unit.storage.test_truncation import recovery_point, synced


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    yield kit
    kit.manager.unlock()


def restarted(kit: Kit, log: Log, offset: int, start: int | None = None) -> Outcome:
    ended: list[Outcome] = []
    kit.manager.restart_at(log, offset, ended.append, log_start_offset=start)
    while kit.offload.drain():
        pass
    return ended[0]


def names_of(log: Log, *suffixes: str) -> list[str]:
    return sorted(path.name for path in Path(log.directory).iterdir() if path.name.endswith(suffixes))


def replicated(log: Log, base: int, epoch: int = 4) -> int:
    result = log.append_replicated(bytes(batch(base_offset=base, leader_epoch=epoch)))
    assert result.error or log.write() == 0
    return result.error


@pytest.mark.parametrize("offset", [0, 150, 300, 5_000])
def test_a_log_restarts_empty_at_an_offset(kit: Kit, offset: int) -> None:
    log = kit.create(batches=100)
    synced(kit, log)
    regions = read_log(log, 0, 1_000, 300)
    assert isinstance(regions, list)
    before = regions[0].read()
    restarted(kit, log, offset).result()
    offsets = log.log_start_offset, log.recovery_point, log.synced, log.log_end_offset, log.next_offset
    assert offsets == (offset,) * 5 and log.epochs.entries == [] and len(log.producers) == 0
    assert names_of(log, ".log", ".snapshot", ".work", ".deleted") == [f"{offset:020d}.log"] and log.size == 0
    assert regions[0].read() == before, "a response in flight keeps the old file"
    assert replicated(log, offset + 2) == 0
    assert log.epochs.entries == [(4, offset + 2)] and log.log_start_offset == offset
    kit = kit.restart(clean=False)
    found = kit.manager.find("t", 0)
    assert found is not None and kit.loaded[0].rejected == {}
    assert (found.log_start_offset, found.log_end_offset) == (offset, offset + 5)
    kit.manager.unlock()


def test_the_recovery_point_is_lowered_on_the_disk_before_the_files(kit: Kit) -> None:
    log = kit.create(batches=100)
    synced(kit, log)
    seen: set[int] = set()

    def look(operation: str, path: str) -> None:
        if operation in ("rename", "remove") and ".log" in path:
            seen.add(recovery_point(log))

    kit.disk.hook = look
    restarted(kit, log, 5_000).result()
    assert seen == {0}
    kit.disk.hook = lambda *_: None
    synced(kit, log)
    assert recovery_point(log) == 5_000


def test_the_log_start_of_the_leader_may_lie_within_the_first_batch(kit: Kit) -> None:
    log = kit.create(batches=3)
    restarted(kit, log, 501).result()
    result = log.append_replicated(bytes(batch(base_offset=500, leader_epoch=4)))
    assert (result.error, result.restart_offset) == (KafkaErrorCode.OFFSET_OUT_OF_RANGE, 500)
    restarted(kit, log, result.restart_offset, start=501).result()
    assert (log.log_start_offset, log.log_end_offset, log.synced) == (501, 501, 500)
    synced(kit, log)
    assert log.synced == 500, "the next batch begins there, and is not on the disk"
    assert replicated(log, 500) == 0
    assert (log.log_start_offset, log.log_end_offset) == (501, 503) and log.epochs.entries == [(4, 501)]
    assert read_log(log, 500, 1_000, 503) == KafkaErrorCode.OFFSET_OUT_OF_RANGE
    assert isinstance(read_log(log, 501, 1_000, 503), list)
    synced(kit, log)
    assert log.synced == 503
    kit = kit.restart(clean=False)
    found = kit.manager.find("t", 0)
    assert found is not None and kit.loaded[0].rejected == {}
    assert (found.log_start_offset, found.log_end_offset) == (501, 503)
    kit.manager.unlock()


def test_without_space_for_the_checkpoints_nothing_is_removed(kit: Kit) -> None:
    log = kit.create(batches=10)
    kit.disk.fail("write", errno.ENOSPC, path="-checkpoint", repeat=True)
    assert isinstance(restarted(kit, log, 500).error, OSError)
    assert (log.log_start_offset, log.log_end_offset, log.holds_appends) == (0, 30, False)
    kit.disk.heal()
    restarted(kit, log, 500).result()
    assert log.log_end_offset == 500


def test_a_failed_job_takes_the_log_directory_offline(kit: Kit) -> None:
    log = kit.create(batches=10)
    kit.disk.fail("rename", errno.EIO, path=".log")
    assert isinstance(restarted(kit, log, 500).error, OSError)
    assert kit.offline == [log] and log.failed


def test_appends_wait_for_the_job(kit: Kit) -> None:
    log = kit.create(batches=10)
    kit.offload.held = True
    ended: list[Outcome] = []
    kit.manager.restart_at(log, 500, ended.append)
    while not log.holds_appends:
        kit.offload.release()
        kit.offload.held = True
        kit.offload.drain()
    with pytest.raises(RuntimeError, match="appends wait"):
        replicated(log, 500)
    assert read_log(log, 500, 1_000, 500) == [] and not ended
    kit.offload.release()
    while kit.offload.drain():
        pass
    ended[0].result()
    assert replicated(log, 500) == 0
    assert Disk().exists(log.active.path(".log"))
