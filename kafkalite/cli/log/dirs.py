"""Shared by the offline commands: the log directory of a path, its lock, and a progress bar."""

import asyncio
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.failure import fail
from kafkalite.clock import LoopClock
from kafkalite.server.startup.inventory import compare
from kafkalite.storage import names
from kafkalite.storage.dirs.log_directory import LOCK

# Files that only a log directory has.
OF_LOG_DIRECTORIES = ("meta.properties", "kafkalite.journal")

NOT_A_LOG_DIRECTORY = (
    "neither a log directory nor a partition directory; give a directory of log.dirs (`serve --data`), or a partition "
    "directory in it, such as orders-0"
)


class Target(NamedTuple):
    """A log directory, and the name of the selected partition's directory; None = all."""

    log_dir: Path
    only: str | None


def target_of(path: Path) -> Target:
    """Parse the path of a log directory or of a partition's directory; ends the command for any other path."""
    absolute = Path(os.path.abspath(path))
    named = [entry.name for entry in absolute.iterdir()]
    if any(names.parse_file_name(name) or name == names.PARTITION_METADATA for name in named):
        if names.parse_directory_name(absolute.name) is None:
            fail(f"{path}: not the name of a partition directory, such as orders-0")
        return Target(absolute.parent, absolute.name)
    if not any(name in OF_LOG_DIRECTORIES or is_partition(absolute / name) for name in named):
        fail(f"{path}: {NOT_A_LOG_DIRECTORY}")
    return Target(absolute, None)


def is_log_directory(path: Path) -> bool:
    """Whether a directory is a log directory, by files that a copy of single partitions lacks."""
    return any((path / name).exists() for name in OF_LOG_DIRECTORIES)


def is_partition(path: Path) -> bool:
    """Whether a path is the directory of a partition, by its name and one of its files. Raises OSError."""
    if names.parse_directory_name(path.name) is None or not path.is_dir():
        return False
    return any(names.parse_file_name(each.name) or each.name == names.PARTITION_METADATA for each in path.iterdir())


@contextmanager
def held(disk: Disk, log_dir: Path) -> Iterator[None]:
    """The lock of a log directory. Ends the command while a broker has it; one that was never locked stays as it is."""
    path = str(log_dir / LOCK)
    if not disk.exists(path):
        yield
        return
    lock = disk.open(path)
    try:
        try:
            lock.lock()
        except BlockingIOError:
            fail_used(log_dir)
        yield
    finally:
        lock.close()


@contextmanager
def lock_directory(log_dir: Path) -> Iterator[None]:
    """A log directory that is only read, also one that cannot be written. Ends the command while a broker uses it.

    A shared lock on the lock file is enough for that, and it needs no more than to read the file. Where even that is
    not permitted, the directory is read without a lock.
    """
    with ExitStack() as stack:
        with suppress(FileNotFoundError, PermissionError):
            file = stack.enter_context(open(log_dir / LOCK, "rb"))
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                fail_used(log_dir)
        yield


def fail_used(log_dir: Path) -> NoReturn:
    """End the command, as a broker uses the directory."""
    fail(f"{log_dir}: a broker uses this log directory; stop it first")


@contextmanager
def progress(size: int, label: str = "reading", *, beside: bool = False) -> Iterator[Callable[[int], object]]:
    """A progress bar of `size` bytes, if standard error is a terminal; without `beside` only if the output is none."""
    if not sys.stderr.isatty() or (sys.stdout.isatty() and not beside):
        yield lambda _bytes: None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield bar.update


def warnings_of(disk: Disk, log_dir: Path) -> list[str]:
    """Where the journal and a log directory differ, and its strays; see `inventory.compare`. Raises OSError."""

    async def compare_directories() -> list[str]:
        clock = LoopClock(asyncio.get_running_loop())
        try:
            return await compare(disk, clock, str(log_dir))
        finally:
            clock.close()

    return asyncio.run(compare_directories())


def bytes_of_logs(target: Target) -> int:
    """Total size of the logs, in bytes."""
    pattern = f"{target.only or '*'}/*{names.LOG}"
    return sum(path.stat().st_size for path in target.log_dir.glob(pattern))
