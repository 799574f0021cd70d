"""One partition's log: appending, rolling, reading, failing."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.records.batches import Batch, batches
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment_cache import SegmentCache
from kafkalite.testing.faulty_disk import FaultyDisk
from kafkalite.testing.virtual_clock import SeededRandom
from tests.kit.logs import new_log, read_log
from tests.unit.storage.damage import CONFIG, batch, filled


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FaultyDisk) -> Log:
    return new_log(disk, str(tmp_path / "t-0"), "t", 0, CONFIG)


def read_all(log: Log, offset: int = 0, max_bytes: int = 1000) -> list[Batch]:
    found: list[Batch] = []
    while regions := read_log(log, offset, max_bytes, log.log_end_offset):
        assert isinstance(regions, list)
        for region in regions:
            found += batches(region.read())
        offset = found[-1].last_offset + 1
    return found


def append(log: Log, *appended: bytearray, epoch: int = 0) -> list[int]:
    offsets = [log.append(each, None, epoch) for each in appended]
    assert log.write() == 0
    return offsets


def test_a_new_log_is_empty(log: Log) -> None:
    assert (log.log_start_offset, log.log_end_offset, log.next_offset, log.recovery_point, log.size) == (0, 0, 0, 0, 0)
    assert read_log(log, 0, 1000, 0) == []
    assert read_log(log, 1, 1000, 0) == KafkaErrorCode.OFFSET_OUT_OF_RANGE
    assert log.max_timestamp() is None
    assert log.look_up_time(0) is None


def test_append_patches_in_place_and_moves_only_next_offset(log: Log, disk: FaultyDisk) -> None:
    first, second = batch(3), batch(2)
    before = disk.counts.copy()
    assert [log.append(first, None, 7), log.append(second, None, 7)] == [0, 3]
    assert disk.counts == before
    assert (log.next_offset, log.log_end_offset) == (5, 0)
    assert log.pending_bytes == len(first) + len(second)
    assert (Batch(second).base_offset, Batch(second).leader_epoch) == (3, 7)
    Batch(second).check_crc()
    assert log.write() == 0
    assert (log.log_end_offset, log.pending_bytes, log.size) == (5, 0, len(first) + len(second))
    assert disk.counts["write"] == before["write"] + 2, "one write of the batches, one of the epoch checkpoint"


def test_a_pass_is_one_write(log: Log, disk: FaultyDisk) -> None:
    append(log, batch())
    before = disk.counts["write"]
    append(log, *(batch() for _ in range(20)))
    assert disk.counts["write"] == before + 1


def test_every_offset_is_found_in_its_batch(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert len(log.segments) > 2
    for offset in range(log.log_end_offset):
        regions = read_log(log, offset, 1, log.log_end_offset)
        assert isinstance(regions, list)
        found = Batch(regions[0].read())
        assert found.base_offset <= offset <= found.last_offset
        assert regions[0].length == found.size


def test_reads_are_whole_batches_within_max_bytes(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    size = len(batch())
    for limit in (size - 1, size, size + 1, 3 * size, 20 * size + 5):
        regions = read_log(log, 4, limit, log.log_end_offset)
        assert isinstance(regions, list)
        found = batches(regions[0].read())
        assert sum(each.size for each in found) == regions[0].length
        assert len(found) == max(1, limit // size)
    assert read_log(log, 4, size - 1, log.log_end_offset, min_one=False) == []
    assert [each.base_offset for each in read_all(log)] == list(range(0, log.log_end_offset, 3))


def test_nothing_at_or_above_the_end_is_read(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    for end in (0, 1, 2, 3, 4, 6, 200, 360):
        regions = read_log(log, 0, 1 << 30, end)
        last = batches(regions[0].read())[-1].last_offset if regions else -1  # type: ignore[index]
        assert last < end
    assert read_log(log, 7, 1 << 30, 8) == []


def test_segments_roll_by_size(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert all(segment.size <= CONFIG.segment_bytes for segment in log.segments)
    assert all(segment.size + len(batch()) > CONFIG.segment_bytes for segment in log.segments[:-1])
    files = {path.name for path in (tmp_path / "t-0").glob("*.log")}
    assert files == {f"{segment.base_offset:020d}.log" for segment in log.segments}


def test_a_batch_larger_than_a_segment_is_refused(log: Log) -> None:
    assert log.append(batch(1, size=30_000), None, 0) == -KafkaErrorCode.RECORD_LIST_TOO_LARGE
    assert log.next_offset == 0


def test_segments_roll_by_record_time(tmp_path: Path, disk: FaultyDisk) -> None:
    log = new_log(disk, str(tmp_path / "t-1"), "t", 1, replace(CONFIG, segment_ms=1_000))
    append(log, batch(1, 5_000), batch(1, 6_000), batch(1, 6_001), batch(1, 7_000), batch(1, 7_001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    append(log, batch(1, 100))
    assert len(log.segments) == 2, "an older record rolls nothing"


def test_segments_roll_when_an_index_is_full(tmp_path: Path, disk: FaultyDisk) -> None:
    config = replace(CONFIG, segment_bytes=1 << 30, segment_index_bytes=60, index_interval_bytes=100)
    log = new_log(disk, str(tmp_path / "t-1"), "t", 1, config)
    for number in range(40):
        append(log, batch(1, 1_000 * number))
    assert len(log.segments) > 5
    assert all(segment.indexes[1].count <= 5 for segment in log.segments)


def test_segments_roll_before_relative_offsets_overflow(log: Log) -> None:
    append(log, batch())
    log.start(2**31 + 5, 0)
    append(log, batch())
    assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 5]


def test_new_settings_count_from_the_next_append(log: Log) -> None:
    append(log, batch())
    log.config = replace(CONFIG, segment_bytes=len(batch()))
    append(log, batch(), batch())
    assert len(log.segments) == 3


@pytest.mark.parametrize("broken", [b"", b"short", bytes(batch())[:-1], bytes(batch()) + b"x", bytes(61)])
def test_append_of_anything_but_one_batch_is_rejected(log: Log, broken: bytes) -> None:
    assert log.append(bytearray(broken), None, 0) == -KafkaErrorCode.INVALID_RECORD
    assert (log.next_offset, log.pending_bytes) == (0, 0)


def test_a_read_only_buffer_is_refused(log: Log) -> None:
    with pytest.raises(BufferError):
        log.append(bytes(batch()), None, 0)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("allowed", [0, 1, 60, 400])
def test_a_failed_write_leaves_no_half_batch(log: Log, disk: FaultyDisk, error: int, allowed: int) -> None:
    append(log, batch())
    size = log.size
    disk.fail("write", error, path=".log", allowed=allowed)
    assert log.append(batch(), None, 0) == 3
    assert log.append(batch(), None, 0) == 6
    assert log.write() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.next_offset, log.pending_bytes, log.size) == (3, 3, 0, size)
    assert log.active.opened.size() == size
    assert not log.failed
    assert append(log, batch()) == [3], "service returns by itself"
    assert [each.base_offset for each in read_all(log)] == [0, 3]


@pytest.mark.parametrize("operation", ["write", "open", "truncate"])
@pytest.mark.parametrize("when", range(1, 8))
def test_failed_roll_is_undone(tmp_path: Path, log: Log, disk: FaultyDisk, operation: str, when: int) -> None:
    append(log, *(batch(3, 1_000 * number) for number in range(10)), epoch=1)
    log.config = replace(CONFIG, segment_bytes=log.size + 500)
    disk.fail(operation, errno.ENOSPC, when=when)
    offsets = [log.append(batch(3, 20_000 + number), None, 2) for number in range(20)]
    if log.write():
        assert (log.log_end_offset, log.next_offset, len(log.segments)) == (30, 30, 1)
        assert log.epochs.entries == [(1, 0)]
        assert [path.name for path in (tmp_path / "t-0").glob("*.log")] == ["00000000000000000000.log"]
        disk.heal()
        offsets = append(log, *(batch(3, 20_000 + number) for number in range(20)), epoch=2)
    assert offsets == list(range(30, 90, 3))
    assert log.epochs.entries == [(1, 0), (2, 30)]
    assert [each.base_offset for each in read_all(log)] == list(range(0, 90, 3))


def test_unexpected_exception_in_a_write_leaves_no_gap(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, batch())
    log.config = replace(CONFIG, segment_bytes=log.size * 3)
    for _ in range(4):
        log.append(batch(), None, 0)

    def roll(base_offset: int) -> None:
        raise RuntimeError(f"no segment at {base_offset}")

    with monkeypatch.context() as patches:
        patches.setattr(log, "roll", roll)
        with pytest.raises(RuntimeError, match="no segment at 9"):
            log.write()
    assert (log.log_end_offset, log.next_offset, log.failed) == (3, 3, False)
    assert append(log, batch()) == [3]
    assert [each.base_offset for each in read_all(log)] == [0, 3]


def test_a_segment_file_made_by_a_failed_roll_is_removed(tmp_path: Path, log: Log, disk: FaultyDisk) -> None:
    append(log, *(batch() for _ in range(40)))
    log.config = replace(CONFIG, segment_bytes=log.size)
    (tmp_path / "t-0" / "00000000000000000120.index").write_bytes(b"left over")
    disk.fail("remove", errno.EIO, path="120.index")
    log.append(batch(), None, 0)
    assert log.write() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert [path.name for path in (tmp_path / "t-0").glob("*120*")] == []
    assert append(log, batch()) == [120]


def test_a_log_that_cannot_be_truncated_is_offline(log: Log, disk: FaultyDisk) -> None:
    append(log, batch())
    disk.fail("write", errno.EIO, path=".log", allowed=10)
    disk.fail("truncate", errno.EIO)
    log.append(batch(), None, 0)
    assert log.write() == KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert log.failed
    assert log.append(batch(), None, 0) == -KafkaErrorCode.KAFKA_STORAGE_ERROR
    assert len(read_all(log)) == 1, "reading goes on"


def test_look_up_by_time(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert log.look_up_time(0) == (0, 0, 0)
    for number in (0, 1, 17, 60, 119):
        assert log.look_up_time(1_000 * number + 1) == (1_000 * number + 1, 3 * number + 1, number // 50)
        assert log.look_up_time(1_000 * number - 1)[1] == 3 * number  # type: ignore[index]
    assert log.look_up_time(119_003) is None
    assert log.max_timestamp() == (119_002, 359, 2)


def test_look_up_by_time_where_time_goes_back(log: Log) -> None:
    append(log, batch(1, 5_000), batch(1, 1_000), batch(1, 3_000), batch(1, 9_000))
    assert log.look_up_time(900) == (5_000, 0, 0)
    assert log.look_up_time(5_001) == (9_000, 3, 0)
    log.delete_records_before(1)
    assert log.look_up_time(900) == (1_000, 1, 0)


def test_records_below_the_log_start_are_not_read(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert log.delete_records_before(100) == 0
    assert (log.log_start_offset, log.recovery_point, log.epoch_at(100)) == (100, 100, 0)
    assert read_log(log, 99, 1000, 360) == KafkaErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(50) == 0
    assert log.log_start_offset == 100
    assert log.delete_records_before(361) == KafkaErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(-1) == KafkaErrorCode.OFFSET_OUT_OF_RANGE
    assert log.look_up_time(0)[1] == 100  # type: ignore[index]


def test_epochs_and_where_they_end(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    assert log.epochs.entries == [(0, 0), (1, 150), (2, 300)]
    ends = [log.epoch_end_offset(epoch) for epoch in (-1, 0, 1, 2, 3)]
    assert ends == [(-1, -1), (0, 150), (1, 300), (2, 360), (-1, -1)]


@pytest.mark.parametrize("offset", [0, 1, 3, 149, 150, 200, 359])
def test_truncation(tmp_path: Path, offset: int) -> None:
    log = filled(tmp_path / "t-0")
    log.truncate_to(log.begin_truncation(offset))
    end = offset - offset % 3
    assert (log.log_end_offset, log.next_offset) == (end, end), "a batch goes whole"
    kept = read_all(log)
    assert [each.base_offset for each in kept] == list(range(0, end, 3))
    assert append(log, batch(), epoch=5) == [end]
    assert log.epochs.entries[-1] == (5, end)
    assert log.size == sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log"))


def test_a_region_outlives_the_deletion_of_its_segment(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    regions = read_log(log, 0, 1 << 20, 360)
    assert isinstance(regions, list)
    expected = regions[0].read()
    for segment in log.drop_first(2):
        segment.mark_deleted()
        segment.unload()
    for path in (tmp_path / "t-0").glob("*.deleted"):
        path.unlink()
    assert regions[0].read() == expected
    assert log.log_start_offset == log.segments[0].base_offset
    assert read_log(log, 0, 1000, 360) == KafkaErrorCode.OFFSET_OUT_OF_RANGE


def test_closed_segments_are_unloaded_within_the_budget(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    cache = SegmentCache(files_max=2)
    for segment in log.segments[:-1]:
        segment.unload()
    log.use_cache(cache)
    assert [each.base_offset for each in read_all(log)] == list(range(0, 360, 3))
    assert len(cache) == 2
    assert sum(segment.file is not None for segment in log.segments) == 3


def test_the_segment_just_loaded_is_never_the_one_unloaded(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    for segment in log.segments[:-1]:
        segment.unload()
    log.use_cache(SegmentCache(files_max=1))
    for _ in range(3):
        for offset in (0, 1, 200, 0):
            assert isinstance(read_log(log, offset, 1, 360), list)


def test_an_index_that_went_bad_is_built_again(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    first = log.segments[0]
    offsets, times = (index.tobytes() for index in first.indexes)
    assert first.closed
    for suffix, garbage in ((".index", b"\x00" * 16), (".timeindex", b"seven!!")):
        first.unload()
        Path(first.path(suffix)).write_bytes(garbage)
        assert [index.tobytes() for index in first.indexes] == [offsets, times]
        assert Path(first.path(suffix)).read_bytes() != garbage


def test_close_leaves_indexes_snapshot_and_recovery_point(tmp_path: Path, disk: FaultyDisk) -> None:
    log = filled(tmp_path / "t-0", disk=disk)
    log.close()
    assert log.recovery_point == log.log_end_offset == 360
    assert (tmp_path / "t-0" / "00000000000000000360.snapshot").exists()
    for segment in log.segments:
        assert Path(segment.path(".index")).read_bytes() == segment.indexes[0].tobytes()
    assert disk.counts["sync"] >= len(log.segments)


def test_default_settings_are_kafkas(tmp_path: Path, disk: FaultyDisk) -> None:
    log = new_log(disk, str(tmp_path / "d-0"), "d", 0, TopicConfig())
    assert (log.segment_bytes, log.segment_ms, log.index_interval_bytes) == (1 << 30, 604_800_000, 4096)


def test_each_segment_rolls_up_to_the_jitter_earlier(log: Log) -> None:
    """Segments of many partitions that began together shall not all roll together."""
    log.use_random(SeededRandom(7))
    log.config = replace(CONFIG, segment_ms=1000, segment_jitter_ms=400, segment_bytes=1 << 30)
    drawn, at_ms = {log.segment_ms}, 1_000_000
    for _ in range(30):
        age_ms = log.segment_ms
        append(log, batch(1, at_ms), batch(1, at_ms + age_ms))
        segments = len(log.segments)
        append(log, batch(1, at_ms + age_ms + 1))
        assert len(log.segments) == segments + 1
        drawn.add(log.segment_ms)
        at_ms += 10_000_000
        log.roll(log.log_end_offset)
        drawn.add(log.segment_ms)
    assert all(600 < ms <= 1000 for ms in drawn) and len(drawn) > 10
    log.config = replace(CONFIG, segment_ms=1000)
    assert log.segment_ms == 1000
    log.config = replace(CONFIG, segment_ms=5, segment_jitter_ms=400)
    assert 0 < log.segment_ms <= 5
