"""A clean stop of many logs: few syncs, in an order that survives a power cut, and no work for unchanged logs."""

import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.storage import checkpoints
from kafkalite.storage.log.log import SMALL_LOG, Log
from tests.unit.storage.damage import CONFIG, batch
from tests.unit.storage.test_manager import Kit

LOGS = 20


def filled(log: Log) -> None:
    for number in range(2):
        log.append(batch(3, 1_000 * number), None, 0)
        assert log.write() == 0


def produced(log: Log) -> None:
    for number in range(2):
        fields = {"producer_id": log.partition, "producer_epoch": 0, "base_sequence": 3 * number}
        log.append(batch(3, 1_000 * number, **fields), None, 0)
        assert log.write() == 0


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """Logs of idempotent producers."""
    kit = Kit(tmp_path / "data").open()
    for index in range(LOGS):
        produced(kit.create(partition=index))
    return kit


def steps_of_close(kit: Kit, many_files: int) -> list[tuple[str, str]]:
    kit.manager.many_files = many_files
    kit.disk.trace.clear()
    kit.manager.close()
    return [(operation, Path(path).name) for operation, path in kit.disk.trace]


def positions(steps: list[tuple[str, str]], operation: str, suffix: str = "") -> list[int]:
    return [at for at, step in enumerate(steps) if step[0] == operation and step[1].endswith(suffix)]


def clean_mark(kit: Kit) -> bool:
    return kit.disk.exists(str(Path(kit.manager.directories()[0]) / checkpoints.CLEAN_SHUTDOWN))


def test_many_logs_are_synced_by_two_calls(kit: Kit) -> None:
    steps = steps_of_close(kit, many_files=LOGS)
    first, second = positions(steps, "sync_all")
    assert len(positions(steps, "sync")) == 3, "two checkpoints and the mark of the clean stop"
    indexes, snapshots = positions(steps, "write", "index"), positions(steps, "rename", ".snapshot.tmp")
    assert len(indexes) >= LOGS and len(snapshots) == LOGS
    assert max(indexes) < first < min(snapshots), "a snapshot says that the indexes are on the disk"
    assert max(snapshots) < second < min(positions(steps, "sync"))
    assert clean_mark(kit)
    kit.manager.unlock()


def test_logs_without_producers_are_synced_by_one_call_and_have_no_snapshots(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "data").open()
    for index in range(LOGS):
        filled(kit.create(partition=index))
    steps = steps_of_close(kit, many_files=LOGS)
    assert len(positions(steps, "sync_all")) == 1 and not positions(steps, "list")
    assert not list(tmp_path.rglob("*.snapshot"))
    again = kit.restart()
    assert again.loaded[0].clean and all(log.complete for log in again.manager.all())
    again.manager.unlock()


def long(log: Log) -> None:
    while log.active.size <= SMALL_LOG:
        filled(log)


def expired(log: Log) -> None:
    """Their batches would restore the producers."""
    produced(log)
    log.expire_producers(10**9, 0)
    log.expire_producers(10**9 + 1, 0)
    assert not len(log.producers)


