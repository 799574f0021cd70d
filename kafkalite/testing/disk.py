"""The faulty disk: a `Disk` that counts, fails on demand, and forgets what was never synced.

    disk = FaultyDisk()
    disk.fail("write", errno.ENOSPC, when=3, allowed=10)     # the third write from now on stops after 10 bytes
    ...
    disk.crash(random)                                       # files lose some of what came after their last sync

Operations: write, read, truncate, sync (of files); open, rename, remove, remove_tree, make_dir, sync_dir (of the disk).
"""

import os
import random as randoms
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kafkalite._speedups.file import Disk, File


@dataclass(slots=True)
class Fault:
    """Fail the operation number `when` (1 = the next) on a path that contains `path`; `repeat` goes on failing."""

    operation: str
    error: int
    when: int
    path: str
    allowed: int
    repeat: bool


@dataclass(frozen=True, slots=True)
class Unsynced:
    """How to undo one change of a file: the bytes that were there and the size it had."""

    offset: int
    before: bytes
    size: int


class FaultyFile(File):
    """A file of a `FaultyDisk`."""

    disk: "FaultyDisk"

    def before(self, operation: str, offset: int, size: int) -> int:
        """Count, fail where the test says so, and remember what a crash would bring back."""
        allowed = self.disk.happens(operation, self.path, size)
        if operation == "sync":
            self.disk.unsynced.pop(self.inode(), None)
        elif operation in ("write", "truncate"):
            self.remember(operation, offset, size)
        return allowed

    def inode(self) -> int:
        """What identifies the file whatever its name."""
        return os.fstat(self.fd).st_ino

    def remember(self, operation: str, offset: int, size: int) -> None:
        """Keep what the change overwrites or cuts off."""
        current = os.fstat(self.fd).st_size
        length = size if operation == "write" else max(0, current - offset)
        change = Unsynced(offset, os.pread(self.fd, length, offset), current)
        _, changes = self.disk.unsynced.setdefault(self.inode(), (self, []))
        changes.append(change)


class FaultyDisk(Disk):
    """A disk that does what the test says.

    `counts`: how often each operation happened. `trace`: (operation, path) of all, in order. `hook`: called before each
    operation, for instance to kill at it.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.trace: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.unsynced: dict[int, tuple[FaultyFile, list[Unsynced]]] = {}
        self.hook: Callable[[str, str], None] | None = None

    def fail(
        self, operation: str, error: int, *, when: int = 1, path: str = "", allowed: int = 0, repeat: bool = False
    ) -> None:
        """Plan a fault; `allowed`: bytes a failing write still brings to the file."""
        self.faults.append(Fault(operation, error, when, path, allowed, repeat))

    def heal(self) -> None:
        """No faults any more."""
        self.faults.clear()

    def happens(self, operation: str, path: str, size: int = 0) -> int:
        """Count the operation; raise the planned OSError, or answer how many of `size` bytes may be written."""
        self.counts[operation] += 1
        self.trace.append((operation, path))
        if self.hook is not None:
            self.hook(operation, path)
        for fault in self.faults:
            if fault.operation != operation or fault.path not in path:
                continue
            fault.when -= 1
            if fault.when > 0:
                continue
            if not fault.repeat:
                self.faults.remove(fault)
            if operation == "write" and 0 < fault.allowed < size:
                return fault.allowed
            raise OSError(fault.error, os.strerror(fault.error), path)
        return size

    def crash(self, random: randoms.Random) -> int:
        """Undo a random tail of every file's changes since its last sync; answer how many changes were lost."""
        lost = 0
        for file, changes in self.unsynced.values():
            for _ in range(random.randint(0, len(changes))):
                change = changes.pop()
                os.pwrite(file.fd, change.before, change.offset)
                os.ftruncate(file.fd, change.size)
                lost += 1
        self.unsynced.clear()
        return lost

    def make_file(self, path: str, fd: int) -> FaultyFile:
        """A file that reports to this disk."""
        file = FaultyFile(path, fd)
        file.disk = self
        return file

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.happens("open", path)
        return super().open(path, create=create, read_only=read_only)

    def rename(self, old: str, new: str) -> None:
        self.happens("rename", old)
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.happens("remove", path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.happens("remove_tree", path)
        super().remove_tree(path)

    def make_dir(self, path: str) -> None:
        self.happens("make_dir", path)
        super().make_dir(path)

    def sync_dir(self, path: str) -> None:
        self.happens("sync_dir", path)
        super().sync_dir(path)
