"""Keeps the key of this broker's session in its log directory, so that a restart ends the session of a killed process.

1. The lock of the log directory proves that the earlier process is dead, if it ran since this machine was booted (the
   same boot id). Its session is then closed at once; without that the registration is waited for.
2. The key is a secret: the file has mode 0600. A file of another version, or garbage, is ignored.
"""

import json
import logging
import os
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk

LOGGER = logging.getLogger("kafkalite.server")
NAME = "kafkalite.session"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
VERSION = 1
PASSWORD_BYTES = 16


class SavedKey(NamedTuple):
    """The right to continue a session: its id and its password of 16 bytes."""

    session_id: int
    password: bytes


class SavedSession:
    """The file of one broker.

    Arguments:
        disk: has the file.
        directory: the log directory, which this broker has locked.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = os.path.join(directory, NAME)

    def load(self) -> SavedKey | None:
        """The key of an earlier process that is dead; None if there is none, or if it may be alive."""
        try:
            found = json.loads(self._disk.read_bytes(self._path))
            key = SavedKey(int(found["session_id"]), bytes.fromhex(found["password"]))
            version, boot_id = found["version"], found["boot_id"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            LOGGER.warning("%s is ignored: %r", self._path, error)
            return None
        if version != VERSION or len(key.password) != PASSWORD_BYTES:
            LOGGER.warning("%s is ignored: it has version %r", self._path, version)
            return None
        return key if boot_id and boot_id == boot_id_here() else None

    def save(self, key: SavedKey) -> None:
        """Replace the key. A failure is logged: the next start waits then."""
        fields = {
            "version": VERSION,
            "session_id": key.session_id,
            "password": key.password.hex(),
            "boot_id": boot_id_here(),
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


def boot_id_here() -> str:
    """The id of this boot of the machine, "" where there is none."""
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()
    except OSError:  # not Linux
        return ""
