"""One log directory: its lock, its owner and its format version.

1. A directory is used only while its `.lock` is held; a second broker is rejected, also in this process, and so is a
   running Apache Kafka.
2. A directory of another cluster or broker is rejected before anything in it changes.
3. A lock file that is removed while it is held, as by a cleaner of temporary files, is created again; if another broker
   has created it meanwhile, the directory goes offline.
4. A start without free file descriptors fails; the directory does not go offline.
5. A directory of an older format is upgraded with a log line; one of a newer format is rejected.

Sources: LogManager.lockLogDirs, MetaProperties.java.
"""

import errno
import logging
import os
import re
import resource
from collections.abc import Callable
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.model import uuid_from_text
from kafkalite.storage.checkpoints import META_PROPERTIES
from kafkalite.storage.transient_errors import lacks_descriptors

LOCK = ".lock"
FORMAT = ".kafkalite-format"
FORMAT_VERSION = 1
RESTORE = "restore it from a backup"
UPGRADES: dict[int, Callable[[Disk, str], None]] = {}  # from this version to the next; 0 = written by Apache Kafka
LOGGER = logging.getLogger("kafkalite.storage.dirs.log_directory")


class DirectoryError(Exception):
    """A log directory cannot be used; the message is one line with its path and the reason."""


def raise_without_descriptors(path: str, error: OSError) -> None:
    """Raise DirectoryError where a call at start found no free file descriptor (EMFILE, ENFILE).

    The directory at `path` is whole, so that it does not go offline: a start with more descriptors uses it.
    """
    if not lacks_descriptors(error):
        return
    step = "raise fs.file-max"
    if error.errno == errno.EMFILE:
        step = f"RLIMIT_NOFILE is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}, raise it (ulimit -n, LimitNOFILE=)"
    raise DirectoryError(f"{error.filename or path}: {error.strerror}; {step} and start again") from error


def is_linked(file: File) -> bool:
    """Job: whether the path of an open file leads to it: not after it was removed or replaced. Raises OSError.

    A path that may not be read at the moment says nothing; a later check decides.
    """
    try:
        return os.path.samestat(os.stat(file.path), os.fstat(file.fd))
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


class Identity(NamedTuple):
    """The owner of a log directory, as in `meta.properties`."""

    cluster_id: str
    broker_id: int


