"""A disk that is full, and one that fails: what is taken back, what goes offline, and what comes back by itself."""

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.storage import retention
from kafkalite.storage.log.log import Log
from tests.kit.logs import read_log
from tests.unit.storage.damage import batch
from tests.unit.storage.test_manager import Kit, fill

STORAGE = 56
FULL = [errno.ENOSPC, errno.EDQUOT]


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    yield kit
    kit.manager.unlock()


def append(log: Log, epoch: int = 0, timestamp: int = 1_000) -> int:
    assert log.append(batch(3, timestamp), None, epoch) == log.log_end_offset
    return int(log.write())


def offsets(log: Log) -> list[int]:
    """Base offsets of all batches, as a reader finds them."""
    found = []
    for segment in log.segments:
        found += [batch.base_offset for batch in segment.batches()]
    return found


@pytest.mark.parametrize("error", FULL)
@pytest.mark.parametrize("allowed", [0, 1, 60, 300])
def test_a_full_disk_fails_the_append_and_nothing_else(kit: Kit, error: int, allowed: int) -> None:
    log = kit.create(batches=2)
    kit.disk.fail("write", error, allowed=allowed, path=".log")
    assert append(log) == STORAGE
    assert offsets(log) == [0, 3] and log.log_end_offset == 6
    assert log.active.opened.size() == log.active.size, "no half batch"
    assert not log.failed and kit.manager.is_online(log.root)
    assert append(log) == 0, "there is room again"
    assert offsets(log) == [0, 3, 6]


@pytest.mark.parametrize(
    ("operation", "where"),
    [("write", ".index"), ("write", ".timeindex"), ("open", ".log"), ("open", ".index"), ("write", ".log")],
)
def test_a_roll_on_a_full_disk_is_tried_again(kit: Kit, operation: str, where: str) -> None:
    log = kit.create()
    while log.active.size + 500 < log.segment_bytes:
        assert append(log) == 0
    end, count = log.log_end_offset, len(log.segments)
    kit.disk.fail(operation, errno.ENOSPC, path=where, repeat=True)
    for _ in range(3):
        assert append(log) == STORAGE
    rolled = (operation, where) == ("write", ".log")  # only the write behind the roll has failed: the roll stays
    assert (log.log_end_offset, len(log.segments)) == (end, count + rolled) and not log.failed
    assert offsets(log) == list(range(0, end, 3)), "reading goes on"
    kit.disk.heal()
    assert append(log) == 0 and len(log.segments) == count + 1
    assert offsets(log) == list(range(0, end + 3, 3))
    again = kit.restart()
    found = again.manager.find("t", 0)
    assert found is not None and offsets(found) == offsets(log)
    again.manager.unlock()


def test_a_new_epoch_on_a_full_disk_is_tried_again(kit: Kit) -> None:
    log = kit.create(batches=2)
    kit.disk.fail("write", errno.ENOSPC, path="leader-epoch-checkpoint", repeat=True)
    for _ in range(2):
        assert append(log, epoch=5) == STORAGE
    assert log.epochs.entries == [(0, 0)] and not log.failed and kit.manager.is_online(log.root)
    kit.disk.heal()
    assert append(log, epoch=5) == 0
    assert log.epochs.entries == [(0, 0), (5, 6)]
    restarted = kit.restart(clean=False)
    found = restarted.manager.find("t", 0)
    assert found is not None and found.epochs.entries == [(0, 0), (5, 6)]
    restarted.manager.unlock()


def test_an_epoch_of_a_leadership_is_known_in_memory_and_written_with_the_next_append(kit: Kit) -> None:
    log = kit.create(batches=2)
    kit.disk.fail("write", errno.ENOSPC, path="leader-epoch-checkpoint", repeat=True)
    log.begin_leadership(5)
    assert log.epoch_end_offset(5) == (5, 6) and log.epoch_end_offset(0) == (0, 6)
    for _ in range(2):
        assert append(log, epoch=5) == STORAGE
        assert log.epochs.entries == [(0, 0), (5, 6)], "a failed write does not end the leadership"
    path = Path(log.directory) / "leader-epoch-checkpoint"
    assert path.read_text().split() == ["0", "1", "0", "0"]
    kit.disk.heal()
    assert append(log, epoch=5) == 0
    assert path.read_text().split() == ["0", "2", "0", "0", "5", "6"]
    kit.manager.unlock()


