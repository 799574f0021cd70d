"""One fsync of a file at a time across all flushers: the kernel reports a failed writeback once per open file."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.storage.log.flush_job import JobSyncer
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import InlineOffload, SeededRandom
from tests.unit.storage.damage import CONFIG
from tests.unit.storage.test_manager import US, Kit, fill

STORAGE = 56


class TwoFlushers:
    """A manager whose acknowledgements and whose other flushes are jobs of different threads."""

    def __init__(self, path: Path) -> None:
        self.kit = Kit(path, config=replace(CONFIG, flush_ms=1))
        self.acks = InlineOffload()
        self.codes: list[int] = []
        self.kit.manager = LogManager(
            self.kit.disk, [str(path)], self.kit.clock, self.kit.offload, SeededRandom(1),
            syncs=JobSyncer(self.kit.disk, self.acks), on_offline=self.kit.offline.extend,
        )  # fmt: skip
        self.kit.manager.lock()
        self.kit.manager.claim(US)
        self.kit.manager.load(lambda topic: self.kit.config)

    def flush_in_background(self, log: Log) -> None:
        """Begin the flush that `flush.ms` asks for; its job does not run yet."""
        self.kit.offload.held = True
        self.kit.clock.advance(10)
        assert log.log_end_offset > log.synced
        self.kit.manager.upkeep.flush_due()
        assert self.kit.offload.waiting == 1

    def flush_for_ack(self, log: Log) -> None:
        self.kit.manager.flusher.request_flush(log, self.codes.append)
        self.kit.manager.flusher.begin()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoFlushers]:
    two = TwoFlushers(tmp_path / "data")
    yield two
    two.kit.manager.unlock()


def test_failed_writeback_is_reported_once_per_open_file(tmp_path: Path) -> None:
    """The twin does as Linux does (errseq_t): also to a file opened later, if no fsync has reported the error yet."""
    disk = FaultyDisk()
    path = str(tmp_path / "file")
    one, two = disk.open(path, create=True), disk.open(path)
    disk.lose_writes(path)
    late = disk.open(path)
    for file in (one, two, late):
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()
    disk.open(path).sync()


def test_ack_is_refused_when_another_flusher_received_the_error_of_the_file(two: TwoFlushers) -> None:
    log = two.kit.create()
    fill(log, 1)
    two.flush_in_background(log)
    two.flush_for_ack(log)
    two.kit.disk.lose_writes(log.active.opened.path)
    two.kit.offload.release()  # its fsync returns EIO; the outcome is not applied yet
    two.acks.drain()
    assert 0 not in two.codes, "the fsync of the same file returned 0, and the record is lost"
    two.kit.offload.drain()
    two.acks.drain()
    assert two.codes == [STORAGE] and two.kit.offline == [log]


def test_flush_for_an_ack_begins_when_the_other_one_has_ended(two: TwoFlushers) -> None:
    log, other = two.kit.create(), two.kit.create("other")
    fill(log, 1)
    fill(other, 1)
    two.flush_in_background(log)
    two.flush_for_ack(log)
    assert two.codes == []
    two.kit.offload.release()
    two.kit.offload.drain()
    two.acks.drain()
    assert two.codes == [0] and log.synced == log.log_end_offset


def test_logs_that_no_other_flusher_syncs_do_not_wait(two: TwoFlushers) -> None:
    log = two.kit.create()
    fill(log, 1)
    two.flush_in_background(log)
    two.kit.offload.held = False
    other = two.kit.create("other")
    fill(other, 1)
    two.flush_for_ack(other)
    two.acks.drain()
    assert two.codes == [0]


def test_error_of_one_flusher_fails_requests_of_the_others(two: TwoFlushers) -> None:
    log = two.kit.create()
    fill(log, 1)
    two.flush_in_background(log)
    two.flush_for_ack(log)
    two.kit.disk.fail("sync", errno.EIO, path=".log")
    two.kit.offload.release()
    two.kit.offload.drain()
    assert two.codes == [STORAGE]
