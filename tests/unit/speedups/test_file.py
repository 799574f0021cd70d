"""The disk port and its faulty twin."""

import errno
import os
import random
import tempfile
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk, File, FileRegion
from kafkalite.storage.retention import remove_now
from kafkalite.testing.faulty_disk import FaultyDisk

MEMORY = Path("/dev/shm")


@pytest.fixture(params=[Disk, FaultyDisk])
def disk(request: pytest.FixtureRequest) -> Disk:
    found: Disk = request.param()
    return found


def test_read_and_write(tmp_path: Path, disk: Disk) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    assert file.pwrite(b"hello", 3) == 5
    assert file.pwrite(memoryview(b"12345")[1:3], 0) == 2
    assert (file.pread(100, 0), file.pread(2, 4), file.pread(5, 100), file.size()) == (b"23\0hello", b"el", b"", 8)
    file.truncate(4)
    file.sync()
    assert disk.read_bytes(str(tmp_path / "f")) == b"23\0h"
    with pytest.raises(ValueError, match="cannot read -1 bytes"):
        file.pread(-1, 0)


def test_a_missing_file(tmp_path: Path, disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "f"))
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "f"), read_only=True)


def test_read_only_refuses_writes(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "f").write_bytes(b"x")
    file = disk.open(str(tmp_path / "f"), read_only=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"y", 0)


def test_a_full_disk_raises(disk: Disk) -> None:
    full = disk.open("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        full.pwrite(b"x", 0)


def test_a_closed_file_raises(tmp_path: Path, disk: Disk) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)


def test_descriptor_is_closed_with_the_last_reference(tmp_path: Path) -> None:
    file = Disk().open(str(tmp_path / "f"), create=True)
    file.pwrite(b"kept", 0)
    fd = file.fd
    region = FileRegion(file, 1, 2)
    del file
    os.unlink(tmp_path / "f")
    assert region.read() == b"ep"
    assert (len(region), region.offset, region.length) == (2, 1, 2)
    del region
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_region_of_a_shortened_file_raises(tmp_path: Path, disk: Disk) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(b"0123456789", 0)
    region = FileRegion(file, 4, 6)
    file.truncate(9)
    with pytest.raises(OSError, match="ends inside the region"):
        region.read()


def test_write_atomic_replaces_whole(tmp_path: Path, disk: Disk) -> None:
    path = tmp_path / "checkpoint"
    for data in (b"first, and longer", b"second"):
        disk.write_atomic(str(path), data, sync=True)
        assert path.read_bytes() == data
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_dir"])
def test_a_failed_write_atomic_keeps_the_old(tmp_path: Path, operation: str) -> None:
    disk = FaultyDisk()
    path = tmp_path / "checkpoint"
    disk.write_atomic(str(path), b"old", sync=True)
    disk.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        disk.write_atomic(str(path), b"new", sync=True)
    assert path.read_bytes() == (b"new" if operation == "sync_dir" else b"old")


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_replace_without_descriptors_keeps_the_old_file(tmp_path: Path, error: int, sync: bool) -> None:
    """Whichever of the calls that take a descriptor fails, the rename did not happen."""
    disk = FaultyDisk()
    path = tmp_path / "checkpoint"
    disk.replace(str(path), b"old", sync=sync)
    taken = disk.counts["descriptor"]
    for when in range(1, taken + 1):
        disk.fail("descriptor", error, when=when)
        with pytest.raises(OSError, match="Too many open files"):
            disk.replace(str(path), b"new", sync=sync)
        assert path.read_bytes() == b"old"
        assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]
    assert taken == 1 + sync
    file = disk.replace(str(path), b"new", sync=sync)
    assert (file.path, file.pread(10, 0), path.read_bytes()) == (str(path), b"new", b"new")


def test_directories(tmp_path: Path, disk: Disk) -> None:
    root = str(tmp_path / "a" / "b")
    disk.make_dir(root)
    disk.make_dir(root)
    disk.open(root + "/y", create=True)
    disk.open(root + "/x", create=True)
    assert (disk.list(root), disk.is_dir(root), disk.exists(root + "/z")) == (["x", "y"], True, False)
    disk.rename(root + "/x", root + "/z")
    disk.remove(root + "/y")
    disk.sync_dir(root)
    assert disk.list(root) == ["z"]
    assert (disk.is_regular(root + "/z"), disk.is_regular(root), disk.is_regular(root + "/no")) == (True, False, False)
    disk.remove_tree(root)
    assert not disk.exists(root)
    free, total = disk.free_bytes(str(tmp_path))
    assert 0 < free <= total


def test_a_lock_is_for_one(tmp_path: Path, disk: Disk) -> None:
    first = disk.open(str(tmp_path / ".lock"), create=True)
    second = disk.open(str(tmp_path / ".lock"), create=True)
    first.lock()
    with pytest.raises(BlockingIOError):
        second.lock()
    first.close()
    second.lock()


def test_faults_come_when_asked(tmp_path: Path) -> None:
    disk = FaultyDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    disk.fail("write", errno.ENOSPC, when=2, allowed=3)
    file.pwrite(b"aaaa", 0)
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"bbbb", 4)
    assert file.pread(10, 0) == b"aaaabbb"
    file.pwrite(b"cc", 7)
    disk.fail("read", errno.EIO, path="other")
    assert file.pread(2, 7) == b"cc"
    disk.fail("read", errno.EIO, repeat=True)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.pread(1, 0)
    disk.heal()
    assert file.pread(1, 0) == b"a"
    assert disk.counts["write"] == 3


def test_crash_loses_only_unsynced_data(tmp_path: Path) -> None:
    for seed in range(50):
        disk = FaultyDisk()
        file: File = disk.open(str(tmp_path / f"f{seed}"), create=True)
        disk.sync_dir(str(tmp_path))
        file.pwrite(b"synced", 0)
        file.sync()
        states = [b"synced"]
        for change in (b"one", b"two"):
            file.pwrite(change, file.size())
            states.append(states[-1] + change)
        file.truncate(4)
        states.append(b"sync")
        lost = disk.crash(random.Random(seed), torn=False)
        assert file.pread(100, 0) == states[3 - lost], f"seed {seed}"


def test_files_of_tmpfs_are_resident(tmp_path: Path, disk: Disk) -> None:
    """tmpfs does not know RWF_NOWAIT: without an answer a job would read all data once more for each fetch."""
    directory = MEMORY if MEMORY.is_mount() else tmp_path
    with tempfile.NamedTemporaryFile(dir=directory) as created:
        created.write(bytes(300_000))
        created.flush()
        assert disk.open(created.name, read_only=True).resident(0, 300_000) == 1


def test_removal_of_a_linked_directory_removes_the_link_alone(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "0.log").write_bytes(b"records")
    (tmp_path / "t-0").symlink_to("target")
    disk = Disk()
    disk.remove_tree(str(tmp_path / "t-0"))
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (tmp_path / "target" / "0.log").read_bytes() == b"records"


def test_removal_on_a_full_disk_keeps_the_files_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "0.index").write_bytes(b"index")
    (tmp_path / "t-0").symlink_to("target")
    remove_now(Disk(), str(tmp_path / "t-0"), str(tmp_path / "t-0.x-delete"))
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (tmp_path / "target" / "0.index").read_bytes() == b"index"