@pytest.mark.parametrize("change", [produced, long, expired, lambda log: log.roll(log.log_end_offset)])
def test_other_logs_have_snapshots(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    kit = Kit(tmp_path / "data", config=replace(CONFIG, segment_bytes=4 * SMALL_LOG)).open()
    log = kit.create()
    filled(log)
    change(log)
    end = log.log_end_offset
    again = kit.restart()
    assert f"{end:020d}.snapshot" in {path.name for path in (tmp_path / "data/t-0").iterdir()}
    (loaded,) = again.manager.all()
    assert loaded.complete
    assert loaded.may_have_snapshots, "so that the next stop replaces it"
    again.manager.unlock()


def test_a_power_cut_after_the_clean_stop_loses_nothing(kit: Kit) -> None:
    steps_of_close(kit, many_files=0)
    kit.manager.unlock()
    assert kit.disk.crash(random.Random(1)) == 0
    again = kit.restart(clean=False)
    assert again.loaded[0].clean
    assert [log.log_end_offset for log in again.manager.all()] == [6] * LOGS
    again.manager.unlock()


@pytest.mark.parametrize("few", [True, False], ids=["few files", "no report of errors"])
def test_otherwise_each_file_is_synced(kit: Kit, few: bool) -> None:
    kit.disk.sync_all_reports = few
    steps = steps_of_close(kit, many_files=10_000 if few else 0)
    assert not positions(steps, "sync_all")
    for suffix in (".log", ".index", ".timeindex", ".snapshot.tmp"):
        assert len(positions(steps, "sync", suffix)) == LOGS
    assert clean_mark(kit)
    kit.manager.unlock()


@pytest.mark.parametrize("call", [1, 2])
def test_an_error_leaves_no_mark_and_other_directories_are_closed(tmp_path: Path, call: int) -> None:
    kit = Kit(tmp_path / "a", tmp_path / "b").open()
    for index in range(4):
        produced(kit.create(partition=index))
    kit.disk.fail("sync_all", errno.EIO, when=call, path=str(tmp_path / "a"))
    steps_of_close(kit, many_files=0)
    assert not (tmp_path / "a" / checkpoints.CLEAN_SHUTDOWN).exists()
    assert (tmp_path / "b" / checkpoints.CLEAN_SHUTDOWN).exists()
    kit.manager.unlock()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("name", [".txnindex", "leader-epoch-checkpoint"])
def test_sync_without_descriptors_leaves_no_mark_and_the_directory_online(kit: Kit, error: int, name: str) -> None:
    """A file that cannot be opened is no failed sync: the next start recovers the logs as after a kill."""
    kit.disk.fail("descriptor", error, path=name, repeat=True)
    kit.manager.many_files = 10_000
    assert not kit.manager.close()
    root = kit.manager.directories()[0]
    assert kit.manager.is_online(root) and not kit.offline and not clean_mark(kit)
    kit.disk.heal()
    again = kit.restart(clean=False)
    assert not again.loaded[0].clean
    assert [log.log_end_offset for log in again.manager.all()] == [6] * LOGS
    again.manager.unlock()


def test_close_without_an_online_directory_is_not_clean(kit: Kit) -> None:
    (root,) = kit.manager.directories()
    kit.manager.take_offline(root, OSError(errno.EIO, "error"))
    assert kit.manager.close() is False
    kit.manager.unlock()


def test_a_write_that_the_disk_gave_up_earlier_is_reported(kit: Kit) -> None:
    log = kit.manager.all()[0]
    kit.disk.fail("sync", errno.EIO, path=log.directory)
    with pytest.raises(OSError, match="error"):
        log.active.opened.sync()
    steps_of_close(kit, many_files=0)
    assert not clean_mark(kit)
    kit.manager.unlock()


def test_logs_without_changes_are_left_as_they_are(kit: Kit) -> None:
    again = kit.restart()
    (log,) = [log for log in again.manager.all() if log.partition == 7]
    log.append(batch(1, 9_000), None, 0)
    assert log.write() == 0
    steps = steps_of_close(again, many_files=10_000)
    written = {Path(path).parent.name for operation, path in again.disk.trace if operation in ("write", "sync")}
    assert written == {"t-7", "data"}
    assert positions(steps, "write", ".timeindex") and clean_mark(again)
    last = again.restart(clean=False)
    assert [log.log_end_offset for log in last.manager.all() if log.partition == 7] == [7]
    last.manager.unlock()


def unflushed(log: Log) -> None:
    log.append(batch(1, 9_000), None, 0)
    assert log.write() == 0


def rolled(log: Log) -> None:
    log.roll(log.log_end_offset)


def started_later(log: Log) -> None:
    log.delete_records_before(6)


def compacted(log: Log) -> None:
    log.roll(log.log_end_offset)
    log.note_complete()
    log.replace([log.segments[0]], log.segments[0])


@pytest.mark.parametrize("change", [unflushed, rolled, started_later, compacted])
def test_any_change_makes_a_log_incomplete(kit: Kit, change) -> None:  # type: ignore[no-untyped-def]
    again = kit.restart()
    log = again.manager.all()[0]
    assert log.complete
    change(log)
    assert not log.complete
    again.manager.unlock()
