"""A partition's directory becomes a log again: after a clean end, after a kill, after damage."""

import logging
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite._speedups.records.batches import batches
from kafkalite._speedups.storage.file import Disk
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.producer_state_loader import write_snapshots
from kafkalite.storage.recovery.recover_log import PartitionDirectory, RecoveryError, RecoveryReport, recover
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.logs import new_log, read_log
from tests.unit.storage.damage import CONFIG, DAMAGES, batch, filled, last_log


def reopen(
    directory: Path, clean: bool = False, disk: Disk | None = None, **given_offsets: int
) -> tuple[Log, RecoveryReport]:
    return recover(PartitionDirectory(disk or Disk(), str(directory), "t", 0, CONFIG, clean, **given_offsets))


def offsets(log: Log) -> list[int]:
    found: list[int] = []
    for segment in log.segments:
        found += [batch.base_offset for batch in segment.batches()]
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    filled(tmp_path / "t-0")
    return tmp_path / "t-0"


def indexes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*index")}


def test_after_a_clean_end_no_batch_is_checked(tmp_path: Path) -> None:
    before = filled(tmp_path / "t-0")
    before.close()
    files = indexes(tmp_path / "t-0")
    disk = FaultyDisk()
    log, progress = reopen(tmp_path / "t-0", clean=True, disk=disk, recovery_point=360)
    assert (log.log_end_offset, log.recovery_point, progress.batches_checked) == (360, 360, 0)
    assert [segment.max_timestamp for segment in log.segments] == [segment.max_timestamp for segment in before.segments]
    assert (log.active.bytes_since_index, log.active.first_timestamp) == (
        log.active.size - before.active.indexes[0].entries()[-1][1],
        before.active.first_timestamp,
    )
    assert indexes(tmp_path / "t-0") == files
    assert {path for operation, path in disk.trace if operation == "read" and path.endswith(".log")} == {
        log.active.path(".log")
    }


def test_after_a_kill_every_batch_is_checked(directory: Path) -> None:
    log, progress = reopen(directory)
    assert (log.log_end_offset, progress.batches_checked, progress.bytes_dropped) == (360, 120, 0)
    assert log.epochs.entries == [(0, 0), (1, 150), (2, 300)]


def test_an_unflushed_batch_without_its_base_offset_is_truncated(directory: Path) -> None:
    """A power cut may lose the sector that ends with it; the CRC does not cover it."""
    with last_log(directory).open("r+b") as file:
        content = file.read()
        begins = [0]
        while begins[-1] < len(content):
            begins.append(begins[-1] + 12 + int.from_bytes(content[begins[-1] + 8 : begins[-1] + 12], "big"))
        file.seek(begins[-2])
        file.write(bytes(8))
    log, progress = reopen(directory, recovery_point=357)
    assert (log.log_end_offset, progress.bytes_dropped) == (357, begins[-1] - begins[-2])


def test_rebuilt_indexes_are_those_made_by_appending(tmp_path: Path) -> None:
    before = filled(tmp_path / "t-0")
    made = [[index.tobytes() for index in segment.indexes] for segment in before.segments]
    for path in (tmp_path / "t-0").glob("*index"):
        path.unlink()
    log, _ = reopen(tmp_path / "t-0")
    assert [[index.tobytes() for index in segment.indexes] for segment in log.segments] == made
    assert log.active.bytes_since_index == before.active.bytes_since_index


def test_only_segments_from_the_recovery_point_on_are_checked(directory: Path) -> None:
    log, progress = reopen(directory, recovery_point=200)
    checked = [segment for segment in log.segments[1:] if segment.base_offset > 200]
    assert progress.batches_checked == sum(len(segment.batches()) for segment in [log.segments[1], *checked])
    assert log.log_end_offset == 360


