"""Appends of a follower: the batches of a leader as they are, in every portion that a response may have."""

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.wire.crc32c import checksum
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.logs import new_log, read_log
from tests.kit.seeds import chosen_seed
from tests.unit.storage.damage import CONFIG, batch
from tests.unit.storage.transactional import History, producers_of

SMALL = replace(CONFIG, segment_bytes=1_500, index_interval_bytes=100)
OK = 0


def follower(tmp_path: Path, name: str = "f-0", disk: Disk | None = None) -> Log:
    return new_log(disk or Disk(), str(tmp_path / name), "f", 0, SMALL)


def sent(base: int, count: int = 3, epoch: int = 0, **fields: int) -> bytes:
    """A batch as a leader sends it."""
    return bytes(batch(count, 1_000 + base, 1, base_offset=base, leader_epoch=epoch, **fields))


def replicate(log: Log, *batches: bytes) -> None:
    result = log.append_replicated(b"".join(batches))
    assert (result.error, result.reason, result.count) == (OK, "", len(batches))
    assert log.write() == OK


def bytes_of(log: Log) -> bytes:
    return b"".join(segment.opened.pread(segment.size, 0) for segment in log.segments)


def offsets_of(log: Log) -> list[tuple[int, int]]:
    return [(each.base_offset, each.last_offset) for segment in log.segments for each in segment.batches()]


def test_a_follower_has_the_bytes_epochs_and_producers_of_its_leader(tmp_path: Path) -> None:
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    rng = random.Random(seed)
    leader = new_log(Disk(), str(tmp_path / "l-0"), "l", 0, SMALL)
    history = History(leader, seed)
    for _ in range(120):
        history.step()
    assert leader.write() == OK
    response = memoryview(bytes_of(leader)).toreadonly()
    log, at = follower(tmp_path), 0
    while at < len(response):
        result = log.append_replicated(response[at : at + rng.randint(1, 4_000)])
        assert (result.error, result.next_offset) == (OK, log.next_offset)
        at += result.size
        if rng.random() < 0.5:
            assert log.write() == OK
    assert log.write() == OK
    assert bytes_of(log) == bytes(response) and log.log_end_offset == leader.log_end_offset
    assert log.epochs.entries == leader.epochs.entries
    assert producers_of(log) == producers_of(leader) and log.producers.pack() == leader.producers.pack()
    end = leader.log_end_offset
    assert log.aborted_transactions(0, end) == leader.aborted_transactions(0, end)
    assert log.last_stable_offset(end) == leader.last_stable_offset(end)


def test_epochs_begin_with_the_batches(tmp_path: Path) -> None:
    log = follower(tmp_path)
    replicate(log, sent(0, epoch=2), sent(3, epoch=2), sent(6, epoch=5), sent(9, epoch=7))
    assert log.epochs.entries == [(2, 0), (5, 6), (7, 9)]
    assert [log.epoch_end_offset(epoch) for epoch in (1, 2, 4, 5, 7)] == [(1, 0), (2, 6), (2, 6), (5, 9), (7, 12)]


def test_gaps_of_compaction_are_kept_and_each_segment_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    log = follower(tmp_path)
    batches = [sent(base) for base in range(0, 800, 10)]
    replicate(log, *batches[:25])
    replicate(log, *batches[25:])
    assert offsets_of(log) == [(base, base + 2) for base in range(0, 800, 10)]
    ends = [segment.next_offset() for segment in log.segments]
    assert len(ends) > 3 and [segment.base_offset for segment in log.segments[1:]] == ends[:-1]
    for offset in range(793):
        regions = read_log(log, offset, 1, log.log_end_offset)
        assert isinstance(regions, list)
        base = struct.unpack(">q", regions[0].read()[:8])[0]
        assert base == (offset // 10 if offset % 10 < 3 else offset // 10 + 1) * 10


def test_a_gap_beyond_the_indexes_begins_a_segment_behind_it(tmp_path: Path) -> None:
    log = follower(tmp_path)
    replicate(log, sent(0), sent(2**31))
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    replicate(log, sent(2**33))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 2**33]
    assert log.log_end_offset == 2**33 + 3


def test_an_incomplete_last_batch_is_dropped(tmp_path: Path) -> None:
    log, whole, half = follower(tmp_path), sent(0), sent(3)
    for size in range(len(half)):
        assert log.append_replicated(half[:0] + sent(log.next_offset) + half[:size]).size == len(whole)
        assert log.write() == OK
    nothing = log.append_replicated(b"")
    assert (nothing.error, nothing.count, nothing.size, nothing.next_offset) == (OK, 0, 0, log.log_end_offset)
    assert log.queued == 0 and log.write() == OK


def test_a_batch_above_the_segment_size_has_a_segment_of_its_own(tmp_path: Path) -> None:
    log = follower(tmp_path)
    large = bytes(batch(3, 1_000, 2_000, base_offset=3, leader_epoch=0))
    assert len(large) > SMALL.segment_bytes
    replicate(log, sent(0), large, sent(6))
    assert [(segment.base_offset, segment.size) for segment in log.segments] == [
        (0, len(sent(0))),
        (3, len(large)),
        (6, len(sent(6))),
    ]


