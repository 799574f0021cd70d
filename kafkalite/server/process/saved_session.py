"""Keeps the key of this broker's session in its log directory, so that a restart ends the session of a killed process.

1. The session is closed only if the lock that this process holds is the very file (device and inode) that the earlier
   process held, since this machine was booted (the same boot id): then that process is dead, or has stopped. Without
   that the end of its registration is waited for.
2. A copy of a log directory has another lock, which proves nothing. If the process that saved the key runs (process id
   and start time), the directory is a copy of one that is in use, and must not be started.
3. A stop removes the file once the logs are closed, after the session: a kill before that leaves the page cache.
4. The key is a secret: the file has mode 0600. A file of another version, or garbage, is ignored.
"""

import json
import logging
import os
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk, File

LOGGER = logging.getLogger("kafkalite.server")
NAME = "kafkalite.session"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
VERSION = 2
PASSWORD_BYTES = 16
START_TIME_FIELD = 19  # of /proc/PID/stat, behind the name of the process (proc(5): field 22)


class SavedKey(NamedTuple):
    """The right to continue a session: its id and its password of 16 bytes."""

    session_id: int
    password: bytes


class EarlierProcess(NamedTuple):
    """What the file has of the process that saved it.

    Attributes:
        key: of its session; None if the session must not be closed.
        running: its process id if it is another process that runs now, else 0.
        has_page_cache: whether it had this directory in this boot of the machine: what it has written is there, also
            what it has not flushed.
        unclean_since: as of `SavedSession`.
    """

    key: SavedKey | None = None
    running: int = 0
    has_page_cache: bool = False
    unclean_since: int = -1


UNKNOWN = EarlierProcess()


class SavedSession:
    """The file of one broker.

    Arguments:
        disk: has the file.
        directory: the log directory.
        lock: its lock, which this broker holds; None if the directory is offline.
        boot_id: of this boot of the machine, "" where there is none.

    Attributes:
        unclean_since: the broker epoch of the first registration since the last unclean start; 0 = there was none
            since, -1 = there was no unclean start. Saved with the key.
        ended: whether this process has closed the session of the key.
    """

    def __init__(self, disk: Disk, directory: str, lock: File | None, boot_id: str) -> None:
        self.unclean_since = -1
        self.ended = False
        self._disk = disk
        self._boot_id = boot_id
        self._path = os.path.join(directory, NAME)
        self._lock = lock

    def load(self) -> EarlierProcess:
        """Return whether the process that saved the key is dead, so that its session may be closed, or runs."""
        try:
            found = json.loads(self._disk.read_bytes(self._path))
            key = SavedKey(int(found["session_id"]), bytes.fromhex(found["password"]))
            version, process_id = found["version"], int(found.get("process_id", 0))
            unclean_since = int(found.get("unclean_since", -1))
        except FileNotFoundError:
            return UNKNOWN
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            LOGGER.warning("%s is ignored: %r", self._path, error)
            return UNKNOWN
        if version != VERSION or len(key.password) != PASSWORD_BYTES:
            LOGGER.warning("%s is ignored: it has version %r", self._path, version)
            return UNKNOWN
        if not found.get("boot_id") or found["boot_id"] != self._boot_id:
            return UNKNOWN
        if self._lock is not None and found.get("lock") == lock_identity(self._lock):
            return EarlierProcess(key, has_page_cache=True, unclean_since=unclean_since)
        runs = process_id != os.getpid() and started_at(process_id) == found.get("started") != ""
        return EarlierProcess(running=process_id if runs else 0)

    def save(self, key: SavedKey) -> None:
        """Replace the key. A failure is logged: the next start waits then."""
        fields = {
            "version": VERSION,
            "session_id": key.session_id,
            "password": key.password.hex(),
            "boot_id": self._boot_id,
            "lock": None if self._lock is None else lock_identity(self._lock),
            "process_id": os.getpid(),
            "started": started_at(os.getpid()),
            "unclean_since": self.unclean_since,
        }
        temporary = f"{self._path}.tmp"
        try:
            self._disk.open(temporary, create=True).close()
            os.chmod(temporary, 0o600)  # before it has contents; `write_atomic` renames it
            self._disk.write_atomic(self._path, json.dumps(fields).encode(), sync=False)
        except OSError as error:
            LOGGER.warning("%s cannot be written: %s", self._path, error)

    def remove(self) -> None:
        """Delete the key of a session that was closed."""
        try:
            self._disk.remove(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            LOGGER.warning("%s cannot be deleted: %s", self._path, error)


def lock_identity(lock: File) -> list[int]:
    """Device and inode of a lock; those of a file that is open belong to no other file."""
    stat = os.fstat(lock.fd)
    return [stat.st_dev, stat.st_ino]


def boot_id_here() -> str:
    """The id of this boot of the machine, "" where there is none."""
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()
    except OSError:  # not Linux
        return ""


def started_at(process_id: int) -> str:
    """When a process was started, in clock ticks since the boot; "" if there is no such process, or no /proc."""
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[START_TIME_FIELD]
    except (OSError, IndexError):
        return ""
