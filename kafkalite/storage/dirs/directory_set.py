"""The log directories of one broker: locks and validates them, tracks which are online, and chooses one for each new
partition.

1. A directory that another broker uses or owns ends the start. A directory with a failed disk is offline; the others
   are used.
2. Without any online directory the start fails.
3. A new partition is created in the directory that was requested for it, else in the online one with the fewest logs.

Sources: LogManager.lockLogDirs, LogManager.createAndValidateLogDirs, LogManager.nextLogDirs,
LogManager.maybeUpdatePreferredLogDir.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk, File
from kafkalite.model import TopicPartition
from kafkalite.storage.dirs.log_directory import DirectoryError, Identity, LogDirectory, raise_without_descriptors

PREFERRED_MAX = 10_000  # partitions without files for which a directory was requested
LOGGER = logging.getLogger("kafkalite.storage.dirs.directory_set")


class RejectedLog(NamedTuple):
    """A partition that could not be loaded: its log directory, its own directory, its checkpoints, and the reason."""

    root: str
    directory: str
    checkpoint_offsets: tuple[int, int]
    reason: str


class DirectorySet:
    """The log directories of one broker.

    Arguments:
        disk: the disk port.
        paths: of the directories.
        fresh_id: gives an id to a directory that has none of its own.
    """

    def __init__(self, disk: Disk, paths: Sequence[str], fresh_id: Callable[[], str]) -> None:
        self._fresh_id = fresh_id
        self._directories = {directory.path: directory for directory in (LogDirectory(disk, path) for path in paths)}
        self._log_counts: Counter[str] = Counter()  # by directory, including the logs that are being created
        self._preferred: dict[TopicPartition, str] = {}

    # Startup.

    def lock(self) -> None:
        """Create and lock every directory; one whose disk fails is offline. Raises DirectoryError, with none locked.

        A directory that another broker holds fails the start, even if the other directories are usable.
        """
        try:
            self._on_each(LogDirectory.lock)
        except DirectoryError:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Release every directory."""
        for directory in self._directories.values():
            directory.unlock()

    def identity(self) -> Identity | None:
        """Return the cluster and broker that own the directories; None if all are new. Raises DirectoryError."""
        known: dict[str, Identity | None] = {}
        self._on_each(lambda directory: known.update({directory.path: directory.identity()}))
        found = {identity for identity in known.values() if identity is not None}
        if len(found) > 1:
            raise DirectoryError(f"the log directories belong to different brokers: {', '.join(sorted(known))}")
        return next(iter(found), None)

    def check(self, identity: Identity) -> None:
        """Validate owner and format of every directory, before any change. Raises DirectoryError."""
        self._on_each(lambda directory: directory.check(identity))

    def claim(self, identity: Identity) -> None:
        """Claim every directory for this broker, each with an id of its own. Raises DirectoryError."""
        self._on_each(lambda directory: directory.claim(identity, self._fresh_id()))
        ids = [directory.directory_id for directory in self._directories.values() if directory.online]
        if len(set(ids)) < len(ids):
            raise DirectoryError(
                f"log directories with the same directory.id, so one is a copy: {', '.join(sorted(ids))}"
            )

    def _on_each(self, do: Callable[[LogDirectory], object]) -> None:
        """Call `do` with each directory that is online; its OSError takes the directory offline.

        Raises DirectoryError if no directory is online or no file descriptor is free, and other exceptions of `do`."""
        online = [directory for directory in self._directories.values() if directory.online]
        for directory in online:
            try:
                do(directory)
            except OSError as error:
                raise_without_descriptors(directory.path, error)
                directory.error = error
        self.see_one_online()
        for directory in online:
            if not directory.online:
                LOGGER.error("%s; it stays offline", directory.why_offline())

    def see_one_online(self) -> None:
        """Raise DirectoryError if all directories are offline."""
        if not self.any_online:
            raise DirectoryError("; ".join(directory.why_offline() for directory in self._directories.values()))

    # Online and offline directories.

    def mark_offline(self, path: str, error: OSError) -> bool:
        """Mark a directory as offline; False if it was offline before."""
        directory = self._directories[path]
        was_online = directory.online
        directory.error = directory.error or error
        return was_online

    def directories(self) -> list[str]:
        """Absolute paths of the log directories."""
        return list(self._directories)

    def online(self) -> list[str]:
        """Absolute paths of the log directories that are online."""
        return [path for path, directory in self._directories.items() if directory.online]

    def is_online(self, path: str) -> bool:
        return self._directories[path].online

    @property
    def any_online(self) -> bool:
        """Whether any log directory is online."""
        return any(directory.online for directory in self._directories.values())

    # Directories of new partitions.

    def prefer(self, key: TopicPartition, path: str) -> None:
        """Create a partition that has no files yet in this log directory, if it is online then."""
        self._preferred.pop(key, None)
        if len(self._preferred) >= PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[key] = path

    def take_directory(self, key: TopicPartition) -> str | None:
        """The directory for the files of a new partition: the preferred one, else as `choose_directory`."""
        preferred = self._preferred.pop(key, None)
        return preferred if preferred is not None and self.is_online(preferred) else self.choose_directory()

    def choose_directory(self) -> str | None:
        """The directory for a new partition: the one online with the fewest logs; None if all are offline."""
        return min(self.online(), key=self._log_counts.__getitem__, default=None)

    def reserve(self, path: str, count: int) -> None:
        """Count logs that are created in a directory; a negative `count` subtracts those that were removed."""
        self._log_counts[path] += count

    # Locks and identities.

    def is_locked(self, path: str) -> bool:
        """Whether this broker holds the lock of a log directory."""
        return self._directories[path].locked

    def lock_file(self, path: str) -> File:
        """The lock of a log directory, open since the start."""
        return self._directories[path].lock_file

    def named_lock(self, path: str) -> File:
        """The lock file of a log directory that has the name, as far as this process knows."""
        return self._directories[path].named_lock

    def lock_again(self, path: str) -> None:
        """Lock a directory whose lock file was removed. Raises OSError: another broker may use it."""
        self._directories[path].lock_again()
        LOGGER.warning("%s: its lock file was removed; it is locked again by a new one", path)

    def directory_id(self, path: str) -> str:
        """The directory.id in `meta.properties`; it does not change when the directory is moved."""
        return self._directories[path].directory_id

    def describe_directory(self, noted: str) -> str:
        """Describe a log directory in a text, by its noted directory.id (in old notes: its path)."""
        for path, directory in self._directories.items():
            if noted in (path, directory.directory_id):
                return path if directory.online else f"{path}, which is offline"
        return f"a log directory that is not here ({noted})"

    def space(self, path: str) -> tuple[int, int]:
        """(total, free) bytes of the file system of a log directory. Raises OSError."""
        return self._directories[path].space()