def with_header(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def resealed(data: bytes, at: int, value: bytes) -> bytes:
    """Change a field below the CRC, and make the CRC right."""
    data = with_header(data, at, value)
    return with_header(data, 17, struct.pack(">I", checksum(data[21:])))


BAD = {
    "flipped bit": (with_header(sent(6), 70, b"\xff"), KafkaErrorCode.CORRUPT_MESSAGE, 6, "wrong CRC"),
    "negative length": (with_header(sent(6), 8, b"\xff\xff\xff\xff"), KafkaErrorCode.CORRUPT_MESSAGE, 6, "11 bytes"),
    "short length": (with_header(sent(6), 8, b"\0\0\0\x2f"), KafkaErrorCode.CORRUPT_MESSAGE, 6, "59 bytes"),
    "unknown magic": (with_header(sent(6), 16, b"\x03"), KafkaErrorCode.CORRUPT_MESSAGE, 6, "magic 3"),
    "old format": (with_header(sent(6), 16, b"\1"), KafkaErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, 6, "format 1"),
    "repeated": (sent(3), KafkaErrorCode.OFFSET_OUT_OF_RANGE, 3, "offsets 3 to 5 where 6 is next"),
    "overlapping": (sent(5), KafkaErrorCode.OFFSET_OUT_OF_RANGE, 5, "offsets 5 to 7 where 6 is next"),
    "older epoch": (sent(6, epoch=3), KafkaErrorCode.CORRUPT_MESSAGE, 6, "leader epoch 3 at offset 6 follows 4"),
    "negative delta": (resealed(sent(6, epoch=4), 23, b"\xff" * 4), KafkaErrorCode.CORRUPT_MESSAGE, 6, "delta -1"),
    "largest offset": (
        with_header(sent(0, epoch=4), 0, struct.pack(">q", 2**63 - 2)),
        KafkaErrorCode.CORRUPT_MESSAGE,
        2**63 - 2,
        "delta 2",
    ),
    "negative offset": (
        with_header(sent(0, epoch=4), 0, b"\xff" * 8),
        KafkaErrorCode.CORRUPT_MESSAGE,
        -1,
        "offset -1",
    ),
}


@pytest.mark.parametrize(("bad", "code", "offset", "reason"), BAD.values(), ids=BAD)
def test_a_bad_batch_and_those_behind_it_are_not_appended(
    tmp_path: Path, bad: bytes, code: int, offset: int, reason: str
) -> None:
    log = follower(tmp_path)
    replicate(log, sent(0, epoch=4))
    result = log.append_replicated(sent(3, epoch=4) + bad + sent(9, epoch=4))
    assert (result.error, result.offset, result.restart_offset) == (code, offset, -1) and reason in result.reason
    assert (result.count, result.size, result.next_offset) == (1, len(sent(3)), 6)
    assert log.write() == OK
    assert offsets_of(log) == [(0, 2), (3, 5)] and log.epochs.entries == [(4, 0)]
    replicate(log, sent(6, epoch=4))


def test_the_buffer_is_released_once_it_is_written_or_rejected(tmp_path: Path) -> None:
    log = follower(tmp_path)
    received = bytearray(sent(0) + sent(3))
    assert log.append_replicated(received).count == 2
    with pytest.raises(BufferError):
        received.clear()
    assert log.write() == OK
    received.clear()
    rejected = bytearray(sent(3))
    assert log.append_replicated(rejected).error == KafkaErrorCode.OFFSET_OUT_OF_RANGE
    rejected.clear()
    abandoned = bytearray(sent(6))
    assert log.append_replicated(abandoned).count == 1
    log.abandon()
    abandoned.clear()
    assert (log.next_offset, log.queued) == (6, 0)


def test_a_failed_write_is_undone_with_its_epochs_and_producers(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = follower(tmp_path, disk=disk)
    fields = {"producer_id": 5, "producer_epoch": 0}
    replicate(log, sent(0, epoch=1, base_sequence=0, **fields))
    before = log.producers.pack(), list(log.epochs.entries), offsets_of(log)
    disk.fail("write", 28, path=".log")
    more = [sent(base, epoch=2, base_sequence=base, **fields) for base in range(3, 60, 3)]
    assert log.append_replicated(b"".join(more)).count == len(more)
    assert log.write() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert (log.producers.pack(), log.epochs.entries, offsets_of(log)) == before
    replicate(log, *more)
    assert log.epochs.entries == [(1, 0), (2, 3)]


def test_a_log_that_is_offline_rejects_all(tmp_path: Path) -> None:
    log = follower(tmp_path)
    log.fail()
    result = log.append_replicated(sent(0))
    assert (result.error, result.count) == (KafkaErrorCode.KAFKA_STORAGE_ERROR, 0)


def test_no_append_while_a_job_changes_the_files(tmp_path: Path) -> None:
    log = follower(tmp_path)
    log.hold_appends()
    for append in (lambda: log.append_replicated(sent(0)), lambda: log.append(batch(), None, 0)):
        with pytest.raises(RuntimeError, match="appends wait"):
            append()
    log.release_appends()
    replicate(log, sent(0))
