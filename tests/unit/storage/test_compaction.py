"""The two passes of compaction in C: held to a plain oracle over random histories, and refused bad bytes."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from kafkalite._speedups.compaction.compactor import Worker
from kafkalite._speedups.compaction.input import CleaningAbortedError, Transactions, UncleanableSegmentError
from kafkalite._speedups.compaction.offset_map import OffsetMap
from kafkalite._speedups.compaction.tombstone_retention import RetentionRules
from kafkalite._speedups.records.batch_builder import Builder
from kafkalite._speedups.records.batch_patches import set_base_offset, set_log_append_time
from kafkalite._speedups.records.batches import Batch
from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.recovery_scan import scan
from kafkalite.storage import names
from kafkalite.storage.log.segment import Segment
from tests.kit.logs import new_log
from tests.kit.seeds import chosen_seed
from tests.oracles.compactor import CONFIG, History, Kept, Oracle, batches_of, facts, written

SEED = chosen_seed()
RETENTION = 10_000


def worker(buffer_bytes: int = 4096) -> Worker:
    return Worker(OffsetMap(bytes(16), 1 << 20), buffer_bytes)


def cleaned(
    directory: str, segments: list[Segment], works: Worker, rules: RetentionRules, aborted: Transactions
) -> Segment:
    """Clean a group of segments into one."""
    target = Segment(segments[0].base_offset, directory, Disk(), CONFIG)
    target.suffix = names.CLEANED
    target.create()
    for segment in segments:
        works.clean_segment(
            segment.opened, segment.size, segment.base_offset, target, rules, aborted,
            CONFIG.index_interval_bytes, segment is segments[-1],
        )  # fmt: skip
    target.finish()
    return target


def mapped(works: Worker, segments: list[Segment], start: int, aborted: list[tuple[int, int, int, int]]) -> None:
    works.offsets.clear(10_000)
    transactions = Transactions(aborted)
    for segment in segments:
        assert works.map_segment(segment.opened, 0, segment.size, segment.base_offset, start, transactions)


def swapped(history: History, target: Segment) -> list[Segment]:
    """The new segment in the place of all closed ones, as the next round finds it."""
    for segment in history.log.segments[:-1]:
        segment.mark_deleted()
    path = Path(target.path(names.LOG))
    target.suffix = ""
    path.rename(target.path(names.LOG))
    history.log.segments = (target, history.log.segments[-1])
    return [target]


@pytest.mark.parametrize("repeat", range(12))
def test_two_cleanings_match_the_oracle(tmp_path: Path, repeat: int) -> None:
    seed = SEED + repeat
    print(f"KAFKALITE_SEED={seed}")
    history = written(tmp_path / "t-0", seed, 250)
    segments = list(history.log.segments[:-1])
    assert len(segments) > 5
    last = list(history.last.values())[: history.random.randint(0, 6)]
    now = 5_000_000
    upper = history.log.log_end_offset
    works = worker()
    for later in (0, RETENTION - 1, RETENTION):
        oracle = Oracle(history.aborted, last, now + later, RETENTION)
        found = batches_of(segments)
        expected = oracle.clean(found, 0, upper)
        mapped(works, segments, 0, history.aborted)
        assert works.offsets.latest_offset == upper - 1
        aborted = Transactions(history.aborted)
        rules = RetentionRules(now + later, RETENTION, upper, last)
        target = cleaned(str(tmp_path / "t-0"), segments, works, rules, aborted)
        assert [facts(batch) for batch in batches_of([target])] == expected
        assert sorted(aborted.take_kept()) == sorted(oracle.kept_aborted)
        check_indexes(target)
        check_codecs(found, batches_of([target]))
        history.aborted = oracle.kept_aborted
        segments = swapped(history, target)


def check_indexes(target: Segment) -> None:
    """They are byte for byte what a scan makes."""
    again = Segment(target.base_offset, target.directory, Disk(), CONFIG)
    again.suffix = target.suffix
    again.file = again.disk.open(again.path(names.LOG))
    again.empty_indexes()
    assert scan(again, 0, again.file.size(), CONFIG.index_interval_bytes).whole
    if again.max_timestamp >= 0:
        again.indexes[1].append(again.max_timestamp, again.max_timestamp_offset)
    assert [index.tobytes() for index in again.indexes] == [index.tobytes() for index in target.indexes]


def check_codecs(before: list[Batch], after: list[Batch]) -> None:
    codecs = {batch.base_offset: batch.codec for batch in before}
    assert all(batch.codec == codecs[batch.base_offset] for batch in after if batch.records_count)


def test_only_the_dirty_part_is_mapped_and_records_behind_it_stay(tmp_path: Path) -> None:
    history = written(tmp_path / "t-0", SEED, 150)
    print(f"KAFKALITE_SEED={SEED}")
    segments = list(history.log.segments[:-1])
    start, end = segments[2].base_offset + 3, segments[4].base_offset
    works = worker()
    touching = [entry for entry in history.aborted if entry[2] >= segments[2].base_offset]
    mapped(works, segments[2:4], start, touching)
    assert works.offsets.latest_offset == end - 1
    found = batches_of(segments[2:4])
    newest = Oracle(touching, [], 0, 0).newest(found, start)
    assert len(works.offsets) == len(newest)
    assert {key: works.offsets.get(key) for key in newest} == newest
    target = cleaned(
        str(tmp_path / "t-0"), segments, works, RetentionRules(0, RETENTION, -1, []), Transactions(history.aborted)
    )
    behind = [record.offset for batch in batches_of([target]) if not batch.control for record in batch]
    gone = Oracle(history.aborted, [], 0, 0).gone(batches_of(segments))
    expected = [
        record.offset
        for batch in batches_of(segments)
        if batch.base_offset >= end and not batch.control and not gone[batch.base_offset]
        for record in batch
    ]
    assert [offset for offset in behind if offset >= end] == expected


def one_batch(tmp_path: Path, *records: tuple[int, bytes | None, bytes | None], **fields: int) -> History:
    history = History(new_log(Disk(), str(tmp_path / "t-0"), "t", 0, CONFIG), random.Random(0))
    builder = Builder(1 << 20)
    for record in records:
        builder.append(*record)
    history.append(builder.build(**fields))  # type: ignore[arg-type]
    history.log.roll(history.log.log_end_offset)
    return history


def result(history: History, works: Worker, rules: RetentionRules) -> list[Batch]:
    segments = list(history.log.segments[:-1])
    mapped(works, segments, 0, [])
    return batches_of([cleaned(history.log.directory, segments, works, rules, Transactions([]))])


def test_record_without_a_key_is_dropped_and_counted(tmp_path: Path) -> None:
    works = worker()
    history = one_batch(tmp_path, (1, None, b"a"), (2, b"k", b"b"), (3, None, None))
    (batch,) = result(history, works, RetentionRules(0, 0, -1, []))
    assert [record.offset for record in batch] == [1]
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp, works.keyless) == (0, 2, 2, 2)


def test_fully_retained_batch_keeps_its_bytes(tmp_path: Path) -> None:
    history = one_batch(tmp_path, (1, b"a", b"a"), (2, b"b", b"b"), codec=3)
    before = Path(history.log.segments[0].path(names.LOG)).read_bytes()
    result(history, worker(), RetentionRules(0, 0, -1, []))
    assert Path(history.log.segments[0].path(names.LOG) + names.CLEANED).read_bytes() == before


@pytest.mark.parametrize("timestamp", [0, -1, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("codec", range(5))
def test_delete_horizon_keeps_timestamps(tmp_path: Path, timestamp: int, codec: int) -> None:
    history = one_batch(tmp_path, (5, b"a", b"1"), (timestamp, b"b", None), codec=codec)
    (batch,) = result(history, worker(), RetentionRules(1_000, 500, -1, []))
    assert (batch.delete_horizon, batch.base_timestamp, batch.codec) == (True, 1_500, codec)
    assert [record.timestamp for record in batch] == [5, timestamp]


def test_log_append_time_is_unchanged(tmp_path: Path) -> None:
    history = History(new_log(Disk(), str(tmp_path / "t-0"), "t", 0, CONFIG), random.Random(0))
    for _ in range(2):
        builder = Builder(1 << 20)
        builder.append(5, b"a", b"1")
        builder.append(9, b"b", None)
        batch = bytearray(builder.build())
        set_log_append_time(batch, 777)
        history.append(batch)
    history.log.roll(4)
    found = result(history, worker(), RetentionRules(1_000, 500, -1, []))
    assert [(each.log_append_time, each.max_timestamp, each.delete_horizon) for each in found] == [(True, 777, True)]
    assert [record.timestamp for record in found[0]] == [777, 777]


def test_last_batch_is_kept_as_an_empty_header(tmp_path: Path) -> None:
    history = one_batch(tmp_path, (1, b"a", b"old"))
    history.log.roll(1)
    works = worker()
    works.offsets.clear(10)
    works.offsets.put(b"a", 7)
    works.offsets.latest_offset = 7
    target = cleaned(
        history.log.directory, list(history.log.segments[:1]), works, RetentionRules(0, 0, -1, []), Transactions([])
    )
    (batch,) = batches_of([target])
    assert (batch.records_count, batch.base_offset, batch.last_offset, batch.base_timestamp) == (0, 0, 0, -1)


def test_full_map_returns_its_end_offset(tmp_path: Path) -> None:
    history = one_batch(tmp_path, (1, b"a", b"1"), (1, b"b", b"1"))
    works = Worker(OffsetMap(bytes(16), 24 * 64, 0.05), 4096)
    works.offsets.clear(1 << 40)
    assert works.offsets.capacity == 3
    segment = history.log.segments[0]
    for number in range(3):
        builder = Builder(1 << 20)
        builder.append(1, b"c%d" % number, b"1")
        history.log.segments[0].opened.pwrite(moved(builder.build(), 2 + number), segment.size)
        segment.size = segment.opened.size()
    assert not works.map_segment(segment.opened, 0, segment.size, 0, 0, Transactions([]))
    assert works.offsets.latest_offset == 2


def moved(batch: bytes, offset: int) -> bytes:
    data = bytearray(batch)
    set_base_offset(data, offset)
    return bytes(data)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (-1, "the CRC of a batch is wrong"),
        (17, "the CRC of a batch is wrong"),
        (16, "the header of a batch is malformed, or its format is older"),
        (8, "the (header of a batch is malformed|length of a batch reaches past the file)"),
        (0, "a batch begins below the end of the one before"),
    ],
)
@pytest.mark.parametrize("first_pass", [True, False])
def test_a_damaged_batch_is_uncleanable(tmp_path: Path, at: int, reason: str, first_pass: bool) -> None:
    history = written(tmp_path / "t-0", 1, 40)
    segment = history.log.segments[1]
    location = segment.batches()[2]
    position = location.position + (at if at >= 0 else location.size - 1)
    byte = segment.opened.pread(1, position)[0]
    segment.opened.pwrite(bytes([byte ^ 0x80]), position)
    works = worker()
    works.offsets.clear(100)
    with pytest.raises(UncleanableSegmentError, match=reason) as raised:
        if first_pass:
            works.map_segment(segment.opened, 0, segment.size, segment.base_offset, 0, Transactions([]))
        else:
            cleaned(history.log.directory, [segment], works, RetentionRules(0, 0, -1, []), Transactions([]))
    assert segment.path(names.LOG) in str(raised.value)


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_malformed_records_under_a_right_crc_are_uncleanable(tmp_path: Path, codec: int) -> None:
    builder = Builder(1 << 20)
    builder.append(1, b"key", b"value")
    data = bytearray(builder.build(codec))
    data[61] ^= 0x7F
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    history = History(new_log(Disk(), str(tmp_path / "t-0"), "t", 0, CONFIG), random.Random(0))
    history.append(data)
    segment = history.log.segments[0]
    works = worker()
    works.offsets.clear(100)
    with pytest.raises(UncleanableSegmentError, match="malformed"):
        works.map_segment(segment.opened, 0, segment.size, 0, 0, Transactions([]))


def test_a_segment_shorter_than_it_should_be_is_uncleanable(tmp_path: Path) -> None:
    history = written(tmp_path / "t-0", 1, 40)
    segment = history.log.segments[0]
    segment.opened.truncate(segment.size - 100)
    works = worker()
    works.offsets.clear(100)
    with pytest.raises(UncleanableSegmentError, match="ends at byte"):
        works.map_segment(segment.opened, 0, segment.size, 0, 0, Transactions([]))


def test_compaction_stops_when_it_is_aborted(tmp_path: Path) -> None:
    history = written(tmp_path / "t-0", 1, 40)
    segment = history.log.segments[0]
    works = worker()
    works.offsets.clear(100)
    works.stop = True
    with pytest.raises(CleaningAbortedError):
        works.map_segment(segment.opened, 0, segment.size, 0, 0, Transactions([]))
    works.reset()
    assert works.map_segment(segment.opened, 0, segment.size, 0, 0, Transactions([]))


def test_every_byte_is_counted_and_throttled(tmp_path: Path) -> None:
    history = written(tmp_path / "t-0", 1, 100)
    counted: list[int] = []
    works = Worker(OffsetMap(bytes(16), 1 << 20), 4096, counted.append)
    segments = list(history.log.segments[:-1])
    mapped(works, segments, 0, history.aborted)
    size = sum(segment.size for segment in segments)
    assert works.bytes_mapped == sum(counted) == size
    target = cleaned(
        history.log.directory, segments, works, RetentionRules(0, 0, -1, []), Transactions(history.aborted)
    )
    assert works.bytes_read == size
    assert works.bytes_written == target.size
    assert sum(counted) == 2 * size + target.size
    assert works.records_kept == sum(batch.records_count for batch in batches_of([target]))


def test_a_batch_larger_than_the_buffer_is_read(tmp_path: Path) -> None:
    config = replace(CONFIG, segment_bytes=1 << 20)
    history = History(new_log(Disk(), str(tmp_path / "t-0"), "t", 0, config), random.Random(0))
    builder = Builder(1 << 20)
    builder.append(1, b"k", bytes(100_000))
    history.append(builder.build())
    history.batch()
    history.log.roll(history.log.log_end_offset)
    kept: list[Kept] = [facts(batch) for batch in result(history, worker(), RetentionRules(0, RETENTION, -1, []))]
    assert kept[0][-1][0][3] == bytes(100_000)
