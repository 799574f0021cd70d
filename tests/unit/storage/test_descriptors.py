"""No free file descriptors (EMFILE): a call fails, is retried or taken back; no log directory goes offline."""

import errno
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from kafkalite.storage.dirs.log_directory import DirectoryError
from kafkalite.storage.log.log import Log
from tests.kit.logs import read_log
from tests.unit.storage.damage import batch
from tests.unit.storage.test_disk_errors import STORAGE, append, offsets
from tests.unit.storage.test_manager import Kit, fill


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data").open()
    yield kit
    kit.manager.unlock()


def no_descriptors(kit: Kit, *, when: int = 1, error: int = errno.EMFILE) -> None:
    """From the call number `when` on, the disk opens nothing."""
    kit.disk.fail("descriptor", error, when=when, repeat=True)


def until_full(log: Log) -> None:
    """Append until the next batch rolls."""
    while log.active.size + 500 < log.segment_bytes:
        assert append(log) == 0


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("when", [1, 2, 3])
def test_roll_without_descriptors_is_undone(kit: Kit, when: int, error: int) -> None:
    """Call 1 and 2 open the indexes of the segment that is closed, call 3 makes the next one."""
    log = kit.create()
    until_full(log)
    end = log.log_end_offset
    no_descriptors(kit, when=when, error=error)
    for _ in range(3):
        assert append(log) == STORAGE
        no_descriptors(kit, error=error)
    assert not log.failed and kit.manager.is_online(log.root) and kit.offline == []
    assert (log.log_end_offset, len(log.segments)) == (end, 1)
    assert [path.name for path in Path(log.directory).glob("*.log")] == ["0" * 20 + ".log"]
    kit.disk.heal()
    assert append(log) == 0 and len(log.segments) == 2
    again = kit.restart()
    found = again.manager.find("t", 0)
    assert found is not None and offsets(found) == list(range(0, end + 3, 3))
    again.manager.unlock()


