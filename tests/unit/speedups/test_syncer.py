"""Lanes: what a round brings to the disk, in which order, what it says of errors, and how the threads end."""

import errno
import fcntl
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalite._speedups.file import Disk, File
from kafkalite._speedups.syncer import SyncLanes
from kafkalite.testing.disk import FaultyDisk

READY_S = 120.0


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@contextmanager
def held(path: Path) -> Iterator[bytes]:
    """A small file that no lane can open before the block ends: its lease is taken."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # which tells that somebody wants to
    fd = os.open(os.fsdecode(path_of(path, "held")), os.O_RDWR)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield os.fsencode(path / "held")
    finally:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(fd)
        signal.signal(signal.SIGIO, before)


class Rig:
    """Lanes and the descriptor on which they tell that a round is over."""

    def __init__(self, lanes: int = 4) -> None:
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.lanes = SyncLanes(self.wake, lanes)

    def result(self) -> OSError | None:
        assert select.select([self.wake], [], [], READY_S)[0], "nobody told the end of the round"
        assert os.eventfd_read(self.wake) == 1, "each round is told once"
        assert not self.lanes.busy
        return self.lanes.result()

    def close(self) -> None:
        self.lanes.close()
        os.close(self.wake)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def files(path: Path, count: int) -> list[File]:
    disk, made = Disk(), []
    for number in range(count):
        made.append(disk.open(str(path / f"{number}.log"), create=True))
        made[-1].pwrite(b"x" * 100, 0)
    return made


def path_of(path: Path, name: str) -> bytes:
    (path / name).write_bytes(b"small")
    return os.fsencode(path / name)


@pytest.mark.parametrize("count", [1, 2, 3, 20])
@pytest.mark.parametrize("lanes", [1, 4])
def test_rounds_of_any_size_end_once(tmp_path: Path, count: int, lanes: int) -> None:
    rig = Rig(lanes)
    try:
        data, small = files(tmp_path, count), [path_of(tmp_path, "epochs")]
        for _ in range(3):
            rig.lanes.begin(small, data, [os.fsencode(tmp_path)])
            assert rig.result() is None
            rig.lanes.begin([], data, [])
            assert rig.result() is None
        assert rig.lanes.threads_count == min(lanes, count + 2)
    finally:
        rig.close()


def test_what_is_gone_is_no_error(rig: Rig, tmp_path: Path) -> None:
    gone = os.fsencode(tmp_path / "gone")
    rig.lanes.begin([gone], [], [gone])
    assert rig.result() is None


class Broken(Rig):
    """Lanes over a file whose descriptor was closed: its sync fails."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = files(path, 1)[0]
        self.file.close()


def test_an_error_names_its_file_and_the_others_are_synced_all_the_same(tmp_path: Path) -> None:
    rig = Broken(tmp_path)
    others = files(tmp_path, 5)
    rig.lanes.begin([], [*others[:3], rig.file, *others[3:]], [])
    error = rig.result()
    assert error is not None and (error.errno, error.filename) == (errno.EBADF, rig.file.path)
    rig.lanes.begin([], others, [])
    assert rig.result() is None, "it is told once"
    rig.close()


def test_the_first_stage_that_fails_ends_the_round(tmp_path: Path) -> None:
    rig = Broken(tmp_path)
    not_a_file = os.fsencode(tmp_path)
    not_a_directory = path_of(tmp_path, "file")
    rig.lanes.begin([not_a_file], [rig.file], [not_a_directory])
    error = rig.result()
    assert error is not None and error.errno == errno.EISDIR, "the small files come first"
    rig.lanes.begin([], [rig.file], [not_a_directory])
    error = rig.result()
    assert error is not None and error.errno == errno.EBADF, "then the batches"
    rig.lanes.begin([], files(tmp_path, 2), [not_a_directory])
    error = rig.result()
    assert error is not None and error.errno == errno.ENOTDIR, "then the directories"
    rig.close()


def test_one_round_at_a_time(rig: Rig, tmp_path: Path) -> None:
    data = files(tmp_path, 1)
    with pytest.raises(ValueError, match="nothing"):
        rig.lanes.begin([], [], [])
    rig.lanes.begin([], data, [])
    with pytest.raises(RuntimeError, match="under way"):
        rig.lanes.begin([], data, [])
    assert rig.result() is None


def test_a_file_that_wants_to_hear_of_its_syncs_is_refused(rig: Rig, tmp_path: Path) -> None:
    watched = FaultyDisk().open(str(tmp_path / "watched.log"), create=True)
    with pytest.raises(TypeError, match="a job"):
        rig.lanes.begin([], [*files(tmp_path, 2), watched], [])
    assert not rig.lanes.busy


def test_a_held_sync_holds_the_round_and_nobody_else(rig: Rig, tmp_path: Path) -> None:
    with held(tmp_path) as path:
        rig.lanes.begin([path_of(tmp_path, "quick"), path], files(tmp_path, 3), [])
        assert rig.lanes.busy
        with pytest.raises(RuntimeError, match="under way"):
            rig.lanes.result()
        assert not select.select([rig.wake], [], [], 0)[0]
    assert rig.result() is None


def test_the_end_waits_for_the_round_that_is_under_way(tmp_path: Path) -> None:
    rig = Rig()
    closing = threading.Thread(target=rig.lanes.close)
    with held(tmp_path) as path:
        rig.lanes.begin([path], files(tmp_path, 3), [])
        closing.start()
        assert closing.is_alive() and rig.lanes.busy, "it waits without the GIL"
    closing.join()
    assert rig.result() is None and rig.lanes.threads_count == 0
    with pytest.raises(RuntimeError, match="closed"):
        rig.lanes.begin([], files(tmp_path, 1), [])
    rig.close()


@pytest.mark.parametrize("close", [True, False])
def test_no_thread_is_left(tmp_path: Path, close: bool) -> None:
    before, data = threads(), files(tmp_path, 2)
    for _ in range(20):
        rig = Rig()
        rig.lanes.begin([], data, [])
        assert rig.result() is None
        assert rig.lanes.threads_count == 2
        if close:
            rig.lanes.close()
        wake = rig.wake
        del rig
        os.close(wake)
    assert threads() < before + 10, "40 were begun"


@pytest.mark.parametrize("lanes", [0, 17, -1])
def test_a_number_of_lanes_that_is_not_possible(lanes: int) -> None:
    with pytest.raises(ValueError, match="1 to 16"):
        SyncLanes(0, lanes)
