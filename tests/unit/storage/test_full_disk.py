"""A disk that is full for long: at a start, at a deletion, in the cleaner; what waits, and that service comes back."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.storage.checkpoints import CLEANER_OFFSETS
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.logs import read_log
from tests.unit.storage.damage import CONFIG
from tests.unit.storage.test_cleaner import Kit as CleanerKit
from tests.unit.storage.test_cleaner import plain, records, values
from tests.unit.storage.test_disk_errors import append, offsets
from tests.unit.storage.test_manager import US, Kit

STORAGE = 56


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    yield kit
    kit.manager.unlock()


def fill_up(disk: FaultyDisk) -> None:
    """No byte and no name has room any more."""
    for operation in ("write", "rename"):
        disk.fail(operation, errno.ENOSPC, repeat=True)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("indexes", ["as they were", "missing", "insane"])
def test_start_on_a_full_disk_serves_existing_records(kit: Kit, clean: bool, indexes: str) -> None:
    log = kit.create(batches=100)
    kit.create("empty")
    expected = offsets(log)
    if clean:
        kit.manager.close()
    kit.manager.unlock()
    for path in Path(log.directory).glob("*index"):
        if indexes == "missing":
            path.unlink()
        elif indexes == "insane":
            path.write_bytes(b"\xff" * 24)
    if not clean:  # after a clean end it is believed
        (Path(log.directory) / "leader-epoch-checkpoint").unlink()
    again = Kit(*map(Path, kit.manager.directories()), config=kit.config)
    fill_up(again.disk)
    again.open()
    found = again.manager.find("t", 0)
    assert found is not None and again.manager.is_online(found.root)
    assert found.log_end_offset == 300 and offsets(found) == expected
    for _ in range(2):
        assert append(found) == STORAGE
        assert found.look_up_time(50_000) == (50_000, 150, 0)
    for segment in found.segments[:-1]:
        again.manager.cache.forget(segment)
        segment.unload()
    assert offsets(found) == expected, "closed segments are opened as ever"
    again.disk.heal()
    assert append(found) == 0 and offsets(found) == [*expected, 300]
    last = again.restart()
    assert last.loaded[0].clean
    found = last.manager.find("t", 0)
    assert found is not None and offsets(found) == [*expected, 300]
    assert found.epochs.entries[0] == (0, 0)
    last.manager.unlock()


def test_only_the_partition_that_needs_space_is_offline(tmp_path: Path) -> None:
    kit = CleanerKit(tmp_path)
    log, other = plain(kit, range(100)), plain(kit, range(100), "other")
    kit.disk.fail("rename", errno.ENOSPC, path=f"{log.directory}/00000000000000000000.index.swap")
    kit.start()
    assert list(Path(log.directory).glob("*.swap")), "the process ends before there is space again"
    kit.manager.unlock()
    disk = FaultyDisk()
    fill_up(disk)
    kit.open(disk)
    assert kit.manager.is_online(str(tmp_path))
    (loaded,) = kit.loaded
    assert list(loaded.rejected) == [log.directory] and "next start" in loaded.rejected[log.directory]
    found = kit.manager.find("other", 0)
    assert found is not None and found.log_end_offset == other.log_end_offset
    kit.manager.unlock()
    kit.open(FaultyDisk())
    found = kit.manager.find("t", 0)
    assert found is not None and values(records(found)) == LAST
    kit.manager.unlock()


def test_new_directory_is_not_claimed_without_space(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data")
    kit.manager.lock()
    fill_up(kit.disk)
    with pytest.raises(Exception, match="No space left"):
        kit.manager.claim(US)
    kit.disk.heal()
    kit.manager.unlock()


def test_retention_removes_files_that_cannot_be_renamed(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data", config=replace(CONFIG, retention_ms=0)).open()
    log = kit.create(batches=100)
    regions = read_log(log, 0, 10_000, 300)
    assert isinstance(regions, list)
    fill_up(kit.disk)
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    kit.offload.drain()
    assert kit.manager.is_online(log.root) and len(log.segments) == 1
    assert len(list(Path(log.directory).glob("*.log*"))) == 1
    assert len(regions[0].read()) == regions[0].length, "a running read continues"
    assert append(log) == STORAGE
    kit.disk.heal()
    assert append(log) == 0
    kit.manager.unlock()


def full_for_renames_of(disk: FaultyDisk, ending: str) -> None:
    """There is no room for a new name of a file whose name ends so."""

    def refuse(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(ending):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.hook = refuse


LAST = {b"%d" % (number % 10): b"%d" % number * 25 for number in range(90, 100)}


@pytest.mark.parametrize("ending", [".log", ".index", ".timeindex"])
def test_compacted_segments_are_removed_without_space_for_new_names(tmp_path: Path, ending: str) -> None:
    kit = CleanerKit(tmp_path)
    log = plain(kit, range(100))
    full_for_renames_of(kit.disk, ending)
    kit.start()
    assert kit.manager.is_online(str(tmp_path))
    assert kit.checkpoint()["t", 0] == log.active.base_offset
    assert values(records(log)) == LAST
    assert not list(Path(log.directory).glob("*" + ending + ".deleted")), "removed at once"
    kit.restart()
    found = kit.manager.find("t", 0)
    assert found is not None and values(records(found)) == LAST


@pytest.mark.parametrize("ending", [".log.swap", ".index.swap", ".timeindex.swap"])
@pytest.mark.parametrize("end", ["room", "clean end", "kill", "deletion", "truncation"])
def test_last_renames_of_a_swap_wait_for_space(tmp_path: Path, ending: str, end: str) -> None:
    kit = CleanerKit(tmp_path)
    log = plain(kit, range(100))
    full_for_renames_of(kit.disk, ending)
    kit.start()
    assert kit.manager.is_online(str(tmp_path)) and kit.cleaner.is_busy(log)
    assert list(Path(log.directory).glob("*" + ending)) and values(records(log)) == LAST, "what is new is read"
    kit.run(2_000)
    if end == "truncation":
        with pytest.raises(OSError, match="No space left"):
            log.truncate_to(log.begin_truncation(50))
        log.end_truncation()
        assert log.log_end_offset == 100 and not log.failed and values(records(log)) == LAST
    if end in ("room", "truncation"):
        kit.disk.hook = None
        kit.run()
        assert not list(Path(log.directory).glob("*.swap"))
        assert kit.manager.is_online(str(tmp_path)) and values(records(log)) == LAST
    elif end == "deletion":
        kit.manager.delete(log)
        kit.run()
        assert not kit.cleaner.is_busy(log) and kit.manager.is_online(str(tmp_path))
        return
    if end != "kill":
        kit.cleaner.close()
        kit.run()
        kit.manager.close()
    kit.manager.unlock()
    kit.open(FaultyDisk())
    found = kit.manager.find("t", 0)
    assert found is not None and values(records(found)) == LAST
    assert kit.manager.is_online(str(tmp_path))


def test_a_log_is_cleaned_only_when_the_checkpoint_names_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit = CleanerKit(tmp_path)
    log = plain(kit, range(100))
    before = log.segments
    kit.disk.fail("write", errno.ENOSPC, path=CLEANER_OFFSETS, repeat=True)
    kit.start()
    kit.run()
    assert log.segments == before and not kit.cleaner.is_busy(log)
    assert "compaction failed, retrying later" in caplog.text
    kit.disk.heal()
    kit.run(2_000)
    assert values(records(log)) == LAST and kit.checkpoint()["t", 0] == log.active.base_offset


@pytest.mark.parametrize("end", ["deletion", "offline", "close"])
def test_cleaning_that_waits_for_the_checkpoint_is_aborted(tmp_path: Path, end: str) -> None:
    kit = CleanerKit(tmp_path)
    log = plain(kit, range(100))
    kit.offload.held = True
    kit.manager.cleaner = kit.cleaner
    kit.cleaner.start(lambda log: log.log_end_offset)
    kit.clock.advance(1)
    assert kit.cleaner.is_busy(log)
    if end == "deletion":
        kit.manager.delete(log)
    elif end == "offline":
        kit.manager.take_offline(str(tmp_path), OSError(errno.EIO, "gone"))
    else:
        kit.cleaner.close()
    assert not kit.cleaner.is_busy(log)
    kit.offload.release()
    kit.offload.drain()
    assert not list(Path(log.directory).parent.rglob("*.cleaned"))