def test_second_roll_of_a_write_without_descriptors_is_undone(kit: Kit) -> None:
    log = kit.create(batches=1)
    for _ in range(2 * log.segment_bytes // len(batch()) + 2):
        assert log.append(batch(), None, 0) >= 0
    no_descriptors(kit, when=4)
    assert log.write() == STORAGE
    assert not log.failed and kit.offline == [] and offsets(log) == [0] and len(log.segments) == 1
    assert [path.name for path in Path(log.directory).glob("*.log")] == ["0" * 20 + ".log"]
    kit.disk.heal()
    assert append(log) == 0 and offsets(log) == [0, 3]


@pytest.mark.parametrize(("operation", "path", "when"), [("write", ".log", 2), ("open", ".log", 1)])
def test_directory_of_a_roll_that_was_undone_is_synced_before_anything_is_claimed(
    kit: Kit, operation: str, path: str, when: int
) -> None:
    log = kit.create(batches=1)
    log.apply_flush(log.plan_flush())
    assert log.plan_flush().directory is None
    for _ in range(2 * log.segment_bytes // len(batch()) + 2):
        log.append(batch(), None, 0)
    kit.disk.fail(operation, errno.ENOSPC, path=path, when=when)
    assert log.write() == STORAGE
    plan = log.plan_flush()
    assert plan.directory == log.directory and plan.rolls > log.rolls_flushed
    log.not_flushed(plan)
    assert log.plan_flush().directory == log.directory, "the plan was not carried out"
    log.apply_flush(log.plan_flush())
    assert log.plan_flush().directory is None


def test_write_that_fails_behind_an_empty_segment_leaves_the_closed_one_closed(kit: Kit) -> None:
    """D4: the cleaner may work on what is closed; an unclean start leaves an empty last segment."""
    log = kit.create(batches=10)
    log.roll(log.log_end_offset)
    closed, empty = log.segments
    kit.disk.fail("write", errno.ENOSPC, path=".log")
    assert append(log) == STORAGE
    assert log.segments == (closed, empty) and log.active is empty and closed.closed
    assert append(log) == 0 and offsets(log) == list(range(0, 33, 3))


def test_reader_of_an_unloaded_segment_without_descriptors_is_served_later(kit: Kit) -> None:
    log = kit.create(batches=150)
    for when in range(1, 5):
        log.segments[0].unload()
        kit.manager.cache.forget(log.segments[0])
        no_descriptors(kit, when=when)
        if when < 4:
            with pytest.raises(OSError, match="Too many open files"):
                read_log(log, 3, 1000, 6)
            kit.disk.heal()
        assert read_log(log, 3, 1000, 6)
        kit.disk.heal()


# Flushes, checkpoints, compaction, deletion, start.


class Waiting:
    """A flush that an acknowledgement waits for."""

    def __init__(self, kit: Kit, log: Log) -> None:
        self.codes: list[int] = []
        kit.manager.flusher.request_flush(log, self.codes.append)
        kit.manager.flusher.begin()
        kit.offload.drain()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_flush_that_cannot_open_a_file_is_retried(kit: Kit, error: int, caplog: pytest.LogCaptureFixture) -> None:
    log = kit.create(batches=150)
    calls = kit.disk.counts["descriptor"]
    kit.manager.flusher.request_flush(log)
    kit.manager.flusher.begin()
    kit.offload.drain()
    calls = kit.disk.counts["descriptor"] - calls
    assert calls > 5, "the epoch checkpoint, indexes, snapshots, the directory"
    for when in range(1, calls + 1):
        fill(log, 150)  # rolls
        snapshots = sorted(log.due_snapshots)
        no_descriptors(kit, when=when, error=error)
        ack = Waiting(kit, log)
        assert ack.codes in ([], [0]) and kit.offline == []
        if not ack.codes:
            assert sorted(log.due_snapshots) == snapshots and log.rolled, "all of it is in the next attempt"
            kit.advance(150)
            assert ack.codes == [], "the second attempt fails, too"
        kit.disk.heal()
        kit.advance(150)
        assert ack.codes == [0] and log.synced == log.log_end_offset and not log.rolled
    assert len(caplog.records) < 2 * calls
    again = kit.restart(clean=False)
    found = again.manager.find("t", 0)
    assert found is not None and offsets(found) == offsets(log)
    again.manager.unlock()


def test_error_of_an_fsync_counts_before_a_file_that_could_not_be_opened(kit: Kit) -> None:
    log = kit.create(batches=1)
    ack = Waiting(kit, log)
    assert ack.codes == [0]
    fill(log, 150)
    kit.disk.fail("descriptor", errno.EMFILE, path="t-0", when=3)
    kit.disk.fail("sync", errno.EIO, path=".index")
    assert Waiting(kit, log).codes == [STORAGE] and kit.offline == [log]


def test_flush_at_the_end_of_the_broker_without_descriptors_is_an_error(kit: Kit) -> None:
    log = kit.create(batches=1)
    no_descriptors(kit)
    ack = Waiting(kit, log)
    assert ack.codes == []
    kit.manager.finish_flushes()
    assert ack.codes == [STORAGE] and kit.offline == []
    kit.disk.heal()


def test_checkpoints_without_descriptors_are_written_the_next_time(kit: Kit) -> None:
    log = kit.create(batches=150)
    log.delete_records_before(3)
    before = kit.disk.counts["descriptor"]
    kit.manager.upkeep.checkpoint()
    kit.manager.upkeep.checkpoint_starts()
    kit.offload.drain()
    for when in range(1, kit.disk.counts["descriptor"] - before + 1):
        fill(log, 150)
        no_descriptors(kit, when=when)
        kit.manager.upkeep.checkpoint()
        kit.manager.upkeep.checkpoint_starts()
        kit.advance(150)
        assert kit.manager.is_online(log.root)
        kit.disk.heal()
    kit.advance(150)
    kit.manager.upkeep.checkpoint()
    kit.offload.drain()
    assert (Path(log.root) / "recovery-point-offset-checkpoint").read_text() == f"0\n1\nt 0 {log.active.base_offset}\n"


def test_deletion_without_descriptors_takes_nothing_offline(kit: Kit) -> None:
    log, other = kit.create(batches=150), kit.create("other", batches=2)
    no_descriptors(kit)
    kit.manager.delete(log)
    kit.advance(log.config.file_delete_delay_ms)
    assert kit.manager.is_online(other.root) and append(other) == 0
    kit.disk.heal()
    again = kit.restart()
    assert [path.name for path in Path(other.root).iterdir() if path.is_dir()] == ["other-0"]
    again.manager.unlock()


def test_partition_that_cannot_be_read_at_a_start_is_offline_alone(kit: Kit) -> None:
    kit.create("a", batches=150)
    kit.create("b", batches=150)
    kit.manager.close()
    kit.manager.unlock()
    again = Kit(*map(Path, kit.manager.directories()))
    again.disk.fail("descriptor", errno.EMFILE, path="/a-0", repeat=True)
    again.open()
    assert again.manager.find("a", 0) is None and again.manager.find("b", 0) is not None
    assert again.manager.is_online(str(kit.manager.directories()[0]))
    restarted = again.restart()
    found = restarted.manager.find("a", 0)
    assert found is not None and found.log_end_offset == 450
    restarted.manager.unlock()


@pytest.mark.parametrize("first", [errno.ENOSPC, errno.EMFILE])
def test_failed_truncation_takes_the_directory_offline_after_any_write_error(kit: Kit, first: int) -> None:
    log = kit.create(batches=2)
    kit.disk.fail("write", first, allowed=10, path=".log")
    kit.disk.fail("truncate", errno.EIO, path=".log")
    assert append(log) == STORAGE
    assert log.failed and not kit.manager.is_online(log.root)


def test_log_that_could_not_be_truncated_without_descriptors_leaves_no_clean_mark(kit: Kit) -> None:
    """The file holds a part of a refused batch: the next start must check its end."""
    log, other = kit.create(batches=2), kit.create("u", batches=2)
    kit.disk.fail("write", errno.ENOSPC, allowed=10, path="/t-0/")
    kit.disk.fail("truncate", errno.EMFILE, path="/t-0/")
    assert append(log) == STORAGE
    assert log.failed and kit.manager.is_online(log.root) and append(other) == 0
    again = kit.restart()
    assert not again.loaded[0].clean
    found = [again.manager.find(topic, 0) for topic in "tu"]
    assert [each and offsets(each) for each in found] == [[0, 3], [0, 3, 6]]
    assert found[0] is not None and append(found[0]) == 0
    again.manager.unlock()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("error", "step"), [(errno.EMFILE, "RLIMIT_NOFILE is "), (errno.ENFILE, "raise fs.file-max")])
def test_start_without_descriptors_is_refused_and_the_next_one_finds_all(
    tmp_path: Path, error: int, step: str, clean: bool
) -> None:
    """Whichever call of the start finds none: the error names the limit, no directory goes offline."""
    roots = [tmp_path / "first", tmp_path / "second"]
    kit = Kit(*roots).open()
    kit.create(batches=3)
    if clean:
        kit.manager.close()
    kit.manager.unlock()
    refused = 0
    for when in count(1):
        again = Kit(*roots)
        again.disk.fail("descriptor", error, when=when)
        try:
            again.open()
        except DirectoryError as failure:
            refused += 1
            assert "Too many open files" in str(failure) and step in str(failure) and str(failure).isprintable()
        assert again.manager.online() == [str(root) for root in roots] and again.offline == []
        again.manager.unlock()
        if again.disk.faults:  # the start made fewer calls than that
            break
    assert refused > 5 and again.manager.find("t", 0) is not None
