"""Verifies producer snapshots against the batches (invariant 17), and unfinished segment swaps (invariant 16)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite._speedups.storage.producer_state import Producer, ProducerState
from kafkalite.storage.log.producer_snapshots import read_snapshot, write_packed
from kafkalite.storage.verify.verify import Violation, verify_log
from tests.kit.seeds import chosen_seed
from tests.unit.storage.damage import filled, patch
from tests.unit.storage.transactional import History, abort, begin, new_log

SEED = chosen_seed()
HISTORIES = 5
COUNT = 60
IDEMPOTENT, ABORTED, OPEN = 7, 8, 9


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three segments that was left cleanly: a producer without transactions, one that aborted, one whose
    transaction is open."""
    directory = tmp_path / "t-0"
    log = new_log(directory, segment_bytes=8_000)
    for number in range(COUNT):
        assert begin(log, IDEMPOTENT, 2 * number, transactional=False) >= 0
        if number == 5:
            assert begin(log, ABORTED, 0) >= 0
        if number == 10:
            assert abort(log, ABORTED) >= 0
        if number == COUNT - 5:
            assert begin(log, OPEN, 0) >= 0
        assert log.write() == 0
    log.close()
    assert len(log.segments) >= 3
    return directory


def said(directory: Path, *, compacted: bool = False) -> list[Violation]:
    return verify_log(Disk(), str(directory), clean=True, compacted=compacted)


def newest(directory: Path) -> Path:
    return max(directory.glob("*.snapshot"))


def rewrite(path: Path, change: Callable[[dict[int, Producer]], object]) -> None:
    """Write a readable snapshot with other content."""
    producers = {each.producer_id: each for each in read_snapshot(Disk(), str(path))}
    change(producers)
    state = ProducerState()
    state.load(producers.values())
    write_packed(Disk(), str(path.parent), int(path.stem), state.pack())


def replaced(number: int, epoch: int, batch: tuple[int, int] | None, begins: int = -1) -> Callable[..., object]:
    """Another entry for a producer; `batch`: its last sequence and last offset."""

    def change(producers: dict[int, Producer]) -> None:
        producers[number] = made = Producer(number, epoch, -1, 5, begins)
        if batch is not None:
            made.restore(batch[0], batch[1], 1, 5)

    return change


def last_of(path: Path, number: int) -> tuple[int, int]:
    (found,) = [each for each in read_snapshot(Disk(), str(path)) if each.producer_id == number]
    return found.last_sequence, found.last_offset


def test_valid_snapshots_have_no_violation(log: Path) -> None:
    assert len(list(log.glob("*.snapshot"))) >= 3
    assert said(log) == said(log, compacted=True) == []


def test_each_wrong_field_of_a_snapshot_is_reported(log: Path) -> None:
    path = newest(log)
    good = path.read_bytes()
    sequence, offset = last_of(path, IDEMPOTENT)
    begins = last_of(path, OPEN)[1] - 1
    changes: dict[Callable[..., object], bool] = {  # and whether it is seen in a compacted log, too
        replaced(IDEMPOTENT, 0, (sequence - 1, offset)): True,
        replaced(IDEMPOTENT, 0, (sequence - 2, offset - 2)): True,
        replaced(IDEMPOTENT, 1, (sequence, offset)): False,
        replaced(IDEMPOTENT, 0, None): False,
        replaced(77, 0, (0, 3)): False,
        replaced(OPEN, 0, (1, begins + 1)): False,
        replaced(OPEN, 0, (1, begins + 1), begins - 2): False,
        replaced(IDEMPOTENT, 0, (sequence, offset), 3): False,
    }
    for change, always in changes.items():
        rewrite(path, change)
        (received,) = said(log)
        assert (received.number, received.path, received.position) == (17, str(path), -1)
        assert [each.number for each in said(log, compacted=True)] == [17] * always
        path.write_bytes(good)
    rewrite(path, replaced(OPEN, 0, (1, begins + 1), begins))
    assert said(log) == []


def test_a_producer_that_was_forgotten_is_no_fault(log: Path) -> None:
    rewrite(newest(log), lambda producers: producers.pop(IDEMPOTENT))
    assert said(log) == []


def test_snapshots_of_deleted_segments_are_not_checked(log: Path) -> None:
    first = min(log.glob("*.log"))
    for path in log.glob(f"{first.stem}.*"):
        path.unlink()
    assert last_of(newest(log), ABORTED)[1] < int(min(log.glob("*.log")).stem), "its batches are gone, it is known"
    assert said(log) == []


def test_snapshot_above_the_log_end_is_reported_after_a_clean_stop(log: Path) -> None:
    path = newest(log)
    stray = path.with_name(f"{int(path.stem) - 1:020d}.snapshot")
    shutil.copy(sorted(log.glob("*.snapshot"))[-2], stray)
    assert said(log) == [Violation(17, str(stray), -1, "is at the base of no segment, and not the newest")]
    assert verify_log(Disk(), str(log)) == []


def test_producers_are_not_verified_after_a_damaged_batch(log: Path) -> None:
    patch(min(log.glob("*.log")), 70, b"\xff\xff")
    assert 17 not in {each.number for each in said(log)}


def test_any_history_is_true(tmp_path: Path) -> None:
    print(f"KAFKALITE_SEED={SEED}")
    for run_number in range(HISTORIES):
        log = new_log(tmp_path / f"t-{run_number}", segment_bytes=4_000)
        History(log, SEED + run_number).run(300)
        log.close()
        assert len(log.segments) > 3
        assert said(tmp_path / f"t-{run_number}") == said(tmp_path / f"t-{run_number}", compacted=True) == []


@pytest.fixture
def swap(tmp_path: Path) -> Path:
    """A directory after a crash: a copy of the first segment is ready to take its place. Answers its `.log.swap`."""
    log = filled(tmp_path / "t-0")
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        path = tmp_path / "t-0" / f"{0:020d}{suffix}"
        shutil.copy(path, f"{path}.swap")
    return tmp_path / "t-0" / f"{0:020d}.log.swap"


def crashed(directory: Path) -> set[tuple[int, str]]:
    return {(each.number, Path(each.path).name) for each in verify_log(Disk(), str(directory))}


def test_a_segment_that_is_ready_is_whole(swap: Path) -> None:
    assert crashed(swap.parent) == set()
    patch(swap, 100, b"\xff")
    assert (16, swap.name) in crashed(swap.parent)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_of_a_segment_that_is_ready(swap: Path, suffix: str) -> None:
    own = swap.parent / f"{0:020d}{suffix}"
    index = Path(f"{own}.swap")
    patch(index, 0, b"\x11\x11")
    assert crashed(swap.parent) == {(16, index.name)}
    index.unlink()
    assert crashed(swap.parent) == set(), "it may have its last name already"
    own.unlink()
    assert crashed(swap.parent) == {(16, index.name), (10, own.name)}


def test_incomplete_swap_replaces_nothing(swap: Path) -> None:
    patch(swap, 100, b"\xff")
    cleaned = swap.with_name(f"{0:020d}.index.cleaned")
    cleaned.write_bytes(b"")
    assert crashed(swap.parent) == set()
    cleaned.unlink()
    swap.write_bytes(b"")
    assert crashed(swap.parent) == set()
