"""Sync threads: the files and the order of a batch, its errors, and the end of the threads."""

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

from kafkalite._speedups.storage.file import Disk, File
from kafkalite._speedups.storage.sync_threads import SyncThreads
from kafkalite.testing.faulty_disk import FaultyDisk

READY_S = 120.0


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@contextmanager
def held(path: Path) -> Iterator[bytes]:
    """A small file that no lane can open before the block ends: its lease is taken."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the signal that another process opens the file
    fd = os.open(os.fsdecode(path_of(path, "held")), os.O_RDWR)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield os.fsencode(path / "held")
    finally:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(fd)
        signal.signal(signal.SIGIO, before)


class Rig:
    """Sync threads and the descriptor that reports a complete batch."""

    def __init__(self, threads_max: int = 4) -> None:
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.threads_max = SyncThreads(self.wake, threads_max)

    def result(self) -> OSError | None:
        assert self.readable(READY_S), "the end of the batch was not reported"
        assert os.eventfd_read(self.wake) == 1, "each batch is reported once"
        assert not self.threads_max.busy
        return self.threads_max.result()

    def readable(self, timeout_s: float) -> bool:
        """Whether the end of a batch is reported in time; `select` has no descriptors above 1,023."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        self.threads_max.close()
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
@pytest.mark.parametrize("threads_max", [1, 4])
def test_batches_of_any_size_end_once(tmp_path: Path, count: int, threads_max: int) -> None:
    rig = Rig(threads_max)
    try:
        data, small = files(tmp_path, count), [path_of(tmp_path, "epochs")]
        for _ in range(3):
            rig.threads_max.begin(small, data, [os.fsencode(tmp_path)])
            assert rig.result() is None
            rig.threads_max.begin([], data, [])
            assert rig.result() is None
        assert rig.threads_max.threads_count == min(threads_max, count + 2)
    finally:
        rig.close()


def test_missing_file_is_no_error(rig: Rig, tmp_path: Path) -> None:
    gone = os.fsencode(tmp_path / "gone")
    rig.threads_max.begin([gone], [], [gone])
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
    rig.threads_max.begin([], [*others[:3], rig.file, *others[3:]], [])
    error = rig.result()
    assert error is not None and (error.errno, error.filename) == (errno.EBADF, rig.file.path)
    rig.threads_max.begin([], others, [])
    assert rig.result() is None, "it is told once"
    rig.close()


def test_failed_stage_ends_the_batch(tmp_path: Path) -> None:
    rig = Broken(tmp_path)
    not_a_file = os.fsencode(tmp_path)
    not_a_directory = path_of(tmp_path, "file")
    rig.threads_max.begin([not_a_file], [rig.file], [not_a_directory])
    error = rig.result()
    assert error is not None and error.errno == errno.EISDIR, "the small files come first"
    rig.threads_max.begin([], [rig.file], [not_a_directory])
    error = rig.result()
    assert error is not None and error.errno == errno.EBADF, "then the batches"
    rig.threads_max.begin([], files(tmp_path, 2), [not_a_directory])
    error = rig.result()
    assert error is not None and error.errno == errno.ENOTDIR, "then the directories"
    rig.close()


def test_one_batch_at_a_time(rig: Rig, tmp_path: Path) -> None:
    data = files(tmp_path, 1)
    with pytest.raises(ValueError, match="nothing"):
        rig.threads_max.begin([], [], [])
    rig.threads_max.begin([], data, [])
    with pytest.raises(RuntimeError, match="in progress"):
        rig.threads_max.begin([], data, [])
    assert rig.result() is None


def test_file_of_another_type_is_rejected(rig: Rig, tmp_path: Path) -> None:
    watched = FaultyDisk().open(str(tmp_path / "watched.log"), create=True)
    with pytest.raises(TypeError, match="a job"):
        rig.threads_max.begin([], [*files(tmp_path, 2), watched], [])
    assert not rig.threads_max.busy


def test_slow_sync_delays_its_batch_only(rig: Rig, tmp_path: Path) -> None:
    with held(tmp_path) as path:
        rig.threads_max.begin([path_of(tmp_path, "quick"), path], files(tmp_path, 3), [])
        assert rig.threads_max.busy
        with pytest.raises(RuntimeError, match="in progress"):
            rig.threads_max.result()
        assert not rig.readable(0)
    assert rig.result() is None


def test_close_waits_for_the_running_batch(tmp_path: Path) -> None:
    rig = Rig()
    closing = threading.Thread(target=rig.threads_max.close)
    with held(tmp_path) as path:
        rig.threads_max.begin([path], files(tmp_path, 3), [])
        closing.start()
        assert closing.is_alive() and rig.threads_max.busy, "it waits without the GIL"
    closing.join()
    assert rig.result() is None and rig.threads_max.threads_count == 0
    with pytest.raises(RuntimeError, match="closed"):
        rig.threads_max.begin([], files(tmp_path, 1), [])
    rig.close()


@pytest.mark.parametrize("close", [True, False])
def test_no_thread_is_left(tmp_path: Path, close: bool) -> None:
    before, data = threads(), files(tmp_path, 2)
    for _ in range(20):
        rig = Rig()
        rig.threads_max.begin([], data, [])
        assert rig.result() is None
        assert rig.threads_max.threads_count == 2
        if close:
            rig.threads_max.close()
        wake = rig.wake
        del rig
        os.close(wake)
    assert threads() < before + 10, "40 were begun"


@pytest.mark.parametrize("threads_max", [0, 17, -1])
def test_invalid_number_of_threads_is_rejected(threads_max: int) -> None:
    with pytest.raises(ValueError, match="1 to 16"):
        SyncThreads(0, threads_max)