@pytest.mark.parametrize("lost", [1, 5])
def test_a_segment_that_was_synced_before_it_was_closed_gets_its_last_times(tmp_path: Path, lost: int) -> None:
    """The file is that of an earlier end, synced with its producers; the roll's last entries did not reach the disk."""
    before = filled(tmp_path / "t-0")
    write_snapshots(Disk(), str(tmp_path / "t-0"), before.take_due_snapshots(), before.bases())
    path = tmp_path / "t-0" / f"{0:020d}.timeindex"
    whole = path.read_bytes()
    path.write_bytes(whole[: -12 * lost])
    second = before.bases()[1]
    log, progress = reopen(tmp_path / "t-0", recovery_point=second)
    assert log.segments[0].max_timestamp == max(batch.max_timestamp for batch in log.segments[0].batches())
    assert path.read_bytes()[-12:] == whole[-12:], "or the next start believes it again"
    found = log.look_up_time(log.segments[0].max_timestamp)
    assert found is not None and found[1] == second - 1
    assert progress.batches_checked == sum(len(segment.batches()) for segment in log.segments[1:])


def test_indexes_of_a_segment_flushed_before_its_roll_are_rebuilt(tmp_path: Path) -> None:
    """No fsync batch has synced them since the roll: the files may have entries of truncated batches."""
    before = filled(tmp_path / "t-0")
    made = indexes(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{0:020d}.index"
    entry = path.read_bytes()[:8]
    path.write_bytes(entry[:4] + (int.from_bytes(entry[4:], "big") + 7).to_bytes(4, "big"))
    log, progress = reopen(tmp_path / "t-0", recovery_point=before.bases()[1])
    assert indexes(tmp_path / "t-0")[path.name] == made[path.name]
    assert progress.batches_checked == 120
    assert log.recovery_point == before.bases()[1]


@pytest.mark.parametrize("cut", [2, 60, 61, 62, 200, 390])
@pytest.mark.parametrize("zeros", [False, True])
def test_torn_tail_is_truncated(directory: Path, cut: int, zeros: bool) -> None:
    path = last_log(directory)
    content = path.read_bytes()
    path.write_bytes(content[:-cut] + bytes(cut if zeros else 0))
    log, progress = reopen(directory)
    lost = 1 if cut <= len(batch()) else 2
    assert log.log_end_offset == 360 - 3 * lost
    assert progress.bytes_dropped > 0
    assert path.stat().st_size == log.active.size
    assert log.append(batch(), None, 3) == log.log_end_offset
    assert log.write() == 0
    assert offsets(log) == list(range(0, log.log_end_offset, 3))


def test_log_is_truncated_at_the_first_invalid_batch(directory: Path) -> None:
    first = min(directory.glob("*.log"))
    content = bytearray(first.read_bytes())
    content[2 * len(batch()) + 100] ^= 1
    first.write_bytes(content)
    log, progress = reopen(directory)
    assert (log.log_end_offset, len(log.segments), progress.segments_dropped) == (6, 1, 2)
    assert sorted(path.name for path in directory.glob("*.log")) == [first.name]
    assert log.epochs.entries == [(0, 0)]


def test_log_is_not_truncated_below_the_recovery_point(directory: Path) -> None:
    first = min(directory.glob("*.log"))
    content = bytearray(first.read_bytes())
    content[2 * len(batch()) + 100] ^= 1
    first.write_bytes(content)
    log, progress = reopen(directory, recovery_point=360 - 3)
    assert (log.log_end_offset, progress.bytes_dropped) == (360, 0)


@pytest.mark.parametrize("clean", [True, False])
def test_damage_below_the_recovery_point_is_rejected_without_truncation(directory: Path, clean: bool) -> None:
    """Without its index the segment is read through, and the damage is found: what lies behind it must not go."""
    first = min(directory.glob("*.log"))
    content = bytearray(first.read_bytes())
    content[2 * len(batch()) + 100] ^= 1
    first.write_bytes(content)
    first.with_suffix(".index").unlink()
    before = {path.name: path.stat().st_size for path in directory.glob("*.log")}
    with pytest.raises(RecoveryError, match="the log is not truncated"):
        reopen(directory, clean=clean, recovery_point=360 - 3)
    assert {path.name: path.stat().st_size for path in directory.glob("*.log")} == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_survived(tmp_path: Path, damage: str) -> None:
    filled(tmp_path / "t-0").close()
    DAMAGES[damage](tmp_path / "t-0")
    log, _ = reopen(tmp_path / "t-0")
    log.append(batch(), None, 3)
    assert log.write() == 0
    found = offsets(log)
    assert found == sorted(set(found))
    assert found[-1] + 3 == log.log_end_offset


@pytest.mark.parametrize(
    "garbage", [b"", b"x", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 zero\n", b"\xff\xfe", b"0\n2\n1 0\n0 5\n"]
)
def test_a_bad_epoch_checkpoint_is_read_from_the_batches(directory: Path, garbage: bytes) -> None:
    (directory / "leader-epoch-checkpoint").write_bytes(garbage)
    log, _ = reopen(directory, recovery_point=360)
    assert log.epochs.entries == [(0, 0), (1, 150), (2, 300)]


def test_missing_indexes_are_rebuilt_after_a_clean_end(tmp_path: Path) -> None:
    filled(tmp_path / "t-0").close()
    files = indexes(tmp_path / "t-0")
    for path in (tmp_path / "t-0").glob("*index"):
        path.unlink()
    log, _ = reopen(tmp_path / "t-0", clean=True, recovery_point=360)
    assert log.log_end_offset == 360
    log.close()
    assert indexes(tmp_path / "t-0") == files


def test_work_files_are_removed(directory: Path) -> None:
    orphan = "00000000000000000777.index"
    for name in ("00000000000000000000.log.deleted", "x.cleaned", "leader-epoch-checkpoint.tmp", orphan):
        (directory / name).write_bytes(b"junk")
    log, _ = reopen(directory)
    assert log.log_end_offset == 360
    assert not [path.name for path in directory.iterdir() if path.read_bytes() == b"junk"]


def test_an_overlapping_segment_is_set_aside_and_nothing_is_lost(directory: Path) -> None:
    stray = directory / "00000000000000000009.log"
    shutil.copy(min(directory.glob("*.log")), stray)
    content = stray.read_bytes()
    log, progress = reopen(directory)
    assert (log.log_end_offset, progress.bytes_dropped) == (360, 0)
    assert offsets(log) == list(range(0, 360, 3))
    assert Path(f"{stray}.aside").read_bytes() == content
    assert progress.set_aside == [f"{stray}.aside"]
    again, progress = reopen(directory)
    assert (again.log_end_offset, progress.set_aside) == (360, [])


def test_an_overlapping_last_segment_is_set_aside_and_the_one_before_is_appended_to(directory: Path) -> None:
    last = last_log(directory)
    last.rename(directory / f"{int(last.stem) - 3:020d}.log")
    log, progress = reopen(directory)
    assert log.log_end_offset == int(last.stem)
    assert len(progress.set_aside) == 1
    assert log.append(batch(), None, 3) == int(last.stem)
    assert log.write() == 0


def lose_the_middle_segment(directory: Path) -> tuple[int, int, dict[str, bytes]]:
    """Remove the second of three segments; the first missing offset, the next one there, and the remaining segments."""
    _, second, third = sorted(directory.glob("*.log"))
    for path in directory.glob(f"{second.stem}.*"):
        path.unlink()
    return int(second.stem), int(third.stem), {path.name: path.read_bytes() for path in directory.glob("*.log")}


@pytest.mark.parametrize("begin_offset", [-1, 0, 60])
def test_a_missing_segment_below_the_recovery_point_is_reported_and_nothing_changes(
    directory: Path, begin_offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    end, begin, content = lose_the_middle_segment(directory)
    with caplog.at_level(logging.ERROR):
        log, progress = reopen(directory, recovery_point=begin + begin_offset)
    assert (log.log_end_offset, progress.gaps) == (360, [(end, begin)])
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == content
    (line,) = caplog.messages
    assert f"{directory}: offsets {end} to {begin - 1} are missing" in line and "backup" in line


class ReadBytes(FaultyDisk):
    """Counts the bytes that are read of each file."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def happens(self, operation: str, path: str, size: int = 0, *, step: bool = False) -> int:
        if operation == "read":
            self.read[path] += size
        return super().happens(operation, path, size, step=step)


def test_an_unclean_start_reads_one_entry_of_each_index_below_the_recovery_point(tmp_path: Path) -> None:
    """The end of each segment shows whether the next one follows; all indexes would be 0.5 % of all bytes."""
    filled(tmp_path / "t-0").close()
    disk = ReadBytes()
    log, progress = reopen(tmp_path / "t-0", disk=disk, recovery_point=360)
    assert (log.log_end_offset, progress.segments_scanned, progress.gaps) == (360, 1, [])
    first, second, _ = log.segments
    assert {path: size for path, size in disk.read.items() if path.endswith("index")} == {
        first.path(".index"): 8,
        first.path(".timeindex"): 12,
        second.path(".index"): 8,
        second.path(".timeindex"): 12,
    }


@pytest.mark.parametrize(
    "index", [b"", bytes(8), b"\0\0\0\7\0\0\1\0", b"\1"], ids=["empty", "zeros", "astray", "short"]
)
def test_a_damaged_index_neither_hides_nor_invents_a_gap(directory: Path, index: bytes) -> None:
    path = min(directory.glob("*.index"))
    path.write_bytes(index)
    assert reopen(directory, recovery_point=350)[1].gaps == []
    end, begin, _ = lose_the_middle_segment(directory)
    path.write_bytes(index)
    assert reopen(directory, recovery_point=begin + 60)[1].gaps == [(end, begin)]


def test_segments_behind_a_missing_one_that_was_not_synced_are_set_aside(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end, begin, content = lose_the_middle_segment(directory)
    with caplog.at_level(logging.ERROR):
        log, progress = reopen(directory, recovery_point=end)
    assert (log.log_end_offset, progress.bytes_dropped) == (end, 0)
    aside = Path(f"{directory}/{begin:020d}.log.aside")
    assert aside.read_bytes() == content[f"{begin:020d}.log"] and str(aside) in progress.set_aside
    assert f"offsets {end} to {begin - 1} are missing" in caplog.text and ".aside" in caplog.text
    assert log.append(batch(), None, 3) == end
    assert log.write() == 0
    assert reopen(directory)[0].log_end_offset == end + 3


@pytest.mark.parametrize("evidence", ["cleaner checkpoint", "cleanup.policy"])
def test_missing_offsets_of_a_compacted_log_are_not_reported(
    directory: Path, evidence: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, begin, _ = lose_the_middle_segment(directory)
    partition_dir = PartitionDirectory(Disk(), str(directory), "t", 0, CONFIG, recovery_point=begin)
    if evidence == "cleaner checkpoint":
        partition_dir.gaps_until = begin
    else:
        partition_dir.config = replace(CONFIG, cleanup_policy=("compact",))
    log, progress = recover(partition_dir)
    assert (log.log_end_offset, progress.gaps, progress.set_aside, caplog.messages) == (360, [], [], [])


def test_a_log_that_ends_before_its_start_begins_again_there(directory: Path) -> None:
    log, _ = reopen(directory, log_start_offset=1000, recovery_point=1000)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (1000, 1000, 1)
    assert log.append(batch(), None, 3) == 1000
    assert log.write() == 0
    again, _ = reopen(directory, log_start_offset=1000, recovery_point=1000)
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1003)


def test_log_start_above_an_unflushed_end_is_rejected(directory: Path) -> None:
    before = sorted(path.name for path in directory.glob("*.log"))
    with pytest.raises(RecoveryError, match="nothing is removed"):
        reopen(directory, log_start_offset=1000, recovery_point=360)
    assert sorted(path.name for path in directory.glob("*.log")) == before


def test_damage_below_the_recovery_point_in_its_own_segment_is_refused(directory: Path) -> None:
    path = last_log(directory)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecoveryError, match="the log is not truncated"):
        reopen(directory, recovery_point=357)
    assert path.read_bytes() == content


def test_a_directory_without_a_segment_is_never_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    with pytest.raises(RecoveryError, match="has no segment"):
        reopen(tmp_path / "t-0")


def test_log_start_is_restored(directory: Path) -> None:
    log, _ = reopen(directory, log_start_offset=100)
    assert (log.log_start_offset, log.epochs.entries[0]) == (100, (0, 100))


def producer_log(path: Path) -> Log:
    log = new_log(Disk(), str(path), "t", 0, CONFIG)
    for number in range(8):
        log.append(batch(3, producer_id=7, producer_epoch=1, base_sequence=3 * number), None, 0)
    log.append(batch(2, producer_id=8, producer_epoch=0, base_sequence=0), None, 0)
    assert log.write() == 0
    return log


def test_producers_are_restored_from_batch_headers(tmp_path: Path) -> None:
    before = producer_log(tmp_path / "t-0").producers
    log, _ = reopen(tmp_path / "t-0")
    assert {key: entry.seen() for key, entry in log.producers.entries.items()} == {
        key: entry.seen() for key, entry in before.entries.items()
    }
    assert log.append(batch(3, producer_id=7, producer_epoch=1, base_sequence=9), None, 0) == 9


def test_producers_are_restored_from_the_snapshot(tmp_path: Path) -> None:
    producer_log(tmp_path / "t-0").close()
    log, progress = reopen(tmp_path / "t-0", clean=True, recovery_point=26)
    assert progress.batches_checked == 0
    assert log.producers.entries[7].seen() == [(last, last, 2, 1002) for last in range(11, 24, 3)]
    assert log.append(batch(3, producer_id=7, producer_epoch=1, base_sequence=24), None, 0) == 26


def test_batches_after_the_snapshot_are_noted_on_top(tmp_path: Path) -> None:
    log = producer_log(tmp_path / "t-0")
    log.close()
    log.append(batch(3, producer_id=7, producer_epoch=1, base_sequence=24), None, 0)
    assert log.write() == 0
    again, _ = reopen(tmp_path / "t-0", recovery_point=26)
    assert [last for last, _, _, _ in again.producers.entries[7].seen()] == [14, 17, 20, 23, 26]


def test_snapshot_above_the_recovery_point_is_ignored(tmp_path: Path) -> None:
    producer_log(tmp_path / "t-0").close()
    log, _ = reopen(tmp_path / "t-0", recovery_point=0)
    assert not list((tmp_path / "t-0").glob("*.snapshot"))
    assert len(log.producers.entries[7].seen()) == 5


def test_snapshot_older_than_the_scanned_batches_is_ignored(tmp_path: Path) -> None:
    log = producer_log(tmp_path / "t-0")
    log.close()
    log.append(batch(3, producer_id=7, producer_epoch=1, base_sequence=24), None, 0)
    while len(log.segments) < 3:
        log.append(batch(), None, 0)
        assert log.write() == 0
    again, _ = reopen(tmp_path / "t-0", recovery_point=log.active.base_offset)
    assert again.append(batch(3, producer_id=7, producer_epoch=1, base_sequence=27), None, 0) == log.log_end_offset


def test_a_large_batch_outgrows_the_first_chunk(tmp_path: Path) -> None:
    from dataclasses import replace

    log = new_log(Disk(), str(tmp_path / "t-0"), "t", 0, replace(CONFIG, segment_bytes=1 << 30))
    for size in (10, 3 << 20, 10):
        log.append(batch(1, size=size), None, 0)
    assert log.write() == 0
    again, progress = reopen(tmp_path / "t-0")
    assert (again.log_end_offset, progress.batches_checked, progress.bytes_dropped) == (3, 3, 0)
    assert [len(batches(read_log(again, offset, 1, 3)[0].read())) for offset in range(3)] == [1, 1, 1]  # type: ignore[index]
