"""The directory of the served tree, which the brokers of one machine share: its access rights, lock, and port.

    coordination.lock       held by the process that serves (an OFD lock: it ends with the process)
    coordination.journal    the tree and its sessions
    coordination.port       where the process that serves listens, on 127.0.0.1
    coordination.secret     32 hexadecimal digits, which a new session needs; created once, with the mode 0600

The directory has the mode 0700, as the journal has passwords of sessions. One that other users can read is refused,
unless it is empty.
"""

import errno
import logging
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.clock import Random
from kafkalite.coordination import journal
from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.coordination.journal_file import JournalFile, load_steps, open_loaded, read_journal
from kafkalite.slicing import Steps

LOGGER = logging.getLogger("kafkalite.coordination")
LOCK, JOURNAL, PORT = "coordination.lock", "coordination.journal", "coordination.port"
SECRET, SECRET_BYTES, SECRET_MODE = "coordination.secret", 16, 0o600
SECRET_TEXT = re.compile(rb"[0-9a-f]{%d}" % (2 * SECRET_BYTES))
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
PORT_MIN = 10_000
ANY_PORT = 0  # the kernel chooses
PORT_TEXT = re.compile(rb"[0-9]{1,5}")


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

    def prepare(self, secret: bytes) -> None:
        """Create the directory and its secret. Raises OSError, also where other users have access to it.

        secret: a random one, for a directory that has none.
        """
        try:
            os.makedirs(self.path, 0o700)
        except FileExistsError:
            self._check()
        if not os.path.exists(os.path.join(self.path, SECRET)):
            self._create_secret(secret)

    def _create_secret(self, secret: bytes) -> None:
        """Create the file with its contents, unless another process does so at the same time."""
        path, text = os.path.join(self.path, SECRET), secret.hex()
        temporary = f"{path}.{text[:8]}"
        with open(os.open(temporary, os.O_CREAT | os.O_WRONLY, SECRET_MODE), "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            LOGGER.debug("%s: another process has created it", path)
        finally:
            os.unlink(temporary)

    def secret(self) -> bytes:
        """Return the secret. Raises OSError; ConnectionLossError: no process has prepared the directory yet."""
        path = os.path.join(self.path, SECRET)
        try:
            with open(path, "rb") as file:
                text = file.read(2 * SECRET_BYTES + 2).strip()
        except FileNotFoundError:
            raise ConnectionLossError(detail=f"{self.path}: no process serves the directory yet") from None
        if not SECRET_TEXT.fullmatch(text):
            reason = f"it must have {2 * SECRET_BYTES} hexadecimal digits: stop all brokers, and remove it"
            raise OSError(errno.EINVAL, reason, path)
        return bytes.fromhex(text.decode())

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
        except BlockingIOError:
            file.close()
            return False
        except BaseException:
            file.close()
            raise
        self._lock = file
        return True

    def holds_name(self) -> bool:
        """Whether the lock file that this process holds still has its name. Raises OSError."""
        if self._lock is None:
            return False
        try:
            return os.path.samestat(os.stat(self._lock.path), os.fstat(self._lock.fd))
        except FileNotFoundError:
            return False

    def unlock(self) -> None:
        """Let another process serve."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

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

    # The port.

    def port(self) -> int:
        """Return where the process that serves listens. Raises ConnectionLossError: there has been none yet."""
        port = self.noted_port()
        if port is None:
            raise ConnectionLossError(detail=f"{self.path}: no process serves the directory yet")
        return port

    def noted_port(self) -> int | None:
        """Return the port of the last process that served, None if there is none. Raises OSError."""
        path = os.path.join(self.path, PORT)
        text = self._disk.read_bytes(path).strip() if self._disk.exists(path) else b""
        return int(text) if PORT_TEXT.fullmatch(text) else None

    def write_port(self, port: int) -> None:
        """Say where this process listens. Raises OSError."""
        self._disk.write_atomic(os.path.join(self.path, PORT), b"%d\n" % port, sync=False)


def chosen_port(random: Random) -> int:
    """Return a port that the kernel gives to no client; ANY_PORT where each port may be given to a client.

    The port of a client's range may be in use by a client when the next process wants to serve on it.
    """
    low, high = map(int, Path(PORT_RANGE).read_text().split())
    begin, end = (PORT_MIN, low) if low > PORT_MIN else (high + 1, 65_536)
    return ANY_PORT if begin >= end else begin + random.below(end - begin)
