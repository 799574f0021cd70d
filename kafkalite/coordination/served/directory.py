"""The directory of the served tree, which the brokers of one machine share: its access rights, lock, and journal.

    coordination.lock       held by the process that serves (an OFD lock: it ends with the process)
    coordination.journal    the tree and its sessions
    coordination.socket     where the process that serves listens: see `local_socket`

The directory has the mode 0700, as the journal has passwords of sessions. One that other users can read is refused,
unless it is empty.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.coordination import journal
from kafkalite.coordination.journal_file import JournalFile, load_steps, open_loaded, read_journal
from kafkalite.coordination.served.local_socket import SOCKET
from kafkalite.slicing import Steps

LOCK, JOURNAL = "coordination.lock", "coordination.journal"
FILES_OF_PORTS = ("coordination.port", "coordination.secret")  # of builds that served on a port of 127.0.0.1


class NewJournal(NamedTuple):
    """A journal that was read, and the bytes of one with the same tree."""

    loaded: journal.LoadedJournal
    whole: bytes


class CoordinationDirectory:
    """The directory.

    Arguments:
        disk: holds it.
        path: where it is.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._journal = os.path.join(path, JOURNAL)
        self._disk = disk
        self._lock: File | None = None
        self._socket: os.stat_result | None = None

    def prepare(self) -> None:
        """Create the directory. Raises OSError, also where other users have access to it."""
        try:
            os.makedirs(self.path, 0o700)
        except FileExistsError:
            self._check()

    def _check(self) -> None:
        status = os.stat(self.path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path)
        if status.st_uid != os.geteuid():
            text = (
                f"it belongs to the user with id {status.st_uid}, who can change its files: use a directory of your own"
            )
            raise PermissionError(errno.EPERM, text, self.path)
        if status.st_mode & 0o077 == 0:
            return
        if os.listdir(self.path):
            mode = stat.S_IMODE(status.st_mode)
            text = f"its mode is {mode:04o}, other users have access: use an empty directory, or `chmod 700` it"
            raise PermissionError(errno.EPERM, text, self.path)
        os.chmod(self.path, 0o700)

    # The lock.

    def lock(self) -> bool:
        """Try to become the process that serves. Raises OSError."""
        if self._lock is not None:
            return True
        file = self._disk.open(os.path.join(self.path, LOCK), create=True)
        try:
            file.lock()
            self._remove_files_of_ports()
        except BlockingIOError:
            file.close()
            return False
        except BaseException:
            file.close()
            raise
        self._lock = file
        return True

    def _remove_files_of_ports(self) -> None:
        """With the lock no earlier build serves, so nothing reads its port and its secret."""
        for name in FILES_OF_PORTS:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, name))

    def note_socket(self) -> None:
        """Note the socket on which this process listens from now on, for `holds_names`. Raises OSError."""
        self._socket = os.stat(os.path.join(self.path, SOCKET))

    def holds_names(self) -> bool:
        """Job: whether the lock file and the socket of this process still have their names. Raises OSError."""
        lock, listening = self._lock, self._socket
        if lock is None or listening is None:
            return False
        try:
            named = os.stat(os.path.join(self.path, SOCKET))
            return os.path.samestat(os.stat(lock.path), os.fstat(lock.fd)) and os.path.samestat(named, listening)
        except FileNotFoundError:
            return False

    def unlock(self) -> None:
        """Remove the socket of this process, and let another process serve."""
        if self._lock is not None:
            self._remove_socket()
            self._lock.close()
            self._lock = self._socket = None

    def _remove_socket(self) -> None:
        """Without its socket the directory has nothing but files, so any tool can copy it.

        If the lock file was replaced, the socket may be the one of another process, and stays.
        """
        path = os.path.join(self.path, SOCKET)
        with suppress(OSError):  # the next process replaces it
            if self._socket is not None and os.path.samestat(os.stat(path), self._socket):
                os.unlink(path)

    # The journal; only with the lock.

    def read(self) -> bytes:
        """Job: return the bytes of the journal. Raises OSError."""
        return read_journal(self._disk, self._journal, journal.SERVED_FORMAT)

    def load_steps(self, data: bytes) -> Steps:
        """Read the tree from the bytes of the journal, in slices; returns a `NewJournal`. Raises JournalError."""
        loaded = yield from load_steps(self._journal, data, journal.SERVED_FORMAT)
        return NewJournal(loaded, (yield from journal.snapshot_steps(loaded.tree, journal.SERVED_FORMAT)))

    def open(self, new: "NewJournal") -> JournalFile:
        """Job: open the journal, and write it as a new file. Raises OSError.

        A flush of the former process may have failed, and the kernel forgets such pages as if they were clean. So the
        old file cannot be relied on, except where the disk has no space for a new one.
        """
        file = open_loaded(self._disk, self._journal, new.loaded)
        try:
            file.replace(new.whole)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                file.close()
                raise
        return file