def test_a_failed_append_keeps_the_epoch_that_its_leader_began(kit: Kit) -> None:
    log = kit.create(batches=2)
    log.begin_leadership(5)
    kit.disk.fail("write", errno.ENOSPC, path=".log")
    assert append(log, epoch=5) == STORAGE
    assert log.epochs.entries == [(0, 0), (5, 6)]
    assert append(log, epoch=5) == 0 and log.epochs.entries == [(0, 0), (5, 6)]
    kit.manager.unlock()


def test_retention_frees_space_on_a_full_disk(kit: Kit) -> None:
    log = kit.create(batches=150)
    assert len(log.segments) > 2
    kit.disk.fail("write", errno.ENOSPC, repeat=True)
    kit.disk.fail("open", errno.ENOSPC, repeat=True)
    dropped = retention.take_first(log, retention.count_expired(log, 10**15, log.log_end_offset))
    assert len(dropped) > 1 and len(log.segments) == 1, "all but the last, for which there is no room"
    assert log.log_start_offset == log.segments[0].base_offset
    retention.mark_deleted(dropped)
    assert kit.manager.is_online(log.root)


def test_delete_records_on_a_full_disk(kit: Kit) -> None:
    log = kit.create(batches=2)
    assert append(log, epoch=3) == 0
    kit.disk.fail("write", errno.ENOSPC, repeat=True)
    assert log.delete_records_before(7) == 0
    assert log.epochs.entries == [(3, 7)]
    kit.disk.heal()
    restarted = kit.restart()
    found = restarted.manager.find("t", 0)
    assert found is not None and found.log_start_offset == 7 and found.epochs.entries == [(3, 7)]
    restarted.manager.unlock()


def test_checkpoint_without_space_is_retried_at_the_next_interval(kit: Kit) -> None:
    log = kit.create(batches=2)
    kit.disk.fail("write", errno.ENOSPC, path="recovery-point", repeat=True)
    kit.manager.upkeep.checkpoint()
    kit.offload.drain()
    assert kit.manager.is_online(log.root)
    kit.disk.heal()
    kit.manager.upkeep.checkpoint()
    kit.offload.drain()
    assert (Path(log.root) / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"


def test_topic_is_deleted_without_space_for_its_new_name(kit: Kit) -> None:
    log = kit.create(batches=2)
    kit.disk.fail("rename", errno.ENOSPC)
    kit.manager.delete(log)
    kit.offload.drain()
    assert not Path(log.directory).exists() and kit.manager.is_online(log.root)


def test_a_full_disk_is_spoken_of_once_a_minute(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    log = kit.create(batches=1)
    kit.disk.fail("write", errno.ENOSPC, path=".log", repeat=True)
    with caplog.at_level(logging.ERROR, "kafkalite"):
        for _ in range(10):
            assert append(log) == STORAGE
        assert len(caplog.records) == 1 and "retrying" in caplog.text
        kit.advance(60_000)
        assert append(log) == STORAGE
    assert len(caplog.records) == 2


def test_an_input_output_error_on_write_takes_the_directory_offline(kit: Kit) -> None:
    log, other = kit.create(batches=2), kit.create("other", batches=2)
    other.append(batch(), None, 0)
    kit.disk.fail("write", errno.EIO, path="t-0")
    assert append(log) == STORAGE
    assert kit.offline == [log, other] and not kit.manager.is_online(log.root)
    assert other.write() == STORAGE, "what was queued before is not written any more"
    assert other.log_end_offset == other.next_offset == 6
    assert offsets(log) == [0, 3], "what was there can still be read"


def test_failed_truncation_takes_the_directory_offline_at_once(kit: Kit) -> None:
    log = kit.create(batches=2)
    kit.disk.fail("write", errno.ENOSPC, path=".log", allowed=10)
    kit.disk.fail("truncate", errno.ENOSPC, path=".log")
    assert append(log) == STORAGE
    assert kit.offline == [log]
    restarted = kit.restart(clean=False)
    found = restarted.manager.find("t", 0)
    assert found is not None and offsets(found) == [0, 3]
    restarted.manager.unlock()


def test_an_input_output_error_on_read_is_an_error_of_the_read(kit: Kit) -> None:
    log = kit.create(batches=2)
    kit.disk.fail("read", errno.EIO, path=".log")
    with pytest.raises(OSError, match="Input/output"):
        read_log(log, 3, 1000, 6)
    assert read_log(log, 3, 1000, 6) and append(log) == 0
    assert kit.manager.is_online(log.root)


def test_a_failed_sync_of_a_checkpoint(kit: Kit) -> None:
    log = kit.create()
    fill(log, 2)
    kit.disk.fail("sync", errno.EIO, path="recovery-point")
    kit.manager.upkeep.checkpoint()
    kit.offload.drain()
    assert kit.offline == [log]
