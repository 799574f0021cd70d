"""The cleaner with disk errors: a transient error is retried, any other takes the log directory offline."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.storage import names
from kafkalite.storage.checkpoints import CLEANER_OFFSETS
from tests.unit.storage.test_cleaner import EAGER, Kit, plain, records


def test_a_full_disk_leaves_the_log_as_it_is_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    kit.disk.fail("write", errno.ENOSPC, path=".cleaned", allowed=100)
    kit.start()
    assert "compaction failed, retrying later" in caplog.text
    assert kit.manager.is_online(str(tmp_path))
    assert not list(Path(log.directory).glob("*.cleaned"))
    assert log.segments[0].base_offset == 0
    assert len(records(log)) == 100
    kit.run()
    assert kit.checkpoint()["t", 0] == log.active.base_offset


def test_a_full_disk_at_the_swap_leaves_the_old_segments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    kit.disk.fail("rename", errno.ENOSPC, path=".index.cleaned")
    kit.start()
    assert "compaction failed, retrying later" in caplog.text
    assert kit.manager.is_online(str(tmp_path))
    assert not [*Path(log.directory).glob("*.cleaned"), *Path(log.directory).glob("*.swap")]
    assert len(records(log)) == 100
    kit.run()
    assert kit.checkpoint()["t", 0] == log.active.base_offset


def test_its_checkpoint_waits_for_space(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    kit.disk.fail("write", errno.ENOSPC, path=CLEANER_OFFSETS, repeat=True)
    kit.start()
    assert "write failed, retrying" in caplog.text
    assert kit.manager.is_online(str(tmp_path))
    assert kit.checkpoint() == {}
    kit.disk.heal()
    kit.run()
    assert kit.checkpoint()["t", 0] == log.active.base_offset


def test_no_descriptor_to_look_at_a_segment_is_no_damage(tmp_path: Path) -> None:
    kit = Kit(tmp_path, config=replace(EAGER, min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=1))
    log = plain(kit, range(100))
    for segment in log.segments[:-1]:
        kit.manager.cache.forget(segment)
        segment.unload()
        segment.first_timestamp = -1
    kit.disk.fail("open", errno.EMFILE, path=".log")
    kit.start()
    assert kit.disk.faults == [], "it was looked at"
    assert kit.manager.is_online(str(tmp_path))
    kit.run()
    assert kit.checkpoint()["t", 0] == log.active.base_offset


@pytest.mark.parametrize("operation", ["read", "write", "sync", "rename", "sync_dir", "open"])
def test_an_error_of_the_disk_takes_the_directory_offline(tmp_path: Path, operation: str) -> None:
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    kit.disk.fail(operation, errno.EIO, path=log.directory)
    kit.start()
    assert not kit.manager.is_online(str(tmp_path))


def test_dirty_segments_are_flushed_before_a_record_is_dropped(tmp_path: Path) -> None:
    """A power cut may not take the new value of a key whose old one was compacted away; nor may a start take for a
    loss what the cleaner did: its checkpoint names the log before."""
    kit = Kit(tmp_path)
    log = plain(kit, range(100))
    dirty = {segment.path(names.LOG) for segment in log.segments[:-1]}
    kit.disk.trace.clear()
    kit.start()
    trace = list(kit.disk.trace)
    first = next(at for at, (_, path) in enumerate(trace) if ".cleaned" in path)
    assert {path for operation, path in trace[:first] if operation == "sync"} >= dirty
    assert any(operation == "rename" and CLEANER_OFFSETS in path for operation, path in trace[:first])


def test_compaction_without_descriptors_is_tried_again(tmp_path: Path) -> None:
    """From each call that opens a file on, all later ones fail until the next check."""
    calls, when = 1, 0
    while when < calls:
        kit = Kit(tmp_path / str(when))
        log = plain(kit, range(100))
        before = kit.disk.counts["descriptor"]
        if when:
            kit.disk.fail("descriptor", errno.EMFILE, when=when, repeat=True)
        kit.start()
        assert kit.manager.is_online(log.root) and not log.failed and kit.cleaner.uncleanable == {}
        kit.disk.heal()
        if not when:
            calls = kit.disk.counts["descriptor"] - before
            assert calls > 10
        kit.run()
        kit.run()
        assert kit.checkpoint()["t", 0] == log.active.base_offset, f"call {when} of {calls}"
        assert not [*Path(log.directory).glob("*.cleaned"), *Path(log.directory).glob("*.swap")]
        assert len({record.key for record in records(log)}) == 10
        kit.manager.unlock()
        when += 1
