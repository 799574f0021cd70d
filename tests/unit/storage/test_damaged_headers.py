"""Readers skip a batch whose header is damaged, and its position is reported."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.records.batches import Batch
from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.page_cache import PageCacheMiss, ReadAttempt
from kafkalite.errors import KafkaErrorCode
from kafkalite.storage.log.log import Log
from kafkalite.storage.recovery.recover_log import PartitionDirectory, RecoveryError, recover
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.logs import read_log
from tests.unit.storage.damage import CONFIG, batch, filled, patch

COUNT = 3  # records to a batch
BATCHES = 24
UNINDEXED = replace(CONFIG, index_interval_bytes=1 << 20)
LENGTH_AT = 8
Made = list[tuple[int, int, bytes]]  # base offset, position, bytes; all in one file


def make(path: Path, gap: int = 0, config: object = CONFIG, value: Callable[[int], bytes] = lambda _: b"v") -> Made:
    """The file of a closed log: `gap` offsets are missing before each third batch, as after compaction."""
    path.mkdir()
    made: Made = []
    base = position = 0
    for number in range(BATCHES):
        base += gap if number % 3 == 2 else 0
        data = bytes(batch(COUNT, 1_000 * number, 20, value(base), base_offset=base, leader_epoch=0))
        made.append((base, position, data))
        base, position = base + COUNT, position + len(data)
    (path / f"{0:020d}.log").write_bytes(b"".join(data for *_, data in made))
    return made


def opened(path: Path, disk: Disk | None = None, config: object = CONFIG) -> Log:
    compacted = replace(config, cleanup_policy=("compact",)) if config is CONFIG else config  # type: ignore[type-var]
    log, _ = recover(PartitionDirectory(disk or Disk(), str(path), "t", 0, compacted))  # type: ignore[arg-type]
    return log


def read_at(log: Log, offset: int) -> bytes | int:
    found = read_log(log, offset, 1, log.log_end_offset)
    assert not isinstance(found, PageCacheMiss)
    return found if isinstance(found, int) else b"".join(region.read() for region in found)


def judge(log: Log, made: Made, hurt: set[int]) -> None:
    """Every offset: in a good batch that batch, in a gap the one behind it, in a damaged one an error."""
    for number, (base, _, data) in enumerate(made):
        before = made[number - 1][0] + COUNT if number else 0
        for offset in range(base, base + COUNT):
            assert read_at(log, offset) == (KafkaErrorCode.CORRUPT_MESSAGE if number in hurt else data), offset
        if not hurt & {number, number - 1}:
            for offset in range(before, base):
                assert read_at(log, offset) == data, f"{offset} is in a gap"


@pytest.mark.parametrize("gap", [0, 4], ids=["dense", "compacted"])
def test_flipped_header_bit_costs_no_other_batch(tmp_path: Path, gap: int) -> None:
    made = make(tmp_path / "t-0", gap)
    log = opened(tmp_path / "t-0")
    judge(log, made, set())
    path = tmp_path / "t-0" / f"{0:020d}.log"
    for number in range(BATCHES):
        _, position, data = made[number]
        for byte in (3, 6, *range(8, 12), 16):  # the low byte of a base offset may point into a gap of its own
            for bit in range(8):
                patch(path, position + byte, bytes([data[byte] ^ 1 << bit]))
                judge(log, made, {number})
                patch(path, position + byte, data[byte : byte + 1])


def test_small_steps_of_a_base_offset_are_seen_where_no_offset_is_missing(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    log = opened(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{0:020d}.log"
    for number in range(BATCHES):
        _, position, data = made[number]
        for bit in range(8):
            patch(path, position + 7, bytes([data[7] ^ 1 << bit]))
            judge(log, made, {number})
        patch(path, position + 7, data[7:8])


def test_a_length_that_leads_to_a_later_batch(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    log = opened(tmp_path / "t-0")
    _, position, _ = made[4]
    length = made[7][1] - position - 12
    patch(tmp_path / "t-0" / f"{0:020d}.log", position + LENGTH_AT, length.to_bytes(4, "big"))
    judge(log, made, {4})


def test_a_length_that_leads_to_the_end_of_the_file(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    log = opened(tmp_path / "t-0")
    _, position, _ = made[-3]
    patch(tmp_path / "t-0" / f"{0:020d}.log", position + LENGTH_AT, (log.size - position - 12).to_bytes(4, "big"))
    judge(log, made, {BATCHES - 3})


@pytest.mark.parametrize("number", range(BATCHES))
def test_without_an_index_the_next_batch_is_found_by_its_bytes(tmp_path: Path, number: int) -> None:
    made = make(tmp_path / "t-0")
    log = opened(tmp_path / "t-0", config=UNINDEXED)
    patch(tmp_path / "t-0" / f"{0:020d}.log", made[number][1] + LENGTH_AT, b"\x7f")
    judge(log, made, {number})


def test_several_damaged_batches_with_entries_of_the_index_between_them(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    log = opened(tmp_path / "t-0")
    hurt = {2, 10, 20}
    assert len({log.active.indexes[0].look_up(number * COUNT) for number in hurt}) == len(hurt)
    for number in hurt:
        patch(tmp_path / "t-0" / f"{0:020d}.log", made[number][1] + LENGTH_AT, b"\x7f")
    judge(log, made, hurt)


def test_a_batch_that_is_a_value_of_the_damaged_one_is_not_taken_for_the_next(tmp_path: Path) -> None:
    def inner(base: int) -> bytes:
        return bytes(batch(1, 5, base_offset=base + 1)) * 2

    made = make(tmp_path / "t-0", value=inner)
    log = opened(tmp_path / "t-0")
    patch(tmp_path / "t-0" / f"{0:020d}.log", made[5][1] + LENGTH_AT, b"\x01")
    judge(log, made, {5})


def test_large_answers_end_where_headers_are_in_line_no_longer(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    log = opened(tmp_path / "t-0", config=UNINDEXED)
    patch(tmp_path / "t-0" / f"{0:020d}.log", made[6][1] + LENGTH_AT, b"\x7f")
    (region,) = read_log(log, 0, 1 << 20, log.log_end_offset)  # type: ignore[union-attr]
    assert region.read() == b"".join(data for *_, data in made[:6])
    (region,) = read_log(log, 7 * COUNT, 1 << 20, log.log_end_offset)  # type: ignore[union-attr]
    assert region.read() == b"".join(data for *_, data in made[7:])


def test_an_index_that_is_lost_with_a_batch_is_built_around_it(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0", config=CONFIG)
    log.close()
    end, path = log.log_end_offset, Path(log.segments[1].path(".log"))
    locations = log.segments[1].batches()
    patch(path, locations[3].position + LENGTH_AT, b"\x7f")
    path.with_suffix(".index").write_bytes(b"insane")
    reader, _ = recover(PartitionDirectory(Disk(), str(path.parent), "t", 0, CONFIG, True, end))
    segment = reader.segments[1]
    for location in [*locations[:3], *locations[4:]]:
        base, last, timestamp = location.base_offset, location.last_offset, location.max_timestamp
        data = read_at(reader, last)
        assert isinstance(data, bytes) and Batch(data).base_offset == base
        assert reader.look_up_time(timestamp) == (timestamp, last, base // 150)
    assert read_at(reader, locations[3].base_offset) == KafkaErrorCode.CORRUPT_MESSAGE
    assert segment.indexes[0].entries()[-1][1] > locations[-4].position


def test_damage_is_logged_once_per_position(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = make(tmp_path / "t-0")
    log = opened(tmp_path / "t-0")
    patch(tmp_path / "t-0" / f"{0:020d}.log", made[2][1] + LENGTH_AT, b"\x7f")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert read_at(log, 2 * COUNT) == KafkaErrorCode.CORRUPT_MESSAGE
    (said,) = [each.getMessage() for each in caplog.records]
    assert f"{0:020d}.log" in said and f"byte {made[2][1]}" in said and "offset 6 " in said


def test_page_cache_misses_around_damage_are_read_ahead(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    disk, there = FaultyDisk(), set[int]()
    log = opened(tmp_path / "t-0", disk)
    log.active.written_from = log.size  # another process wrote it
    patch(tmp_path / "t-0" / f"{0:020d}.log", made[13][1] + LENGTH_AT, b"\x7f")
    for answer in (0, -1):
        disk.resident = lambda path, offset, size, answer=answer: (  # type: ignore[misc]
            1 if there.issuperset(range(offset, offset + size)) else answer
        )
        for number, expected in ((13, KafkaErrorCode.CORRUPT_MESSAGE), (14, made[14][2])):
            there.clear()
            brought, asked = None, 0
            while isinstance(found := log.read(ReadAttempt(number * COUNT, 1, read_ahead=brought)), PageCacheMiss):
                brought, asked = found, asked + 1
                there.update(range(found.position, found.position + found.size))
            assert 0 < asked < 4
            assert (found if isinstance(found, int) else found[0].read()) == expected


def test_times_behind_damage_are_found(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{0:020d}.log"
    for number in range(BATCHES):
        log = opened(tmp_path / "t-0")
        patch(path, made[number][1] + LENGTH_AT, b"\x7f")
        for other, (base, _, _) in enumerate(made):
            found = log.look_up_time(1_000 * other)
            assert found is not None or other >= BATCHES - 1
            if other != number:
                assert found == (1_000 * other, base, 0)
        patch(path, made[number][1] + LENGTH_AT, made[number][2][LENGTH_AT : LENGTH_AT + 1])


def test_truncation_within_damage_removes_it(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    log = opened(tmp_path / "t-0")
    patch(tmp_path / "t-0" / f"{0:020d}.log", made[8][1] + LENGTH_AT, b"\x7f")
    log.truncate_to(log.begin_truncation(8 * COUNT + 1))
    assert (log.log_end_offset, log.size) == (8 * COUNT, made[8][1])
    judge(log, made[:8], set())


def test_no_offset_is_given_twice_when_the_last_batch_lies_about_its_own(tmp_path: Path) -> None:
    """After a clean end only the end of the file is looked at, and that would be further back."""
    made = make(tmp_path / "t-0")
    opened(tmp_path / "t-0").close()
    base, position, _ = made[-1]
    patch(tmp_path / "t-0" / f"{0:020d}.log", position, (base - 5).to_bytes(8, "big"))
    location = PartitionDirectory(Disk(), str(tmp_path / "t-0"), "t", 0, CONFIG, True, base + COUNT)
    with pytest.raises(RecoveryError, match=f"damaged at byte {position}"):
        recover(location)


def test_flushed_batches_after_a_too_high_base_offset_are_kept(tmp_path: Path) -> None:
    made = make(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{0:020d}.log"
    patch(path, made[5][1] + 4, b"\x01")
    with pytest.raises(RecoveryError, match="which was flushed"):
        recover(PartitionDirectory(Disk(), str(path.parent), "t", 0, CONFIG, False, BATCHES * COUNT))
    assert path.read_bytes()[made[6][1] :] == b"".join(data for *_, data in made[6:])
    assert Batch(made[6][2]).base_offset == 6 * COUNT
