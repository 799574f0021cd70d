"""A log directory whose fsync has failed: the next start writes again what was not flushed, then it relies on it."""

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.model import TopicPartition
from kafkalite.server.process.saved_session import EarlierProcess
from kafkalite.server.process.unclean_start import find_unclean_since
from kafkalite.storage import checkpoints, names
from kafkalite.storage.dirs import failed_fsync
from kafkalite.storage.dirs.log_directory import DirectoryError
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.unit.storage.test_manager import Kit, fill

KILLED = EarlierProcess(has_page_cache=True)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def kit(data: Path) -> Iterator[Kit]:
    kit = Kit(data).open()
    yield kit
    kit.manager.unlock()


def flush(kit: Kit, log: Log) -> None:
    kit.manager.flusher.request_flush(log)
    kit.manager.flusher.begin()
    kit.offload.drain()


def start_again(kit: Kit) -> Kit:
    """Start after a kill, on the same disk."""
    kit.manager.unlock()
    again = Kit(*map(Path, kit.manager.directories()))
    again.disk.shadow = kit.disk.shadow
    return again.open()


def found_log(kit: Kit) -> Log:
    log = kit.manager.find("t", 0)
    assert log is not None
    return log


def fail_a_flush(kit: Kit) -> Log:
    """A log with two flushed batches, and three whose flush has failed."""
    log = kit.create(batches=2)
    flush(kit, log)
    assert log.synced == 6
    fill(log, 3)
    kit.disk.fail("sync", errno.EIO, path=".log")
    flush(kit, log)
    assert not kit.manager.is_online(log.root)
    return log


@pytest.mark.parametrize("seed", range(20))
def test_a_power_failure_loses_nothing_that_was_flushed_after_the_start(kit: Kit, data: Path, seed: int) -> None:
    fail_a_flush(kit)
    again = start_again(kit)
    log = found_log(again)
    assert log.log_end_offset == 15, "what was not flushed can be read"
    fill(log, 1)
    flush(again, log)
    assert log.synced == 18
    again.disk.crash(random.Random(seed))
    last = start_again(again)
    assert found_log(last).log_end_offset == 18
    last.manager.unlock()


def test_only_the_files_of_batches_that_were_not_flushed_are_written_again(kit: Kit) -> None:
    log = kit.create(batches=2)
    while len(log.segments) < 3:
        fill(log, 1)
    flush(kit, log)
    checkpoints.write_offsets(
        kit.disk, f"{log.root}/{checkpoints.RECOVERY_POINTS}", {TopicPartition("t", 0): log.recovery_point}
    )
    fill(log, 1)
    kit.disk.fail("sync", errno.EIO, path=".log")
    flush(kit, log)
    again = start_again(kit)
    written = {
        Path(path).name for operation, path in again.disk.trace if operation == "write" and path.endswith(".log")
    }
    assert written == {f"{log.active.base_offset:020}.log"}
    again.manager.unlock()


def test_the_mark_is_removed_when_all_is_flushed(kit: Kit, data: Path) -> None:
    fail_a_flush(kit)
    assert failed_fsync.is_marked(kit.disk, str(data))
    again = start_again(kit)
    assert not failed_fsync.is_marked(again.disk, str(data))
    again.manager.unlock()


def test_a_start_whose_disk_fails_again_keeps_the_mark(kit: Kit, data: Path) -> None:
    fail_a_flush(kit)
    kit.manager.unlock()
    again = Kit(data)
    again.disk.fail("sync", errno.EIO, path=".log")
    again.manager.lock()
    with pytest.raises(DirectoryError, match="Input/output error"):
        again.manager.load(lambda topic: again.config)
    assert failed_fsync.is_marked(again.disk, str(data))
    again.manager.unlock()


def test_the_next_start_is_unclean(kit: Kit, data: Path) -> None:
    assert find_unclean_since(kit.disk, [str(data)], KILLED) == -1
    fail_a_flush(kit)
    assert find_unclean_since(kit.disk, [str(data)], KILLED) == 0


def test_a_directory_of_another_broker_gets_no_mark(kit: Kit, data: Path) -> None:
    kit.manager.take_offline(str(data), OSError(errno.ESTALE, "replaced"))
    assert not failed_fsync.is_marked(kit.disk, str(data))


def test_a_mark_that_cannot_be_written_is_logged(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    data.mkdir()
    disk = FaultyDisk()
    disk.fail("open", errno.EROFS, path=names.FAILED_FSYNC)
    failed_fsync.mark(disk, str(data))
    assert f"{data}: cannot be marked as failed" in caplog.text


@pytest.mark.parametrize("where", [".index", checkpoints.RECOVERY_POINTS])
def test_a_stop_on_a_full_disk_loses_nothing(kit: Kit, data: Path, where: str) -> None:
    """The page cache still has all records: the broker stays in sync, or eligible, as after a kill."""
    kit.create(batches=2)
    kit.disk.fail("write", errno.ENOSPC, path=where, repeat=True)
    kit.manager.close()
    kit.disk.faults.clear()
    assert not failed_fsync.is_marked(kit.disk, str(data))
    assert checkpoints.read_clean_shutdown(kit.disk, str(data)) is None
    assert find_unclean_since(kit.disk, [str(data)], KILLED) == -1
    again = start_again(kit)
    assert found_log(again).log_end_offset == 6
    again.manager.unlock()


def test_a_sync_that_finds_no_space_at_the_stop_is_a_failed_one(kit: Kit, data: Path) -> None:
    """The file system allocates blocks with the writeback, so the pages are lost (delayed allocation)."""
    kit.create(batches=2)
    kit.disk.fail("sync", errno.ENOSPC, path=".log")
    kit.manager.close()
    assert failed_fsync.is_marked(kit.disk, str(data))
