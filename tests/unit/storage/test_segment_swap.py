"""The swap of compacted segments: cut short at every operation, and finished or undone at the next start."""

import errno
from pathlib import Path

import pytest

from kafkalite._speedups.records.batches import batches
from kafkalite._speedups.storage.recovery_scan import scan
from kafkalite.storage import names
from kafkalite.storage.log import segment_swap
from kafkalite.storage.log.log import Log
from kafkalite.storage.log.segment import Segment
from kafkalite.storage.recovery.recover_log import PartitionDirectory, RecoveryError, recover
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.unit.storage.damage import CONFIG, filled

Content = list[tuple[str, list[int]]]


def content(directory: Path) -> Content:
    """(name, base offsets) of every `.log`; each has its indexes, and nothing else is there."""
    found = []
    for path in sorted(directory.glob("*.log")):
        found.append((path.name, [batch.base_offset for batch in batches(path.read_bytes())]))
        for suffix in (names.INDEX, names.TIME_INDEX):
            assert path.with_suffix(suffix).exists(), path
    assert not list(directory.glob("*.swap")) + list(directory.glob("*.cleaned")) + list(directory.glob("*.deleted"))
    return found


def cleaned(directory: Path, disk: FaultyDisk, old: list[Segment]) -> Segment:
    """Every third batch of the first segments as one new segment, complete on the disk."""
    segment = Segment(old[0].base_offset, str(directory), disk, CONFIG)
    segment.suffix = names.CLEANED
    segment.create()
    locations = [(each, location.position, location.size) for each in old for location in each.batches()]
    data = b"".join(each.opened.pread(size, position) for each, position, size in locations[::3])
    segment.opened.pwrite(data, 0)
    scan(segment, 0, len(data), CONFIG.index_interval_bytes)
    segment.finish()
    Path(segment.path(names.TXN_INDEX)).write_bytes(b"")
    segment.closed = True
    disk.sync_dir(str(directory))
    return segment


def whole_swap(disk: FaultyDisk, directory: str, new: Segment, old: list[Segment]) -> None:
    segment_swap.make_ready(new)
    disk.sync_dir(directory)
    segment_swap.retire(old)
    disk.sync_dir(directory)
    segment_swap.swap_in(new)
    disk.sync_dir(directory)


def reopened(directory: Path, disk: FaultyDisk | None = None) -> Log:
    return recover(PartitionDirectory(disk or FaultyDisk(), str(directory), "t", 0, CONFIG))[0]


def prepared(directory: Path, disk: FaultyDisk) -> tuple[list[Segment], Segment]:
    log = filled(directory, disk=disk)
    old = list(log.segments[:2])
    (directory / "00000000000000000000.txnindex").write_bytes(b"")
    return old, cleaned(directory, disk, old)


def the_two(tmp_path: Path) -> tuple[Content, Content, int]:
    """The directory before and after, and how many operations lie between."""
    disk = FaultyDisk()
    old, new = prepared(tmp_path / "whole", disk)
    segment_swap.remove(new)
    reopened(tmp_path / "whole")
    before = content(tmp_path / "whole")
    disk.remove_tree(str(tmp_path / "whole"))
    old, new = prepared(tmp_path / "whole", disk)
    begin = len(disk.trace)
    whole_swap(disk, str(tmp_path / "whole"), new, old)
    steps = len(disk.trace) - begin
    reopened(tmp_path / "whole")
    return before, content(tmp_path / "whole"), steps


def test_swap_interrupted_at_any_operation_leaves_old_or_new_segments(tmp_path: Path) -> None:
    before, after, steps = the_two(tmp_path)
    assert (before[0][0], after[0][0]) == ("00000000000000000000.log",) * 2
    assert len(after) == len(before) - 1
    seen = []
    for step in range(1, steps + 1):
        directory, disk = tmp_path / f"cut-{step}", FaultyDisk()
        old, new = prepared(directory, disk)
        stop_at(disk, step)
        with pytest.raises(OSError, match="Input/output"):
            whole_swap(disk, str(directory), new, old)
        disk.hook = None
        log = reopened(directory)
        assert log.log_end_offset == 360
        assert content(directory) in (before, after), f"cut at operation {step}"
        seen.append(content(directory) == after)
    assert not seen[0]
    assert seen[-1]
    assert seen == sorted(seen)


def test_completion_of_a_swap_may_be_interrupted_at_any_operation(tmp_path: Path) -> None:
    _, after, _ = the_two(tmp_path)
    step, over = 0, False
    while not over:
        step += 1
        directory, disk = tmp_path / f"twice-{step}", FaultyDisk()
        old, new = prepared(directory, disk)
        segment_swap.make_ready(new)
        segment_swap.retire(old[:1])
        stop_at(disk, step)
        try:
            reopened(directory, disk)
            over = True
        except OSError:
            disk.hook = None
        reopened(directory)
        assert content(directory) == after, f"cut at operation {step}"
    assert step > 10


def stop_at(disk: FaultyDisk, step: int) -> None:
    """Fail every operation that changes the directory, from number `step` on."""
    left = step

    def hook(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise OSError(errno.EIO, "Input/output error", path)

    disk.hook = hook


def test_a_swap_above_a_cleaned_file_was_not_ready(tmp_path: Path) -> None:
    directory, disk = tmp_path / "t-0", FaultyDisk()
    _, new = prepared(directory, disk)
    index = Path(new.path(names.INDEX))
    index.rename(index.with_suffix(".swap"))
    reopened(directory)
    assert len(content(directory)[0][1]) > len(new.batches())


def test_an_empty_swap_replaces_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    filled(directory).close()
    before = content(directory)
    (directory / "00000000000000000000.log.swap").write_bytes(b"")
    reopened(directory)
    assert content(directory) == before


def test_a_damaged_swap_is_refused_and_nothing_is_replaced(tmp_path: Path) -> None:
    directory, disk = tmp_path / "t-0", FaultyDisk()
    _, new = prepared(directory, disk)
    segment_swap.make_ready(new)
    path = Path(new.path(names.LOG))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    files = sorted(directory.iterdir())
    with pytest.raises(RecoveryError, match=r"0\.log\.swap: damaged at byte 0, which was flushed"):
        reopened(directory)
    assert sorted(directory.iterdir()) == files


def test_interrupted_renames_of_apache_kafka_are_completed(tmp_path: Path) -> None:
    directory, disk = tmp_path / "t-0", FaultyDisk()
    old, new = prepared(directory, disk)
    segment_swap.make_ready(new)
    segment_swap.retire(old)
    log_file = Path(new.path(names.LOG))
    log_file.rename(log_file.with_suffix(""))
    assert new.batches()
    reopened(directory)
    assert content(directory)[0] == ("00000000000000000000.log", [batch.base_offset for batch in new.batches()])