class LogDirectory:
    """A log directory.

    Arguments:
        disk: the disk port.
        path: of the directory; created if it is missing.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = os.path.abspath(path)
        self.error: OSError | None = None
        self.directory_id = ""
        self._lock: File | None = None
        self._renewed: File | None = None  # after the first lock file was removed

    @property
    def online(self) -> bool:
        return self.error is None

    def file(self, name: str) -> str:
        """Path of a file in it."""
        return os.path.join(self.path, name)

    def why_offline(self) -> str:
        """One line of text for a log or an error."""
        assert self.error is not None, "asked of a directory that failed"
        where = self.error.filename or self.path
        prefix = "" if where == self.path else f"{where}: "
        reason = "there is a file" if self.error.errno == errno.EEXIST else self.error.strerror or self.error
        return f"{self.path}: cannot use this log directory: {prefix}{reason}"

    def lock(self) -> None:
        """Create the directory and lock it. Raises DirectoryError if another process has it, OSError."""
        self.make()
        lock = self.disk.open(self.file(LOCK), create=True)
        try:
            lock.lock()
        except BlockingIOError as error:
            raise DirectoryError(
                f"{self.path}: another broker uses this log directory; stop it, or choose another directory"
            ) from error
        self._lock = lock

    def lock_again(self) -> None:
        """Lock the directory by a new lock file, because the one that is held has lost its name.

        A file with that name was created by another broker, which uses the directory or has used it. The former lock
        file stays open: it knows which writes have failed. Raises OSError.
        """
        path = self.file(LOCK)
        replaced = OSError(errno.ESTALE, "the lock file was replaced: another broker may use this log directory", path)
        if self.disk.exists(path):
            raise replaced
        lock = self.disk.open(path, create=True)
        try:
            lock.lock()
        except BlockingIOError:
            lock.close()
            raise replaced from None
        self._renewed = lock

    @property
    def named_lock(self) -> File:
        """The lock file that has the name, as far as this process knows."""
        return self._renewed or self.lock_file

    @property
    def locked(self) -> bool:
        """Whether the lock is held: without it, the directory may be another broker's."""
        return self._lock is not None

    @property
    def lock_file(self) -> File:
        """The lock, which is held."""
        assert self._lock is not None, f"{self.path} is not locked"
        return self._lock

    def make(self) -> None:
        """Create the directory and its missing parents, and sync their names. Raises OSError."""
        missing, path = [], self.path
        while not self.disk.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        self.disk.make_dir(self.path)
        for made in reversed(missing):
            self.disk.sync_dir(os.path.dirname(made))

    def unlock(self) -> None:
        """Release the lock. A second call does nothing."""
        locks, self._lock, self._renewed = (self._lock, self._renewed), None, None
        for lock in locks:
            if lock is not None:
                lock.close()

    def identity(self) -> Identity | None:
        """The owner; None for a new directory. Raises DirectoryError, OSError."""
        path, found = self.file(META_PROPERTIES), self._properties()
        if found is None:
            return None
        broker = found.get("broker.id", found.get("node.id", ""))
        if not re.fullmatch(r"[0-9]{1,10}", broker) or not found.get("cluster.id"):
            raise DirectoryError(f"{path}: cluster.id or broker.id is missing; {RESTORE}")
        if not re.fullmatch(r"[!-~]{1,100}", found["cluster.id"]):
            raise DirectoryError(f"{path}: {found['cluster.id'][:40]!r} is not a cluster id; {RESTORE}")
        return Identity(found["cluster.id"], int(broker))

    def _properties(self) -> dict[str, str] | None:
        path = self.file(META_PROPERTIES)
        try:
            text = self.disk.read_bytes(path).decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise DirectoryError(f"{path}: not a properties file; {RESTORE}") from error
        pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
        return {key.strip(): value.strip() for key, value in pairs}

    def check(self, identity: Identity) -> None:
        """Validate its owner (this broker or none) and its format, without changes. Raises DirectoryError, OSError."""
        known = self.identity()
        if known is not None and known.cluster_id != identity.cluster_id:
            raise DirectoryError(
                f"{self.file(META_PROPERTIES)}: belongs to cluster {known.cluster_id}, not {identity.cluster_id}; "
                "choose another directory"
            )
        if known is not None and known.broker_id != identity.broker_id:
            raise DirectoryError(
                f"{self.file(META_PROPERTIES)}: belongs to broker {known.broker_id}, not {identity.broker_id}; "
                f"set node.id={known.broker_id}, or choose another directory"
            )
        self.format_version(fresh=known is None)

    def claim(self, identity: Identity, fresh_id: str) -> None:
        """Claim the directory for this broker; `fresh_id` becomes its directory.id if it has none yet (KIP-858).

        Raises DirectoryError, OSError.
        """
        self.check(identity)
        known = self._properties()
        self.upgrade(fresh=known is None)
        ours = {"version": "0", "broker.id": str(identity.broker_id), "cluster.id": identity.cluster_id}
        wanted = {"directory.id": fresh_id, **(known or ours)}
        self.directory_id = wanted["directory.id"]
        try:
            uuid_from_text(self.directory_id)
        except ValueError as error:
            raise DirectoryError(f"{self.file(META_PROPERTIES)}: directory.id: {error}") from error
        if wanted != known:
            text = "".join(f"{key}={value}\n" for key, value in sorted(wanted.items()))
            self.disk.write_atomic(self.file(META_PROPERTIES), text.encode(), sync=True)

    def format_version(self, *, fresh: bool) -> int:
        """The format version of the directory, 0 = Apache Kafka's. Raises DirectoryError, OSError."""
        version = FORMAT_VERSION if fresh else 0
        if self.disk.exists(self.file(FORMAT)):
            text = self.disk.read_bytes(self.file(FORMAT)).decode(errors="replace").strip()
            if not re.fullmatch(r"[0-9]{1,9}", text):
                raise DirectoryError(f"{self.file(FORMAT)}: {text[:40]!r} is not a format version; {RESTORE}")
            version = int(text)
        if version > FORMAT_VERSION:
            raise DirectoryError(
                f"{self.file(FORMAT)}: format version {version} is newer than {FORMAT_VERSION}, the newest supported; "
                "use the version of kafkalite that wrote it, or a newer one"
            )
        return version

    def upgrade(self, *, fresh: bool) -> None:
        """Upgrade the directory to the current format. Raises DirectoryError, OSError."""
        version = self.format_version(fresh=fresh)
        if not version:
            LOGGER.info("%s: no format version, assumed to be written by Apache Kafka", self.path)
        for older in range(version, FORMAT_VERSION):
            if older in UPGRADES:
                UPGRADES[older](self.disk, self.path)
            LOGGER.info("%s: upgraded from format %d to %d", self.path, older, older + 1)
        if fresh or version < FORMAT_VERSION:  # otherwise every start would need space on the disk
            self.disk.write_atomic(self.file(FORMAT), f"{FORMAT_VERSION}\n".encode(), sync=True)

    def space(self) -> tuple[int, int]:
        """(total, free) bytes of its file system. Raises OSError."""
        free, total = self.disk.free_bytes(self.path)
        return total, free
