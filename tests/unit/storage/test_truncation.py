"""Truncation through the manager: the checkpoints claim less before the files hold less."""

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.clock import Outcome
from kafkalite.storage import checkpoints
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.logs import read_log
from tests.unit.storage.damage import batch
from tests.unit.storage.test_manager import Kit, fill


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    yield kit
    kit.manager.unlock()


def synced(kit: Kit, log: Log) -> None:
    """The whole log is flushed, and the checkpoints contain its end."""
    kit.manager.flusher.request_flush(log)
    kit.manager.flusher.begin()
    kit.offload.drain()
    for write in (kit.manager.upkeep.checkpoint, kit.manager.upkeep.checkpoint_starts):
        write()
        kit.offload.drain()


def recovery_point(log: Log, name: str = checkpoints.RECOVERY_POINTS) -> int:
    return checkpoints.read_offsets(FaultyDisk(), str(Path(log.root) / name)).get((log.topic, log.partition), 0)


def test_the_recovery_point_is_lowered_on_the_disk_before_the_files(kit: Kit) -> None:
    log = kit.create(batches=100)
    assert log.delete_records_before(150) == 0
    synced(kit, log)
    assert recovery_point(log) == 300 and recovery_point(log, checkpoints.LOG_STARTS) == 150
    seen: list[tuple[int, int]] = []

    def look(operation: str, path: str) -> None:
        if operation in ("truncate", "remove") and path.endswith(".log"):
            seen.append((recovery_point(log), recovery_point(log, checkpoints.LOG_STARTS)))

    kit.disk.hook = look
    ended: list[Outcome] = []
    kit.manager.truncate({log: 100}, ended.append)
    kit.offload.drain()
    ended[0].result()
    assert seen and {recovery for recovery, _ in seen} == {99} and {start for _, start in seen} <= {0, 99}
    assert (log.log_end_offset, log.log_start_offset, log.synced, log.recovery_point) == (99, 99, 99, 99)
    assert log.append(batch(), None, 1) == 99 and log.write() == 0
    assert kit.restart(clean=False).loaded[0].rejected == {}


def test_no_sync_raises_it_again_before_the_cut(kit: Kit) -> None:
    log = kit.create(batches=100)
    kit.offload.held = True
    kit.manager.flusher.request_flush(log)
    kit.manager.flusher.begin()  # planned before the cut is expected
    assert log.begin_truncation(100) == 99
    kit.offload.release()
    kit.offload.drain()
    kit.manager.flusher.request_flush(log)
    kit.manager.flusher.begin()  # planned after that
    kit.offload.drain()
    assert log.synced == 99 and log.log_end_offset == 300
    log.truncate_to(99)
    assert log.append(batch(), None, 1) == 99 and log.write() == 0
    synced(kit, log)
    assert log.synced == 102


