"""Idempotent producers, judged from batch headers (KIP-98)."""

import errno
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.producer_snapshots import BadSnapshot, read_snapshot, snapshot_offsets, write_packed
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.logs import new_log
from tests.unit.storage.damage import CONFIG, batch

OUT_OF_ORDER = -KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = -KafkaErrorCode.INVALID_PRODUCER_EPOCH
LAST = 2**31 - 1


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return new_log(Disk(), str(tmp_path / "t-0"), "t", 0, CONFIG)


def send(log: Log, sequence: int, count: int = 3, epoch: int = 0, producer: int = 7) -> int:
    return log.append(batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence), None, 0)


def test_in_order_is_appended_and_repeats_get_their_first_offset(log: Log) -> None:
    assert [send(log, 3 * number) for number in range(7)] == [0, 3, 6, 9, 12, 15, 18]
    assert log.write() == 0
    assert [send(log, 3 * number) for number in range(2, 7)] == [6, 9, 12, 15, 18]
    assert log.producers.duplicates == 5
    assert (log.next_offset, log.pending_bytes) == (21, 0)
    assert send(log, 3) == OUT_OF_ORDER, "beyond the last five"
    assert send(log, 21) == 21


def test_a_repeat_within_one_pass(log: Log) -> None:
    assert [send(log, 0), send(log, 0), send(log, 3)] == [0, 0, 3]


def test_gaps_are_refused(log: Log) -> None:
    send(log, 0)
    assert send(log, 4) == OUT_OF_ORDER
    assert send(log, 2) == OUT_OF_ORDER
    assert send(log, 3) == 3


def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    assert send(log, 4711) == 0
    assert send(log, 4714) == 3


def test_a_new_epoch_begins_at_zero_and_fences_the_old(log: Log) -> None:
    send(log, 0)
    assert send(log, 5, epoch=1) == OUT_OF_ORDER
    assert send(log, 0, epoch=1) == 3
    assert send(log, 3, epoch=0) == FENCED
    assert send(log, 0, epoch=0) == FENCED
    assert send(log, 3, epoch=1) == 6


def test_sequences_begin_again_after_the_last(log: Log) -> None:
    assert send(log, LAST - 1, count=3) == 0
    assert send(log, LAST - 1, count=3) == 0
    assert send(log, 1, count=2) == 3
    assert send(log, LAST, count=1) == OUT_OF_ORDER


def test_producers_do_not_know_each_other(log: Log) -> None:
    assert [send(log, 0, producer=1), send(log, 0, producer=2), send(log, 3, producer=1)] == [0, 3, 6]


def test_failed_write_undoes_producer_changes(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = new_log(disk, str(tmp_path / "t-0"), "t", 0, CONFIG)
    send(log, 0)
    assert log.write() == 0
    disk.fail("write", errno.ENOSPC, path=".log", allowed=5)
    assert [send(log, 3), send(log, 6), send(log, 0, producer=8)] == [3, 6, 9]
    assert log.write() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert [each.producer_id for each in log.producers if each.last_offset >= 0] == [7]
    assert send(log, 6) == OUT_OF_ORDER
    assert send(log, 3) == 3
    assert send(log, 0) == 0


def test_truncation_removes_producer_batches(log: Log) -> None:
    for number in range(4):
        send(log, 3 * number)
    send(log, 0, producer=8)
    log.write()
    log.truncate_to(log.begin_truncation(6))
    assert sorted(log.producers.entries) == [7]
    assert send(log, 6) == 6


def test_silent_producers_expire_for_any_timestamps(log: Log) -> None:
    send(log, 0)
    log.producers.expire(10_000, 500)
    log.producers.expire(10_499, 500)
    assert len(log.producers) == 1
    send(log, 3)
    log.producers.expire(11_000, 500)
    log.producers.expire(11_499, 500)
    assert len(log.producers) == 1, "its last append was first seen at 11 000"
    log.producers.expire(11_500, 500)
    assert len(log.producers) == 0
    assert send(log, 0) == 6, "unknown again, it may begin anywhere"


def test_an_open_transaction_keeps_its_producer(log: Log) -> None:
    log.append(batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), None, 0)
    for now_ms in (1_000, 9_000):
        log.producers.expire(now_ms, 1)
    assert len(log.producers) == 1


def test_undone_append_does_not_extend_a_producer(log: Log) -> None:
    send(log, 0)
    assert log.write() == 0
    log.producers.expire(1_000, 500)
    send(log, 3)
    log.take_back(OSError(errno.EIO, "told by the test"))
    log.producers.expire(1_500, 500)
    assert len(log.producers) == 0


def test_snapshot_there_and_back(tmp_path: Path, log: Log) -> None:
    send(log, 0)
    send(log, 3)
    send(log, 0, producer=9, epoch=4)
    write_packed(Disk(), str(tmp_path), 9, log.producers.pack())
    assert snapshot_offsets(Disk(), str(tmp_path)) == [9]
    found = {entry.producer_id: entry for entry in read_snapshot(Disk(), str(tmp_path / f"{9:020d}.snapshot"))}
    assert found[7].seen() == log.producers.entries[7].seen()
    assert [each[:2] for each in found[7].seen()] == [(2, 2), (5, 5)]
    assert (found[9].epoch, found[9].last_offset, found[9].coordinator_epoch) == (4, 8, -1)


@pytest.mark.parametrize("cut", range(0, 56, 5))
def test_a_damaged_snapshot_is_none(tmp_path: Path, log: Log, cut: int) -> None:
    send(log, 0)
    write_packed(Disk(), str(tmp_path), 3, log.producers.pack())
    path = tmp_path / f"{3:020d}.snapshot"
    whole = path.read_bytes()
    for damaged in (whole[:cut], whole[:cut] + bytes([whole[cut] ^ 4]) + whole[cut + 1 :], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(BadSnapshot):
            read_snapshot(Disk(), str(path))


@pytest.mark.parametrize("rejected_by", ["write", "an exception before the log"])
def test_batches_behind_a_rejected_first_one_wait_for_its_repetition(tmp_path: Path, rejected_by: str) -> None:
    disk = FaultyDisk()
    log = new_log(disk, str(tmp_path / "t-0"), "t", 0, CONFIG)
    if rejected_by == "write":
        disk.fail("write", errno.ENOSPC)
        assert send(log, 0) == 0
        assert log.write() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    else:
        log.expect_first(batch(3, producer_id=7, producer_epoch=0, base_sequence=0))
    assert (log.queued, log.next_offset) == (0, 0)
    assert send(log, 3) == OUT_OF_ORDER, "an unknown producer may begin at any sequence"
    assert log.pack_producers() == bytes(4), "no producer"
    assert [send(log, 0), send(log, 3)] == [0, 3]
    assert log.write() == 0
    assert send(log, 6, producer=8) == 6, "of another producer nothing was rejected"


def test_abandoned_batches_leave_nothing(log: Log) -> None:
    assert send(log, 0) == 0
    assert log.write() == 0
    assert [send(log, 3), send(log, 6)] == [3, 6]
    log.abandon()
    assert (log.queued, log.pending_bytes, log.next_offset, log.log_end_offset) == (0, 0, 3, 3)
    assert [send(log, 3), send(log, 6)] == [3, 6]
    assert log.write() == 0 and log.log_end_offset == 9
