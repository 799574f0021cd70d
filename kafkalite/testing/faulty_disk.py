"""A disk for tests that counts operations, fails on demand, stops at any step, and loses unsynced data.

    disk = FaultyDisk()
    disk.fail("write", errno.ENOSPC, when=3, allowed=10)     # the third write from now on stops after 10 bytes
    disk.stop_at = 17                                        # the process dies before step 17
    ...
    disk.crash(random)                                       # the power fails: see `kafkalite.testing.power_loss`

Operations: write, read, truncate, sync, sync_all (of files); open, rename, remove, remove_tree, make_dir, sync_dir (of
the disk).
A fault of the operation `descriptor` (EMFILE, ENFILE) fails each call that needs a descriptor: open, list, sync_dir,
remove_tree. `lose_writes` models a failed writeback: each open file reports it to one fsync (Linux, errseq_t).
`sync_all` (syncfs) fails if any writeback has failed, and returns False if `sync_all_reports` is off.
Steps are the operations that change something: all but read, and open and make_dir only if they create something.
"""

import errno
import os
import random as randoms
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.testing.power_loss import Inode, UnsyncedChange, UnsyncedState


class Crash(BaseException):
    """The process ends here; no error handler may catch it."""


@dataclass(slots=True)
class Fault:
    """Fail operation number `when` (1 = the next) on a path that contains `path`; `repeat`: and all later ones."""

    operation: str
    error: int
    when: int
    path: str
    allowed: int
    repeat: bool


class FaultyFile(File):
    """A file of a `FaultyDisk`."""

    disk: "FaultyDisk"
    inode: Inode
    errors_seen: int

    def before(self, operation: str, offset: int, size: int) -> int:
        """Count the operation, fail if the test has requested it, and remember the data that a crash would restore."""
        allowed = self.disk.happens(operation, self.path, size, step=operation != "read")
        if operation in ("write", "truncate") and self.inode.content is None:
            self.remember(offset, size)
        return allowed

    def resident(self, offset: int, size: int) -> int:
        """Return the test's answer, else the real one."""
        found = None if self.disk.resident is None else self.disk.resident(self.path, offset, size)
        return int(super().resident(offset, size)) if found is None else found

    def sync(self) -> None:
        """Sync the file. Only `crash` takes away what is not synced, so the kernel is not asked."""
        self.before_sync()

    def before_sync(self) -> int:
        # What is written while a sync is held need not be covered by it.
        count = self.inode.count
        try:
            self.disk.happens("sync", self.path, step=True)
        except OSError:
            self.inode.give_up()
            raise
        self.raise_writeback_error()
        self.inode.synced(count)
        return 0

    def raise_writeback_error(self) -> None:
        """Raise EIO where a writeback failed that this open file has not reported yet."""
        if self.errors_seen != self.inode.writeback_errors:
            self.errors_seen = self.inode.writeback_errors
            self.inode.writeback_reported = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)

    def sync_all(self) -> bool:
        """Sync the whole disk; returns False if the disk does not report errors in this test.

        A disk that lost a write reports it here, as Linux does since 5.8.
        """
        if not self.disk.sync_all_reports:
            return False
        before = self.disk.shadow.moment()
        self.disk.happens("sync_all", self.path, step=True)
        if not self.disk.shadow.synced_all(before):
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        return True

    def remember(self, offset: int, size: int) -> None:
        """Keep the data that the change overwrites or truncates; `size` 0 is a truncation."""
        length = os.fstat(self.fd).st_size
        before = os.pread(self.fd, size or max(0, length - offset), offset)
        self.inode.changes.append(UnsyncedChange(offset, size, before, length))