def test_a_checkpoint_that_saw_more_does_not_say_so_later(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    log = kit.create(batches=100)
    kit.create("other")
    synced(kit, log)
    ticks = itertools.count()
    now = kit.clock.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(kit.clock, "monotonic", lambda: now() + next(ticks) / 1000)  # a log to a slice
        kit.manager.upkeep.checkpoint()
    ended: list[Outcome] = []
    kit.manager.truncate({log: 50}, ended.append)
    kit.offload.drain()
    ended[0].result()
    assert recovery_point(log) == 48 == log.log_end_offset
    kit.advance(10_000)
    assert recovery_point(log) == 48


def test_truncation_without_space_for_the_checkpoints_changes_nothing(kit: Kit) -> None:
    log, other = kit.create(batches=100), kit.create("other", batches=100)
    synced(kit, log)
    kit.disk.fail("write", errno.ENOSPC, path="-checkpoint", repeat=True)
    ended: list[Outcome] = []
    kit.manager.truncate({log: 100, other: 50}, ended.append)
    kit.offload.drain()
    assert isinstance(ended[0].error, OSError) and ended[0].error.errno == errno.ENOSPC
    assert log.log_end_offset == other.log_end_offset == 300 and kit.manager.is_online(log.root)
    kit.disk.heal()
    synced(kit, log)
    assert recovery_point(log) == 300, "it is synced up to its end as ever"
    kit.manager.truncate({log: 100, other: 50}, ended.append)
    kit.offload.drain()
    ended[1].result()
    assert (log.log_end_offset, other.log_end_offset) == (99, 48)


def test_a_log_that_is_deleted_meanwhile_is_left_alone(kit: Kit) -> None:
    log = kit.create(batches=10)
    kit.offload.held = True
    ended: list[Outcome] = []
    kit.manager.truncate({log: 9}, ended.append)
    kit.manager.delete(log)
    kit.offload.release()
    kit.offload.drain()
    ended[0].result()
    assert log.log_end_offset == 30


def test_failed_truncation_takes_the_log_directory_offline(kit: Kit) -> None:
    log = kit.create(batches=100)
    kit.disk.fail("truncate", errno.EIO, path=".log")
    ended: list[Outcome] = []
    kit.manager.truncate({log: 100}, ended.append)
    kit.offload.drain()
    assert isinstance(ended[0].error, OSError) and kit.offline == [log]


def test_nothing_to_cut(kit: Kit) -> None:
    log = kit.create(batches=2)
    ended: list[Outcome] = []
    kit.manager.truncate({log: 6}, ended.append)
    ended[0].result()
    fill(log, 1)
    assert log.log_end_offset == 9


def truncated(kit: Kit, log: Log, offset: int) -> None:
    ended: list[Outcome] = []
    kit.manager.truncate({log: offset}, ended.append)
    while kit.offload.drain():
        pass
    ended[0].result()


@pytest.mark.parametrize("offset", [6, 7, 2**40])
def test_an_epoch_without_batches_at_the_log_end_is_removed_in_any_case(kit: Kit, offset: int) -> None:
    log = kit.create(batches=2)
    log.begin_leadership(7)
    assert log.epoch_end_offset(7) == (7, 6)
    truncated(kit, log, offset)
    assert log.epochs.entries == [(0, 0)] and (log.log_end_offset, log.epoch_end_offset(7)) == (6, (-1, -1))
    assert log.append_replicated(bytes(batch(base_offset=6, leader_epoch=3))).error == 0, "of an older epoch"
    assert log.write() == 0 and log.epochs.entries == [(0, 0), (3, 6)]


def test_the_sync_and_the_producers_are_left_to_a_job_and_appends_wait_for_it(kit: Kit) -> None:
    log = kit.create(batches=0)
    fields = {"producer_id": 9, "producer_epoch": 0}
    for sequence in range(0, 60, 3):
        assert log.append(batch(base_sequence=sequence, **fields), None, 0) == sequence
        assert log.write() == 0
    steps: list[str] = []
    kit.disk.hook = lambda operation, path: steps.append(f"{operation} {Path(path).name}")
    kit.offload.held = True
    ended: list[Outcome] = []
    kit.manager.truncate({log: 30}, ended.append)
    while log.log_end_offset == 60:  # the checkpoints are jobs, too
        kit.offload.release()
        kit.offload.held = True
        kit.offload.drain()
    assert (
        not ended and log.holds_appends and [step for step in steps if step.startswith("sync") and ".log" in step] == []
    )
    with pytest.raises(RuntimeError, match="appends wait"):
        log.append(batch(), None, 0)
    kit.manager.upkeep.check_retention(lambda log: log.log_end_offset)
    kit.manager.flusher.request_flush(log)
    kit.manager.flusher.begin()
    assert kit.manager.flusher.batches == 0, "the log counts as being flushed"
    kit.offload.release()
    while kit.offload.drain():
        pass
    ended[0].result()
    assert not log.holds_appends and log.synced == 30 and log.recovery_point == 30
    assert [(each.producer_id, each.last_sequence) for each in log.producers] == [(9, 29)]
    assert log.append(batch(base_sequence=30, **fields), None, 0) == 30 and log.write() == 0


def test_stop_during_the_job_writes_no_snapshot_of_producers_that_were_truncated(kit: Kit) -> None:
    """With the snapshot, the next start would take a repeated batch for one that the log has."""
    log = kit.create(batches=0)
    fields = {"producer_id": 9, "producer_epoch": 0}
    for sequence in range(0, 60, 3):
        assert log.append(batch(base_sequence=sequence, **fields), None, 0) == sequence
        assert log.write() == 0
    kit.manager.truncate({log: 30}, lambda _: None)
    kit.offload.held = True
    while not log.holds_appends:
        kit.offload.release()
        kit.offload.held = True
        kit.offload.drain()
    again = kit.restart()
    (found,) = again.manager.all()
    assert found.log_end_offset == 30
    assert [(each.producer_id, each.last_sequence) for each in found.producers] == [(9, 29)]
    again.manager.unlock()


def test_a_failed_job_takes_the_log_directory_offline(kit: Kit) -> None:
    log = kit.create(batches=100)
    kit.disk.fail("sync", errno.EIO, path=".log")
    ended: list[Outcome] = []
    kit.manager.truncate({log: 100}, ended.append)
    kit.offload.drain()
    assert isinstance(ended[0].error, OSError) and kit.offline == [log] and log.failed


def test_a_log_that_is_deleted_during_the_job_does_not_wait_for_its_directory_back(kit: Kit) -> None:
    log = kit.create(batches=10)
    kit.offload.held = True
    ended: list[Outcome] = []
    kit.manager.truncate({log: 9}, ended.append)
    while not log.holds_appends:
        kit.offload.release()
        kit.offload.held = True
        kit.offload.drain()
    kit.manager.delete(log)
    kit.offload.release()
    while kit.offload.drain():
        pass
    ended[0].result()
    assert kit.manager.is_online(log.root)


def test_a_truncation_waits_for_a_running_flush(kit: Kit) -> None:
    log = kit.create(batches=10)
    kit.offload.held = True
    kit.manager.flusher.request_flush(log)
    kit.manager.flusher.begin()
    ended: list[Outcome] = []
    assert log.begin_truncation(9) == 9
    log.end_truncation()
    kit.manager.truncate({log: 9}, ended.append)
    kit.offload.release()
    while kit.offload.drain():
        pass
    ended[0].result()
    assert (log.log_end_offset, log.synced) == (9, 9)


def test_no_gap_stays_at_the_end(kit: Kit) -> None:
    log = kit.create(batches=0)
    batches = [bytes(batch(base_offset=base, leader_epoch=0)) for base in range(0, 2_000, 10)]
    assert log.append_replicated(b"".join(batches)).count == 200 and log.write() == 0
    for offset, end in ((1_995, 1_993), (1_991, 1_983), (1_507, 1_503), (1_500, 1_493), (5, 3), (3, 3), (1, 0)):
        truncated(kit, log, offset)
        assert (log.log_end_offset, log.active.next_offset(), log.synced) == (end, end, log.synced)
    assert len(log.segments) == 1


@pytest.mark.parametrize("offset", [0, 500, 999])
def test_a_log_that_begins_above_the_offset_restarts_there(kit: Kit, offset: int) -> None:
    """The leader was elected uncleanly, and ends below the records that retention has left here."""
    log = kit.create()
    kit.manager.restart_at(log, 1_000, lambda _outcome: None)
    kit.offload.drain()
    replicate(log, 1_000, 4)
    synced(kit, log)
    truncated(kit, log, offset)
    assert (log.log_start_offset, log.log_end_offset, log.bases(), log.epochs.entries) == (offset, offset, [offset], [])
    replicate(log, offset, 6)
    found_there = read_log(log, offset, 1_000, offset + 3)
    assert isinstance(found_there, list) and len(found_there) == 1
    kit = kit.restart(clean=False)
    found = kit.manager.find("t", 0)
    assert found is not None and kit.loaded[0].rejected == {}
    assert (found.log_start_offset, found.log_end_offset, found.epochs.entries) == (offset, offset + 3, [(6, offset)])
    kit.manager.unlock()


def replicate(log: Log, base: int, epoch: int) -> None:
    assert log.append_replicated(bytes(batch(base_offset=base, leader_epoch=epoch))).count == 1 and log.write() == 0
