"""The file of a journal: appended to, replaced and opened without a half-written state.

1. A failed write is truncated. After a failed truncation or flush the content is unknown (`SyncFailedError`).
2. A later flush would not write what a failed one has lost, although it can still be read (fsync(2)). So the file gets
   a mark beside it, and the next open writes its bytes again.
3. Only the owner can read the file: it has passwords of sessions, and all configs.
"""

import logging
import os
from collections.abc import Callable

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.clock import Outcome
from kafkalite.coordination import journal
from kafkalite.coordination.tree import Tree
from kafkalite.slicing import Steps, finish

LOGGER = logging.getLogger("kafkalite.coordination")
PRIVATE_MODE = 0o600
FAILED = ".failed-fsync"  # behind the name of the journal: its mark


class SyncFailedError(Exception):
    """The content of the file is unknown; the cause is the OSError."""


class JournalFile:
    """The file of a journal; its methods may run as jobs.

    Arguments:
        disk, path: where it is.
        file: open for writing.
        size: number of valid bytes.
    """

    def __init__(self, disk: Disk, path: str, file: File, size: int) -> None:
        self.size = size
        self._disk = disk
        self._path = path
        self._file = file

    def append(self, data: bytes) -> None:
        """Write and sync. Raises OSError if nothing was changed, SyncFailedError if the content is unknown."""
        try:
            self._file.pwrite(data, self.size)
        except OSError:
            self._truncate()
            raise
        try:
            self._file.sync()
        except OSError as error:
            raise self._failed() from error
        self.size += len(data)

    def replace(self, data: bytes) -> None:
        """Replace the file by a smaller one. Raises OSError if the old file is still in use, else SyncFailedError."""
        try:
            make_private(self._disk, self._path)
            self._file = self._disk.replace(self._path, data, sync=True)
        except OSError as error:
            if self._disk.size(self._path) != self.size:
                raise self._failed() from error
            raise
        self.size = len(data)

    def sync(self) -> None:
        """Flush what an earlier process has written; raises OSError."""
        self._file.sync()

    def truncate_to(self, size: int) -> None:
        """Truncate the file to `size`; raises OSError."""
        self._file.truncate(size)
        self._file.sync()
        self.size = size

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _truncate(self) -> None:
        try:
            self.truncate_to(self.size)
        except OSError as error:
            raise self._failed() from error

    def _failed(self) -> SyncFailedError:
        if self._file.fd >= 0:  # else it was closed meanwhile, and the disk has not failed
            self._mark()
        return SyncFailedError(self._path)

    def _mark(self) -> None:
        try:
            self._disk.open(self._path + FAILED, create=True).close()  # without power it is not needed: no fsync
        except OSError as error:
            LOGGER.error("%s: cannot be marked as failed: %s; copy it before the next start", self._path, error)


def make_private(disk: Disk, path: str) -> None:
    """Create the temporary file of `Disk.replace`, readable by its owner alone, before it has contents.

    A journal has passwords of sessions, and all configs. Raises OSError.
    """
    file = disk.open(f"{path}.tmp", create=True)
    try:
        os.fchmod(file.fd, PRIVATE_MODE)
    finally:
        file.close()


def outcome_of_write(job: Callable[[bytes], None], data: bytes) -> Outcome:
    """Write within the call."""
    try:
        job(data)
    except (OSError, SyncFailedError) as error:
        return Outcome(error=error)
    return Outcome()


def open_journal(
    disk: Disk, path: str, version: int, check: Callable[[Tree], object] | None = None
) -> tuple[JournalFile, Tree]:
    """Read the journal at `path`, or begin one; raises OSError, or JournalError with one line naming the file.

    The journal is read, then checked, then written to: a refused journal is unchanged, byte by byte. What was read is
    flushed: the process that wrote it may have ended before its flush.

    Arguments:
        disk, path: where it is.
        version: the format that it must have.
        check: called with the tree before anything is written; raises an error if the tree must not be used.
    """
    loaded: journal.LoadedJournal = finish(load_steps(path, read_journal(disk, path, version), version))
    if check is not None:
        check(loaded.tree)
    return open_loaded(disk, path, loaded), loaded.tree


def read_journal(disk: Disk, path: str, version: int) -> bytes:
    """Return the bytes of the journal at `path`, after beginning one where there is none. Raises OSError."""
    if not disk.exists(path):
        make_private(disk, path)
        disk.write_atomic(path, journal.encode_snapshot(Tree(), version), sync=True)
    return disk.read_bytes(path)


def load_steps(path: str, data: bytes, version: int) -> Steps:
    """`journal.load_steps`, whose JournalError names the file and the next step."""
    try:
        return (yield from journal.load_steps(data, version))
    except journal.JournalError as error:
        raise type(error)(f"{path}: {error}; {error.next_step}") from error


def open_loaded(disk: Disk, path: str, loaded: journal.LoadedJournal) -> JournalFile:
    """Open a journal that was loaded, flush it, and truncate an incomplete write. Raises OSError."""
    opened = disk.open(path)
    os.fchmod(opened.fd, PRIVATE_MODE)  # an earlier version created it for all users
    file = JournalFile(disk, path, opened, loaded.size)
    failed = disk.exists(path + FAILED)
    if failed:
        opened.pwrite(opened.pread(opened.size(), 0), 0)
    file.sync()
    if failed:
        disk.remove(path + FAILED)
        LOGGER.warning("%s: its disk has failed before this start; the file is written again", path)
    if loaded.torn:
        file.truncate_to(loaded.size)
        LOGGER.warning(
            "%s: the last %s bytes are an incomplete write and were removed. After a crash that is normal: no change "
            "in them was acknowledged. A copy is partial: stop the broker, and restore the whole log directory",
            path, f"{loaded.torn:,}",
        )  # fmt: skip
    return file