class FaultyDisk(Disk):
    """A disk that fails as a test demands.

    `counts`: number of each operation. `trace`: (operation, path) of all, in order. `hook`: called before each
    operation; it may block, as a slow disk does, or raise. `steps`: number of changes; `stop_at`: the step before which
    `Crash` is raised; after it no operation has an effect. `resident`: called with path, offset and size; returns
    whether those bytes are in memory: 1 yes, 0 no, -1 unknown, None = the real state. `sync_all_reports`: whether
    `File.sync_all` can be used.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.trace: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.hook: Callable[[str, str], None] | None = None
        self.resident: Callable[[str, int, int], int | None] | None = None
        self.steps = 0
        self.stop_at: int | None = None
        self.crashed = False
        self.sync_all_reports = True
        self.shadow = UnsyncedState()

    def fail(
        self, operation: str, error: int, *, when: int = 1, path: str = "", allowed: int = 0, repeat: bool = False
    ) -> None:
        """Plan a fault.

        Arguments:
            operation: one of the operations above.
            error: the errno.
            when: number of the operation from now on, 1 = the next.
            path: part of the paths that are affected.
            allowed: bytes that a failing write still writes.
            repeat: fail all later operations, too.
        """
        self.faults.append(Fault(operation, error, when, path, allowed, repeat))

    def lose_writes(self, path: str) -> None:
        """Fail the writeback of the file at `path`: its pages are lost, and each open file reports EIO once."""
        inode = self.shadow.inode(path)
        inode.give_up()
        inode.writeback_errors += 1
        inode.writeback_reported = False

    def heal(self) -> None:
        """Remove all faults."""
        self.faults.clear()

    def happens(self, operation: str, path: str, size: int = 0, *, step: bool = False) -> int:
        """Count the operation; raise the planned OSError, or return how many of `size` bytes may be written."""
        if self.crashed or (step and self.steps == self.stop_at):
            self.crashed = True
            raise Crash(f"before step {self.steps}: {operation} {path}")
        self.steps += step
        self.counts[operation] += 1
        self.trace.append((operation, path))
        if self.hook is not None:
            self.call_hook(self.hook, operation, path)
        return self.writable_bytes(operation, path, size)

    def call_hook(self, hook: Callable[[str, str], None], operation: str, path: str) -> None:
        try:
            hook(operation, path)
        except Crash:
            self.crashed = True
            raise

    def writable_bytes(self, operation: str, path: str, size: int) -> int:
        """Raise the fault that is due, or return how many of `size` bytes may be written."""
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

    def crash(self, random: randoms.Random, *, torn: bool | None = None) -> int:
        """Simulate a power failure: undo unsynced changes at random; returns the number of lost changes and names.

        `torn`: whether a change may survive in part; None = at random.
        """
        return self.shadow.crash(random, random.random() < 0.5 if torn is None else torn)

    def make_file(self, path: str, fd: int) -> FaultyFile:
        """A file that reports to this disk."""
        file = FaultyFile(path, fd)
        file.disk = self
        return file

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        new = create and not os.path.lexists(path)
        self.needs_descriptor(path)
        self.happens("open", path, step=new)
        file = super().open(path, create=create, read_only=read_only)
        assert isinstance(file, FaultyFile)
        if new:
            self.shadow.created(path)
        file.inode = self.shadow.inode(path)
        # As errseq_sample: an error that no fsync has reported is reported to files that are opened later, too.
        file.errors_seen = file.inode.writeback_errors - (not file.inode.writeback_reported)
        return file

    def list(self, path: str) -> list[str]:
        self.needs_descriptor(path)
        return list(super().list(path))

    def needs_descriptor(self, path: str) -> None:
        """Count a call that takes a file descriptor, and raise the planned fault of the operation `descriptor`."""
        self.counts["descriptor"] += 1
        self.writable_bytes("descriptor", path, 0)

    def rename(self, old: str, new: str) -> None:
        self.happens("rename", old, step=True)
        self.shadow.keep(old, contents=False)
        self.shadow.keep(new)
        super().rename(old, new)
        self.shadow.renamed(old, new)

    def remove(self, path: str) -> None:
        self.happens("remove", path, step=True)
        self.shadow.keep(path)
        super().remove(path)
        self.shadow.removed(path)

    def remove_tree(self, path: str) -> None:
        self.needs_descriptor(path)
        self.happens("remove_tree", path, step=True)
        self.shadow.keep(path)
        super().remove_tree(path)
        self.shadow.removed(path)

    def make_dir(self, path: str) -> None:
        missing = []
        above = os.path.abspath(path)
        while not os.path.lexists(above):
            missing.append(above)
            above = os.path.dirname(above)
        self.happens("make_dir", path, step=bool(missing))
        super().make_dir(path)
        for made in reversed(missing):
            self.shadow.created(made, folder=True)

    def open_dir(self, path: str) -> File:
        self.needs_descriptor(path)
        file = FaultyFile(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        file.disk = self  # for `sync_all`
        return file

    def sync_open_dir(self, directory: File) -> None:
        # Names that change while the sync is held need not be covered by it.
        before = self.shadow.number
        self.happens("sync_dir", directory.path, step=True)
        self.shadow.synced(directory.path, before)
