"""What a power cut leaves on the disk twin, beside what the model of `kafkalite.testing.power_loss` allows."""

import errno
import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.testing.faulty_disk import Crash, FaultyDisk
from kafkalite.testing.power_loss import SECTOR

SEEDS = 60
Act = Callable[[FaultyDisk, Path], None]


def picture(root: Path) -> dict[str, bytes | None]:
    """Every path below `root`: the bytes of files, None for directories."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


def outcomes(tmp_path: Path, act: Act, *, torn: bool = False, seeds: int = SEEDS) -> list[dict[str, bytes | None]]:
    """The different things that crashes after `act` leave behind."""
    found: list[dict[str, bytes | None]] = []
    for seed in range(seeds):
        root = tmp_path / str(seed)
        root.mkdir()
        disk = FaultyDisk()
        act(disk, root)
        now = picture(root)
        lost = disk.crash(random.Random(seed), torn=torn)
        left = picture(root)
        assert torn or lost > 0 or left == now, f"seed {seed}"
        if left not in found:
            found.append(left)
    return found


def write(disk: FaultyDisk, path: Path, data: bytes, offset: int = 0, *, sync: bool = False) -> None:
    file = disk.open(str(path), create=True)
    file.pwrite(data, offset)
    if sync:
        file.sync()
    file.close()


def test_new_file_survives_after_fsync_of_file_and_directory(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        write(disk, root / "a", b"synced", sync=True)
        disk.sync_dir(str(root))

    assert outcomes(tmp_path, act, torn=True) == [{"a": b"synced"}]


def test_names_and_bytes_are_lost_independently(tmp_path: Path) -> None:
    found = outcomes(tmp_path, lambda disk, root: write(disk, root / "a", b"data", sync=True))
    assert sorted(map(str, found)) == ["{'a': b'data'}", "{}"]
    (tmp_path / "other").mkdir()

    def named(disk: FaultyDisk, root: Path) -> None:
        write(disk, root / "a", b"data")
        disk.sync_dir(str(root))

    assert sorted(map(str, outcomes(tmp_path / "other", named))) == ["{'a': b''}", "{'a': b'data'}"]


def test_changes_survive_up_to_a_random_one(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        write(disk, root / "a", b"0", sync=True)
        disk.sync_dir(str(root))
        for offset in range(1, 4):
            write(disk, root / "a", b"%d" % offset, offset)
        disk.open(str(root / "a")).truncate(2)

    assert {found["a"] for found in outcomes(tmp_path, act)} == {b"0", b"01", b"012", b"0123"}


def test_torn_write_is_old_or_new_per_sector(tmp_path: Path) -> None:
    old, new = b"o" * (2 * SECTOR), b"n" * (3 * SECTOR)

    def act(disk: FaultyDisk, root: Path) -> None:
        write(disk, root / "a", old, sync=True)
        disk.sync_dir(str(root))
        write(disk, root / "a", new, 100)

    found = {each["a"] for each in outcomes(tmp_path, act, torn=True, seeds=150)}
    whole = old[:100] + new
    before = old + bytes(len(whole) - len(old))
    edges = [0, SECTOR, 2 * SECTOR, 3 * SECTOR, len(whole)]
    allowed = {
        b"".join(
            (whole if taken else before)[first:last]
            for taken, (first, last) in zip(choice, itertools.pairwise(edges), strict=True)
        )
        for choice in itertools.product([False, True], repeat=4)
    }
    assert found <= allowed | {old}
    assert len(found) == len(allowed | {old})


def test_unsynced_rename_survives_or_not(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        (root / "a").write_bytes(b"old")
        write(disk, root / "a.tmp", b"new", sync=True)
        disk.rename(str(root / "a.tmp"), str(root / "a"))

    found = outcomes(tmp_path, act)
    assert sorted(map(str, found)) == sorted(map(str, [{"a": b"old"}, {"a": b"old", "a.tmp": b"new"}, {"a": b"new"}]))


def test_atomic_write_leaves_old_or_new_file(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        disk.write_atomic(str(root / "a"), b"old", sync=True)
        disk.write_atomic(str(root / "a"), b"new", sync=True)

    assert outcomes(tmp_path, act, torn=True) == [{"a": b"new"}]


def test_unsynced_removal_of_a_tree_returns_in_part(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        (root / "d").mkdir()
        for name in "xyz":
            (root / "d" / name).write_bytes(name.encode())
        disk.rename(str(root / "d"), str(root / "d-delete"))
        disk.sync_dir(str(root))
        disk.remove_tree(str(root / "d-delete"))

    found = [sorted(each) for each in outcomes(tmp_path, act)]
    assert [] in found
    assert ["d-delete"] in found
    assert ["d-delete", "d-delete/x", "d-delete/y", "d-delete/z"] in found
    assert ["d-delete", "d-delete/y", "d-delete/z"] in found


def test_unsynced_directory_rename_is_undone_with_its_files(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        (root / "d").mkdir()
        (root / "d" / "x").write_bytes(b"x")
        disk.rename(str(root / "d"), str(root / "e"))
        write(disk, root / "e" / "x", b"y")

    found = outcomes(tmp_path, act)
    names = {
        "d": [{"d": None, "d/x": data} for data in (b"x", b"y")],
        "e": [{"e": None, "e/x": data} for data in (b"x", b"y")],
    }
    assert sorted(map(str, found)) == sorted(map(str, names["d"] + names["e"]))


def test_file_in_a_lost_directory_is_lost(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        disk.make_dir(str(root / "d" / "e"))
        write(disk, root / "d" / "e" / "x", b"x", sync=True)
        disk.sync_dir(str(root / "d" / "e"))

    found = [sorted(each) for each in outcomes(tmp_path, act)]
    assert sorted(found) == [[], ["d"], ["d", "d/e", "d/e/x"]]


def test_name_changes_keep_order_per_disk_or_per_directory(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        for name in ("d", "e"):
            (root / name).mkdir()
            write(disk, root / name / "x", b"")

    found = [sorted(each) for each in outcomes(tmp_path, act)]
    assert sorted(found) == [["d", "d/x", "e"], ["d", "d/x", "e", "e/x"], ["d", "e"], ["d", "e", "e/x"]]


def test_move_between_directories_needs_fsync_of_both(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        for name in ("d", "e"):
            (root / name).mkdir()
        (root / "d" / "x").write_bytes(b"x")
        write(disk, root / "e" / "y", b"", sync=True)
        disk.rename(str(root / "d" / "x"), str(root / "e" / "x"))
        disk.sync_dir(str(root / "d"))

    assert outcomes(tmp_path, act) == [{"d": None, "e": None, "e/x": b"x", "e/y": b""}]


def test_write_during_fsync_is_not_covered(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        write(disk, root / "a", b"1", sync=True)
        disk.sync_dir(str(root))
        file = disk.open(str(root / "a"))

        def hold(operation: str, path: str) -> None:
            if operation == "sync":
                disk.hook = None
                write(disk, root / "a", b"2", 1)

        disk.hook = hold
        file.sync()

    assert {found["a"] for found in outcomes(tmp_path, act)} == {b"1", b"12"}


def test_data_of_failed_fsync_is_never_durable(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        disk.sync_dir(str(root))
        file = disk.open(str(root / "a"), create=True)
        disk.sync_dir(str(root))
        file.pwrite(b"1", 0)
        disk.fail("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()

    assert {found["a"] for found in outcomes(tmp_path, act)} == {b"", b"1"}


def test_crash_at_any_step_stops_all_later_operations(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.write_atomic(str(tmp_path / "a"), b"old", sync=True)
    total = disk.steps
    assert total == 6, "made, cut, written, synced, renamed, its directory synced"
    for stop_at in range(total):
        disk = FaultyDisk()
        disk.stop_at = stop_at
        with pytest.raises(Crash, match=f"before step {stop_at}"):
            disk.write_atomic(str(tmp_path / "a"), b"new", sync=True)
        assert disk.steps == stop_at
        with pytest.raises(Crash):
            disk.read_bytes(str(tmp_path / "a"))
        assert (tmp_path / "a").read_bytes() == (b"new" if stop_at == 5 else b"old")
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a.tmp").unlink(missing_ok=True)
